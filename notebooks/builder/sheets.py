"""A printable page a lesson and language, made from the source: what it was about, its steps, its tools, its words.

``notebooks/sheets/{bn,en}/NN_topic.html`` with ``sheet.css``: one A4 page, to be opened in any browser and printed; no
network, no script.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

from markdown_it import MarkdownIt

from .editions import number
from .source import LANGUAGES, Lesson
from .terms import glossary

MOST_CALLS, MOST_TERMS, MOST_STEPS = 12, 14, 12
LONGEST = 96  # characters of a line of code
NOT_SHOWN = ("use_language", "check", "predict", "units")  # on every page, or about pages
LABELS = {
    "bn": {"page": "এক পাতায়", "steps": "যা যা করলাম", "tools": "যা দিয়ে করলাম", "claims": "যে দাবি যাচাই করলাম",
           "words": "শব্দ", "end": "মনে থাকুক"},
    "en": {"page": "on one page", "steps": "What we did", "tools": "What we did it with",
           "claims": "Claims put to the test", "words": "Words", "end": "To take along"},
}  # fmt: skip
STYLE = """
@font-face { font-family: Sheet; src: url(../../labkit/fonts/NotoSansBengali-Regular.ttf); }
@font-face { font-family: Sheet; font-weight: bold; src: url(../../labkit/fonts/NotoSansBengali-Bold.ttf); }
@page { size: A4; margin: 12mm; }
body { font: 9.5pt/1.42 Sheet, sans-serif; color: #111; background: #fff; }
body { max-width: 186mm; margin: auto; }
h1 { font-size: 15pt; margin: 0 0 1mm; }
h2 { font-size: 10.5pt; margin: 3mm 0 1mm; border-bottom: 0.3mm solid #555; }
main { columns: 2; column-gap: 7mm; } section { break-inside: avoid; } p { margin: 1mm 0; }
ul, ol { margin: 0; padding-left: 5mm; }
code { font: 8pt/1.35 "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
dl { margin: 0; display: grid; grid-template-columns: auto 1fr; gap: 0 3mm; }
dt { font-weight: bold; } dd { margin: 0; }
"""
_markdown = MarkdownIt()
_CALL = re.compile(r"\blab\.([a-z_]+)")


def sheet(lesson: Lesson, language: str, words: Path) -> str:
    """The page as HTML; raises nothing for a lesson that lacks a part: the part is left out."""
    labels = LABELS[language]
    parts = [
        _listed(labels["steps"], [_inline(step) for step in _steps(lesson, language)], "ol"),
        _listed(labels["tools"], [_code(line) for line in _calls(lesson)]),
        _listed(labels["claims"], [_code(line) for line in _claims(lesson)]),
        _words(labels["words"], lesson, words),
        _listed(labels["end"], [_inline(line) for line in _last_lines(lesson, language)]),
    ]
    title = html.escape(f"{number(lesson.number, language)} · {lesson.title[language]}")
    return (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n'
        f'<title>{title} · {labels["page"]}</title>\n<link rel="stylesheet" href="../sheet.css">\n'
        f"</head>\n<body>\n<h1>{title}</h1>\n"
        f"<p>{_inline(lesson.objective[language].strip())}</p>\n<main>\n{''.join(parts)}</main>\n</body>\n</html>\n"
    )


def pages(lessons: list[Lesson], root: Path) -> dict[Path, str]:
    """Path -> text of the sheets of every lesson that has editions."""
    folder, words = root / "notebooks/sheets", root / "notebooks/src/glossary.csv"
    found = {folder / "sheet.css": STYLE.lstrip()}
    return found | {folder / language / f"{lesson.name}.html": sheet(lesson, language, words)
                    for lesson in lessons if lesson.status != "planned" for language in LANGUAGES}  # fmt: skip


def _inline(text: str) -> str:
    return _markdown.renderInline(" ".join(text.split()))


def _code(line: str) -> str:
    return f"<code>{html.escape(line if len(line) <= LONGEST else line[: LONGEST - 1] + '…')}</code>"


def _listed(title: str, items: list[str], kind: str = "ul") -> str:
    if not items:
        return ""
    rows = "".join(f"<li>{item}</li>\n" for item in items)
    return f"<section>\n<h2>{title}</h2>\n<{kind}>\n{rows}</{kind}>\n</section>\n"


def _texts(lesson: Lesson, language: str) -> list[str]:
    return [cell.text[language] for cell in lesson.cells if cell.code is None]


def _steps(lesson: Lesson, language: str) -> list[str]:
    """The headings, without their numbers; the last one heads the closing lines."""
    found = [line[3:] for text in _texts(lesson, language) for line in text.splitlines() if line.startswith("## ")]
    return [re.sub(r"^[0-9০-৯]+(\.|।)\s*", "", step) for step in found[:-1]][:MOST_STEPS]


def _calls(lesson: Lesson) -> list[str]:
    """For each name of labkit the first line of code that calls it."""
    first: dict[str, str] = {}
    for line in (line for cell in lesson.cells if cell.code and not cell.grade for line in cell.code.splitlines()):
        for name in _CALL.findall(line):
            if name not in (*NOT_SHOWN, "claim") and line.strip().count("(") <= line.count(")"):
                first.setdefault(name, line.strip())
    return list(dict.fromkeys(first.values()))[:MOST_CALLS]


def _claims(lesson: Lesson) -> list[str]:
    lines = [line.strip() for cell in lesson.cells if cell.code for line in cell.code.splitlines()]
    return [line for line in lines if line.startswith("lab.claim(") and line.endswith(")")][:MOST_CALLS]


def _words(title: str, lesson: Lesson, words: Path) -> str:
    """Terms that the Bengali text introduces as «… (English)», in both languages."""
    text = " ".join(_texts(lesson, "bn"))
    found = {term.en: term.bn for term in glossary(words) if f"({term.en})" in text}
    pairs = list(found.items())[:MOST_TERMS]
    rows = "".join(f"<dt>{html.escape(bn)}</dt><dd>{html.escape(en)}</dd>\n" for en, bn in pairs)
    return f"<section>\n<h2>{title}</h2>\n<dl>\n{rows}</dl>\n</section>\n" if rows else ""


def _last_lines(lesson: Lesson, language: str) -> list[str]:
    """The list items, or else the first sentences, below the last heading."""
    text = "\n\n".join(_texts(lesson, language))
    last = text.rsplit("\n## ", 1)[-1].split("\n", 1)[-1]
    items = [re.sub(r"^([-*]|[0-9০-৯]+[.।])\s+", "", line) for line in last.splitlines()
             if re.match(r"([-*]|[0-9০-৯]+[.।])\s", line)]  # fmt: skip
    return items[:5] or [part for part in last.strip().split("\n\n")[:3] if part]
