"""The frame of a static page: one file, no script, no font or style from the network."""

from __future__ import annotations

from html import escape

_STYLE = """
body{font:16px/1.55 'Noto Sans Bengali','Nirmala UI','Kohinoor Bangla','Vrinda',system-ui,sans-serif;
max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1f2328;background:#fff}
table{border-collapse:collapse;margin:1rem 0;width:100%}th,td{border:1px solid #d0d7de;padding:.35rem .6rem;
text-align:start;vertical-align:top}th{background:#f6f8fa}td.n{text-align:end;font-variant-numeric:tabular-nums}
pre{background:#f6f8fa;padding:.7rem;overflow:auto;white-space:pre-wrap;font-size:.9em}
.note{border-inline-start:4px solid #9a6700;padding:.3rem .8rem;margin:.5rem 0}
@media (prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}th,pre{background:#161b22}
th,td{border-color:#30363d}}
"""


def page(title: str, language: str, body: str) -> str:
    """A whole HTML document; ``body`` is HTML, ``title`` is text."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return (f'<!DOCTYPE html>\n<html lang="{language}"><head>{head}<style>{_STYLE}</style></head>'
            f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n")


def table(head: list[str], rows: list[list[str]]) -> str:
    """Cells are text; what is a number stands to the right."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    lines = ["".join(f"<td{_kind(cell)}>{escape(cell)}</td>" for cell in row) for row in rows]
    return f"<table><thead><tr>{top}</tr></thead><tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"


def _kind(cell: str) -> str:
    plain = cell.replace(".", "").replace("/", "").replace(" ", "")
    return ' class="n"' if plain.isascii() and plain.isdigit() else ""
