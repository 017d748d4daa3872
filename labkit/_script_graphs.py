"""TorchScript graphs: count nodes, run a pass on a copy and count again, list what an optimisation fused."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from labkit import _torch_private as private
from labkit.language import t

# Node kinds that only exist after an optimisation, by how they begin.
_FUSED = (
    "prim::mkldnn",
    "prim::MKLDNN",
    "mkldnn::",
    "mkldnn_prepacked::",
    "prepacked::",
    "prim::TensorExprGroup",
    "prim::FusionGroup",
    "prim::CudaFusionGroup",
    "prim::oneDNNFusionGroup",
    "aten::cudnn_convolution_relu",
    "aten::cudnn_convolution_add_relu",
    "aten::addmm",
)


@dataclass(frozen=True)
class Nodes:
    """How many nodes a graph has, those of inner blocks included: ``total`` and, by kind, ``kinds``."""

    kinds: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.kinds.values())

    @property
    def operations(self) -> int:
        """The nodes that compute: neither constants nor attributes nor the packing of lists and tuples."""
        quiet = ("prim::Constant", "prim::GetAttr", "prim::ListConstruct", "prim::TupleConstruct")
        return sum(count for kind, count in self.kinds.items() if kind not in quiet)

    def __repr__(self):
        return f"Nodes(total={self.total}, operations={self.operations})"


@dataclass(frozen=True)
class PassResult:
    """A graph before and after TorchScript passes; ``graph`` is the new graph as text."""

    passes: tuple[str, ...]
    before: Nodes
    after: Nodes
    graph: str

    @property
    def removed(self) -> dict[str, int]:
        """Node kind -> how many fewer there are."""
        kinds = {k: n - self.after.kinds.get(k, 0) for k, n in self.before.kinds.items()}
        return {kind: count for kind, count in kinds.items() if count > 0}

    def __repr__(self):
        return f"PassResult({' + '.join(self.passes)}: {self.before.total} -> {self.after.total} nodes)"


def nodes(scripted) -> Nodes:
    """Count the nodes of a scripted or traced function or module (its submodules inlined), or of a graph."""
    kinds: dict[str, int] = {}
    for node in _every_node(_graph(scripted)):
        kinds[node.kind()] = kinds.get(node.kind(), 0) + 1
    return Nodes(dict(sorted(kinds.items())))


def after_pass(scripted, *passes: str) -> PassResult:
    """Run TorchScript passes, such as ``"cse"``, ``"dce"``, ``"constant_propagation"``, one after the other on a copy.

    The scripted function itself stays as it is. Raises ValueError for a pass that this torch does not have.
    """
    known = private.known_passes()
    for name in passes:
        if name not in known:
            raise ValueError(
                t(
                    "No TorchScript pass is called {name!r} here. Try one of: cse, dce, constant_propagation, "
                    "constant_pooling, peephole, inline.",
                    name=name,
                )
            )
    graph = _graph(scripted).copy()
    before = nodes(graph)
    for name in passes:
        private.run_pass(graph, name)
    return PassResult(passes, before, nodes(graph), graph_text(graph))


def fused_kinds(module) -> dict[str, int]:
    """Node kinds that only an optimisation makes, with their counts: ``{"prim::mkldnn_convolution": 8}``.

    For modules that came out of ``torch.jit.freeze`` or ``torch.jit.optimize_for_inference``.
    """
    return {kind: count for kind, count in nodes(module).kinds.items() if kind.startswith(_FUSED)}


def graph_text(scripted) -> str:
    """The graph as text, without the file names that torch writes behind each node."""
    return re.sub(r"\s*# .*$", "", str(_graph(scripted)), flags=re.M).rstrip()


def _graph(scripted):
    if isinstance(scripted, torch._C.Graph):
        return scripted
    if isinstance(scripted, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        return scripted.inlined_graph
    raise TypeError(
        t(
            "This counts the nodes of a TorchScript graph, but was given {kind}. Make one first: "
            "torch.jit.trace(f, x) or torch.jit.script(f).",
            kind=type(scripted).__name__,
        )
    )


def _every_node(block):
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _every_node(inner)
