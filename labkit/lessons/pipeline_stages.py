"""Inside a rank: a stage of a pipeline that really computes, and its talk with the neighbours."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn

from labkit import hardware, launch
from labkit.lessons.activations import Kept
from labkit.lessons.rank_turns import take_turns

__all__ = ["Stage", "batch", "gap", "loss_of", "micro_batches", "network", "take_turns"]

WIDTH = 768


def network(layers: int, width: int = WIDTH) -> nn.Sequential:
    """``layers`` x (linear, tanh), all (rows, width) -> (rows, width); the same weights in every process."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        pairs = [(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)]
    return nn.Sequential(*(layer for pair in pairs for layer in pair)).to(launch.rank_device())


def batch(rows: int, width: int = WIDTH) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, (rows, width) each, the same in every process."""
    x, y = torch.randn(2, rows, width, generator=torch.Generator().manual_seed(1)).to(launch.rank_device())
    # A first stage whose input needs no gradient has less to do than the others; here every stage has the same work.
    return x.requires_grad_(), y


def micro_batches(x: torch.Tensor, y: torch.Tensor, micro: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The batch in ``micro`` equal parts, (rows / micro, width) each."""
    rows = [part.detach().clone().requires_grad_() for part in x.chunk(micro)]
    return rows, [part.clone() for part in y.chunk(micro)]


def loss_of(out: torch.Tensor, y: torch.Tensor, micro: int = 1) -> torch.Tensor:
    """Mean square; of ``micro`` micro-batches each gives its share, so that their gradients add up to the batch's."""
    return (out - y).square().mean() / micro


class Stage:
    """One rank's part of the network. ``spans``: (kind, micro-batch, start, end) in seconds of the machine's clock."""

    def __init__(self, part: nn.Module):
        self.part, self.me, self.last = part, dist.get_rank(), dist.get_rank() == dist.get_world_size() - 1
        self.waiting, self.sending, self.spans = {}, [], []
        self.kept = Kept(part.parameters())

    def forward(self, i: int, x: torch.Tensor, y: torch.Tensor, micro: int) -> None:
        if self.me > 0:  # (rows, width) from the rank before, in place of the data
            x = torch.empty_like(x)
            dist.recv(x, self.me - 1)
            x.requires_grad_()
        with self.clock("F", i), self.kept:
            out = self.part(x)  # (rows, width) -> (rows, width)
            out = loss_of(out, y, micro) if self.last else out
        if not self.last:
            self.sending.append(dist.isend(out.detach(), self.me + 1))
        self.waiting[i] = (x, out)

    def backward(self, i: int) -> None:
        x, out = self.waiting.pop(i)
        gradient = None
        if not self.last:  # (rows, width) from the rank behind
            gradient = torch.empty_like(out)
            dist.recv(gradient, self.me + 1)
        with self.clock("B", i):
            out.backward(gradient)
        if self.me > 0:
            self.sending.append(dist.isend(x.grad, self.me - 1))

    def run(self, order, rows: list[torch.Tensor], targets: list[torch.Tensor]) -> dict:
        """One batch in the given order of work; ``spans`` and the most bytes ``kept`` for backward passes."""
        self.spans, self.kept.most = [], 0
        for kind, i in order:
            self.forward(i, rows[i], targets[i], len(rows)) if kind == "F" else self.backward(i)
        for request in self.sending:  # not earlier: two ranks could wait for each other
            request.wait()
        self.sending.clear()
        return {"spans": self.spans, "kept_bytes": self.kept.most}

    def clock(self, kind: str, i: int) -> _Clock:
        return _Clock(self.spans, kind, i)


class _Clock:
    """Notes when a piece of work began and ended; on a GPU it waits for the work, not only for its launch."""

    def __init__(self, spans: list, kind: str, i: int):
        self.spans, self.work = spans, (kind, i)

    def __enter__(self):
        self.start = time.monotonic()  # one clock for every process of a machine

    def __exit__(self, *problem):
        hardware.sync(launch.rank_device())
        self.spans.append((*self.work, self.start, time.monotonic()))


def gap(part: nn.Module, whole: nn.Module) -> float:
    """Largest difference between the gradients of two modules of the same shape, as a share of each largest value."""
    pairs = zip(part.parameters(), whole.parameters(), strict=True)
    return max(((p.grad - w.grad).abs().max() / w.grad.abs().max()).item() for p, w in pairs)
