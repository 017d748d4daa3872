"""Every reason to refuse a source that could be read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from . import bengali, pairs, terms
from .bengali import LINK_TEXT
from .grading import HIDDEN, SOLUTION, stubbed, unmarked
from .leaks import leak
from .markdown import DIGITS, Parts, parts
from .source import Cell, Lesson, Problem

CODE_LINES = 20
BENGALI = re.compile(r"[\u0980-\u09FF]")
LATIN = re.compile(r"[A-Za-z]{2}")
# What only a clock can know.  Digits are Latin here: Bengali ones are translated first.
_N = r"[0-9]+(?:\.[0-9]+)?"
MEASURED = re.compile(
    rf"{_N}(?:\s*[-–]\s*{_N})?\s*(?:x|×|times|fold|%|per ?cent)[ -]*(?:as )?(?:faster|slower|fast|slow|speed-?up)\b"
    rf"|{_N}\s*(?:গুণ|শতাংশ|%)\s*(?:বেশি |কম )?(?:দ্রুত|ধীর)"
    rf"|(?<![A-Za-z0-9.]){_N}\s*(?:ms|µs|μs|us|ns|[kMGT]i?B/s|[MGT]FLOP/?s|FLOP/s|মিলিসেকেন্ড|মাইক্রোসেকেন্ড)(?![A-Za-z])"
)
QUOTED = re.compile(r"[\"“][^\"“”\n]*[\"”]|«[^»\n]*»|‘[^’\n]*’")
FIX_MEASURED = "state the relation and let a cell print the number; quote others' claims; link a data sheet."


def problems(lesson: Lesson, glossary: Path) -> list[Problem]:
    """Everything that DESIGN forbids in ``lesson``, in reading order."""
    found: list[Problem] = []
    words = terms.glossary(glossary)
    for name in ("title", "objective", "needs"):
        texts = getattr(lesson, name)
        found += _pair(lesson, f"front matter, {name}", texts, {"bn": 1, "en": 1}, words, ())
    for number, cell in enumerate(lesson.cells, 1):
        where = f"cell {number}" if cell.id.startswith("cell-") else f"cell {number} ({cell.id})"
        if cell.code is None:
            found += _pair(lesson, where, cell.text, cell.lines, words, cell.free)
        else:
            found += [Problem(lesson.path, cell.line, where, *reason) for reason in _code(cell)]
    found += _exercises(lesson)
    return sorted(found)


def _pair(lesson: Lesson, where: str, texts: dict, lines: dict, words: tuple, free: tuple) -> Iterator[Problem]:
    split: dict[str, Parts] = {language: parts(text) for language, text in texts.items()}
    for what, fix in pairs.differences(split["bn"], split["en"]):
        yield Problem(lesson.path, lines["bn"], where, what, fix)
    for offset, what, fix in bengali.smells(texts["bn"]):
        yield Problem(lesson.path, lines["bn"] + offset, where, what, fix)
    for what, fix in terms.strays(texts["bn"], texts["en"], words, free):
        yield Problem(lesson.path, lines["bn"], where, what, fix)
    if len(BENGALI.findall(split["en"].prose)) > 40:
        yield Problem(lesson.path, lines["en"], where, "Bengali prose in the English text.", "is its tag right?")
    for language, name, own, foreign in (("bn", "Bengali", BENGALI, LATIN), ("en", "English", LATIN, BENGALI)):
        line, prose = lines[language], split[language].prose
        if foreign.search(prose) and not own.search(prose):
            yield Problem(lesson.path, line, where, f"no {name} in the {name} text.", "is the language tag right?")
        if what := leak(texts[language]):
            yield Problem(lesson.path, line, where, f"the text shows {what}.", "name it as every reader has it.")
        if 1 in split[language].headings:
            yield Problem(lesson.path, line, where, "a # heading.", "start at ##: the title is generated.")
        if "{code-cell}" in texts[language]:
            yield Problem(lesson.path, line, where, "a code cell inside text.", "start its fence in column 1.")
        for offset, number in _measured(prose):
            what = f"a measured number in the prose: {number!r}."
            yield Problem(lesson.path, line + offset, where, what, FIX_MEASURED)


def _measured(prose: str) -> Iterator[tuple[int, str]]:
    """(line offset, number with unit) of what only a clock can know; not in quotations or beside a link."""
    line = 0
    for paragraph in re.split(r"(\n[ \t]*\n)", prose):
        if not LINK_TEXT.search(paragraph):
            quoted = QUOTED.sub(lambda found: " " * len(found.group(0)), paragraph.translate(DIGITS))
            for found in MEASURED.finditer(quoted):
                yield line + quoted.count("\n", 0, found.start()), found.group(0)
        line += paragraph.count("\n")


def _code(cell: Cell) -> Iterator[tuple[str, str]]:
    learner, solved = stubbed(cell.code), unmarked(HIDDEN.sub("", cell.code))
    longest = max(text.count("\n") + 1 for text in (learner, solved))
    if not cell.code.strip():
        yield "an empty code cell.", "delete it."
    if longest > CODE_LINES:
        yield f"{longest} lines of code ({CODE_LINES} at most).", "one idea a cell: split it, or move a part to labkit."
    if BENGALI.search(cell.code):
        yield "Bengali letters in a code cell.", "code is shared by both editions: put the text into labkit's messages."
    if what := leak(cell.code):
        yield f"the code shows {what}.", "take a path beside the notebook or a temporary folder."
    if "use_language(" in cell.code:
        yield "use_language() in a cell.", "delete it: the set-up cell is generated."
    for name, text in (("learner's", learner), ("solved", unmarked(cell.code))):
        if error := _syntax(text):
            yield f"the {name} edition of this cell is not Python: {error}.", "mend the syntax."
    for kind in ("SOLUTION", "HIDDEN TESTS"):
        begins, ends = (len(re.findall(rf"^[ \t]*### {edge} {kind}", cell.code, re.M)) for edge in ("BEGIN", "END"))
        if begins != ends:
            yield f"{begins} BEGIN and {ends} END {kind}.", "close every region."
    if any(not region.group(1) for region in SOLUTION.finditer(cell.code)):
        yield "a solution region outside a function.", "put it into a function body: the stub is a return statement."


def _exercises(lesson: Lesson) -> Iterator[Problem]:
    cells = {cell.id: cell for cell in lesson.cells if cell.code is not None}
    for cell in cells.values():
        solution, test = cell.grade.get("solution"), cell.grade.get("grade")

        def wrong(what: str, fix: str, cell=cell) -> Problem:
            return Problem(lesson.path, cell.line, cell.id, what, fix)

        if bool(SOLUTION.search(cell.code)) != bool(solution):
            yield wrong("a solution cell and a solution region go together.", "give it both, or neither.")
        if HIDDEN.search(cell.code) and not test:
            yield wrong("hidden tests outside a test cell.", "give the cell a grade_id test-NN-k.")
        if solution and cell.id.replace("ex-", "test-", 1) not in cells:
            yield wrong("no test cell for this exercise.", f"add {cell.id.replace('ex-', 'test-', 1)}.")
        if test and not stubbed(cell.code).rstrip().endswith(".points"):
            yield wrong("the test cell does not end with its points.", "last line: result.points")


def _syntax(code: str) -> str | None:
    """Why ``code`` does not parse, IPython's magics set aside."""
    if code.lstrip().startswith("%%"):
        return None
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        ast.parse(TransformerManager().transform_cell(code))
    except SyntaxError as error:
        return f"{error.msg}, line {error.lineno}"
    return None
