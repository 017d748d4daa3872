"""Lesson 05: what is compiled, and for how long, when a model is given to the compiler whole or block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.compiler.config as compiler_config

from labkit import graphs, hardware, units
from labkit._enough_time import timed
from labkit._graph_values import html_table
from labkit._torch_private import quiet
from labkit.language import t
from labkit.lessons.compile_stages import operations

DEPTH, WIDTH = 8, 64


class Layer(torch.nn.Module):
    """``x + tanh(linear(x))``, the repeated part of a `Tower`."""

    def __init__(self, width: int):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class Tower(torch.nn.Module):
    """``depth`` equal blocks, then a head: ``(batch, width)`` -> ``(batch, 1)``. The shape of most models today."""

    def __init__(self, depth: int = DEPTH, width: int = WIDTH):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Layer(width) for _ in range(depth))
        self.head = torch.nn.Linear(width, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def graph_sizes(prepare: Callable) -> list[int]:
    """Operations of each graph that Dynamo compiles for one forward of a `Tower` set up by ``prepare(model, …)``."""
    sizes = []

    def backend(graph, _inputs):
        sizes.append(len(operations(graph)))
        return graph.forward

    _prepared(prepare, backend=backend)()
    torch.compiler.reset()
    return sizes


def regions(prepare: Callable) -> int:
    """How many times one forward of a `Tower` set up by ``prepare(model, …)`` enters compiled code."""
    call = _prepared(prepare, backend="eager")
    call()
    entered = graphs.compiled_regions(call)
    torch.compiler.reset()
    return entered


def _prepared(prepare: Callable, **options) -> Callable:
    torch.compiler.reset()
    model = Tower().to(hardware.device()).eval()
    x = torch.randn(32, WIDTH, device=hardware.device())
    prepare(model, **options)

    def call():
        with torch.no_grad():
            return model(x)

    return call


@dataclass(frozen=True)
class FirstCalls:
    """Seconds of the first compiled call: ``{"whole": (cold, warm)}``."""

    seconds: dict[str, tuple[float, float]]

    @classmethod
    def of(cls, *prepares: Callable) -> FirstCalls:
        """Time the first call of a `Tower` set up each way: with every cache off, then from the caches on disk."""
        found = {}
        with quiet():
            for prepare in prepares:
                with compiler_config.patch(force_disable_caches=True):
                    cold_s = timed(_prepared(prepare))
                timed(_prepared(prepare))  # fills the caches, where nobody has yet
                found[prepare.__name__] = (cold_s, timed(_prepared(prepare)))
        torch.compiler.reset()
        return cls(found)

    def _rows(self):
        return [(name, *map(units.seconds, pair)) for name, pair in self.seconds.items()]

    def __str__(self):
        return "\n".join("  ".join(row) for row in self._rows())

    __repr__ = __str__

    def _repr_html_(self):
        return html_table((t("compiled"), t("caches off"), t("caches warm")), self._rows())
