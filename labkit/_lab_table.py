"""A lab's table of texts, as HTML and as plain text."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from labkit._measurement_view import CELL


@dataclass(frozen=True)
class Table:
    """``heads`` and ``rows`` of texts; the first cell of a row names it."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    def html(self) -> str:
        head = "".join(f'<th scope="col" style="{CELL}">{html.escape(text)}</th>' for text in self.heads)
        body = "".join(_row(row) for row in self.rows)
        named = f'<caption style="{CELL}">{html.escape(self.caption)}</caption>' if self.caption else ""
        return (f'<table style="border-collapse:collapse">{named}<thead><tr>{head}</tr></thead>'
                f"<tbody>{body}</tbody></table>")  # fmt: skip

    def __str__(self):
        lines = [self.heads, *self.rows]
        widths = [max(len(line[k]) for line in lines) for k in range(len(self.heads))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )


def _row(cells: Sequence[str]) -> str:
    first, *rest = map(html.escape, cells)
    line = "border-top:1px solid var(--jp-border-color2,#bbb)"
    return (f'<tr style="{line}"><th scope="row" style="{CELL};font-weight:normal">{first}</th>'
            + "".join(f'<td style="{CELL}">{cell}</td>' for cell in rest) + "</tr>")  # fmt: skip
