"""What `labkit.graphs` returns: small values with a repr that never holds a path, an address or a time."""

from __future__ import annotations

import html
from dataclasses import dataclass

from labkit._lab_source import LabSource
from labkit._wrapper_code import GraphKernels
from labkit.language import t


@dataclass(frozen=True)
class Kernels:
    """Kernel calls of one compiled call, a `GraphKernels` for each graph in the order of compilation."""

    graphs: tuple[GraphKernels, ...]

    @property
    def fused(self) -> int:
        """Calls of generated kernels."""
        return sum(len(graph.fused) for graph in self.graphs)

    @property
    def extern(self) -> int:
        """Calls of library kernels."""
        return sum(len(graph.extern) for graph in self.graphs)

    @property
    def total(self) -> int:
        return self.fused + self.extern

    @property
    def bytes_moved(self) -> int | None:
        """Bytes that all these kernels read and write (rule: `labkit._wrapper_bytes`); None for sizes not fixed."""
        moved = [graph.bytes_moved for graph in self.graphs]
        return None if None in moved else sum(moved)

    @property
    def names(self) -> tuple[str, ...]:
        """Every kernel called: the generated ones of a graph, then its library ones."""
        return tuple(name for graph in self.graphs for name in (*graph.fused, *graph.extern))

    @property
    def source(self) -> LabSource:
        """The generated kernels' sources."""
        return LabSource.from_wrappers(graph.wrapper for graph in self.graphs)

    @property
    def forward(self) -> Kernels:
        """The forward and inference graphs alone."""
        return Kernels(tuple(graph for graph in self.graphs if graph.phase != "backward"))

    @property
    def backward(self) -> Kernels:
        """The backward graphs alone."""
        return Kernels(tuple(graph for graph in self.graphs if graph.phase == "backward"))

    def __repr__(self):
        return f"Kernels(fused={self.fused}, extern={self.extern}, graphs={len(self.graphs)})"

    def _repr_html_(self):
        heads = (t("graph"), t("generated kernels"), t("library kernels"))
        rows = [
            [f"{number} {graph.phase}", _listed(graph.fused), _listed(graph.extern)]
            for number, graph in enumerate(self.graphs, 1)
        ]
        return html_table(heads, rows)


def _listed(names: tuple[str, ...]) -> str:
    return f"{len(names)}" if not names else f"{len(names)}: {', '.join(names)}"


def html_table(heads, rows) -> str:
    """A plain HTML table; every cell is escaped."""
    head = "".join(f'<th scope="col" style="text-align:left">{html.escape(str(cell))}</th>' for cell in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{html.escape(str(cell))}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
