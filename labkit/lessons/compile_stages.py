"""What each stage of ``torch.compile`` hands to the next: operations of Dynamo's and AOTAutograd's graphs, kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from labkit import graphs
from labkit._graph_values import html_table
from labkit._undisturbed import backward_of_sum, copied
from labkit.language import t

_NO_WORK = ("detach", "getitem", "alias")


@dataclass(frozen=True)
class Stages:
    """Names of operations after each stage, ``stage -> names``; the last stage is Inductor's kernels."""

    names: dict[str, tuple[str, ...]]

    def __getitem__(self, stage: str) -> tuple[str, ...]:
        return self.names[stage]

    def __str__(self):
        return "\n".join(f"{stage}: {len(names)}  ({' '.join(names)})" for stage, names in self.names.items())

    __repr__ = __str__

    def _repr_html_(self):
        rows = [(stage, len(names), " ".join(names)) for stage, names in self.names.items()]
        return html_table((t("stage"), t("how many"), t("operations or kernels")), rows)


def stages(fn, *args) -> Stages:
    """Compile ``fn(*args)`` and its backward twice: once to look at the graphs on the way, once by Inductor.

    Resets Dynamo, as the functions of `labkit.graphs` do. ``fn`` must be one graph with an input that needs a gradient.
    """
    from functorch.compile import aot_module_simplified, make_boxed_func, min_cut_rematerialization_partition

    seen: dict[str, tuple[str, ...]] = {}

    def note(stage):
        def compiler(graph, _inputs):
            seen[stage] = operations(graph)
            return make_boxed_func(graph.forward)

        return compiler

    def backend(graph, inputs):
        seen["Dynamo"] = operations(graph)
        return aot_module_simplified(
            graph, inputs, fw_compiler=note("AOTAutograd forward"), bw_compiler=note("AOTAutograd backward"),
            partition_fn=min_cut_rematerialization_partition,
        )  # fmt: skip

    torch.compiler.reset()
    try:
        backward_of_sum(torch.compile(fn, backend=backend)(*copied(args)))
    finally:
        torch.compiler.reset()
    counted = graphs.kernels(fn, *args, backward=True)
    seen["Inductor forward"], seen["Inductor backward"] = counted.forward.names, counted.backward.names
    return Stages(seen)


def operations(graph: torch.fx.GraphModule) -> tuple[str, ...]:
    """Short names of a graph's calls that compute something, in order: ``mul`` for ``aten.mul.Tensor``."""
    nodes = [node for node in graph.graph.nodes if node.op.startswith("call")]
    return tuple(name for name in map(_name, nodes) if name not in _NO_WORK)


def _name(node) -> str:
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "_opname", None) or target.__name__
    return name.partition(".")[0]
