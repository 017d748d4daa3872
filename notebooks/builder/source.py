"""Read ``notebooks/src/NN_topic.md`` into a Lesson: front matter, pairs of text, shared code cells."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from pathlib import Path

import yaml
from jupytext.myst import MystMetadataParsingError, myst_to_notebook

from .grading import completed

LANGUAGES = ("bn", "en")
STATUSES = ("ready", "draft", "planned")
NAME = re.compile(r"\d\d_[a-z0-9_]+")
FENCE = re.compile(r"^---\s*$", re.M)


@dataclasses.dataclass(frozen=True, order=True)
class Problem:
    """One reason to refuse a source: where it is, what is wrong, what to do."""

    path: str
    line: int
    cell: str
    what: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f" Fix: {self.fix}" if self.fix else ""
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.cell}: {self.what}{fix}"


class RefusedError(Exception):
    """A source, or an executed notebook, that must not be published; carries every Problem found."""

    def __init__(self, problems: list[Problem]):
        self.problems = sorted(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclasses.dataclass
class Cell:
    """A code cell (``code`` is text) or a pair of text cells (``text`` maps language to text)."""

    id: str
    line: int
    code: str | None = None
    text: dict[str, str] = dataclasses.field(default_factory=dict)
    lines: dict[str, int] = dataclasses.field(default_factory=dict)
    metadata: dict = dataclasses.field(default_factory=dict)
    free: tuple[str, ...] = ()  # glossary terms that this pair may say in other words

    @property
    def tags(self) -> set[str]:
        return set(self.metadata.get("tags", []))

    @property
    def grade(self) -> dict:
        return self.metadata.get("nbgrader", {})


@dataclasses.dataclass
class Lesson:
    """One source: ``name`` is NN_topic; ``title``, ``objective`` and ``needs`` map language to text."""

    name: str
    path: str
    title: dict[str, str]
    objective: dict[str, str]
    needs: dict[str, str]
    minutes: int
    status: str
    cells: list[Cell] = dataclasses.field(default_factory=list)

    @property
    def number(self) -> str:
        return self.name[:2]


def read(path: Path, shown: str | None = None) -> Lesson:
    """Read one source. Raises RefusedError when it cannot be taken apart; style and language are lint's job."""
    lesson, body = _opened(path, shown or path.as_posix())
    try:
        notebook = myst_to_notebook(body, add_source_map=True)
    except MystMetadataParsingError as error:
        problem = Problem(lesson.path, 1, "cell metadata", f"not readable: {error}.", "mend its JSON or YAML.")
        raise RefusedError([problem]) from error
    lines = body.splitlines()
    starts = [_first_line(lines, start) for start in notebook.metadata["source_map"]]
    lesson.cells = _cells(lesson.path, lesson.number, notebook.cells, starts)
    return lesson


def _first_line(lines: list[str], start: int) -> int:
    """The line, counted from 1, of the first text at or after index ``start``: jupytext strips blank lines."""
    while start < len(lines) - 1 and not lines[start].strip():
        start += 1
    return start + 1


def front(path: Path, shown: str | None = None) -> Lesson:
    """Read the front matter alone: what the lesson index needs, however unfinished the rest is."""
    return _opened(path, shown or path.as_posix())[0]


def _opened(path: Path, shown: str) -> tuple[Lesson, str]:
    """The lesson without cells, and the text below its front matter with all line numbers kept."""
    text = unicodedata.normalize("NFC", path.read_text(encoding="utf-8").replace("\r\n", "\n"))
    fences = list(FENCE.finditer(text))
    if not text.startswith("---") or len(fences) < 2:
        raise RefusedError([Problem(shown, 1, "front matter", "there is none.", "start the file with --- … ---.")])
    head, rest = text[: fences[1].end()], text[fences[1].end() :]
    lesson = _front_matter(path.stem, shown, head[fences[0].end() : fences[1].start()])
    return lesson, "\n" * head.count("\n") + rest


def _front_matter(name: str, shown: str, text: str) -> Lesson:
    problems: list[Problem] = []

    def wrong(what: str, fix: str) -> None:
        problems.append(Problem(shown, 1, "front matter", what, fix))

    try:
        front = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = Problem(shown, 1, "front matter", f"not YAML: {error}.", "quote texts that hold a colon.")
        raise RefusedError([problem]) from error
    front = front if isinstance(front, dict) else {}
    if not NAME.fullmatch(name):
        wrong(f"the file name {name!r} is not NN_topic.", "two digits, an underscore, lower-case words.")
    for field in ("title", "objective", "needs"):
        value = front.get(field)
        texts = value.values() if isinstance(value, dict) and set(value) == set(LANGUAGES) else [""]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            wrong(f"{field} needs a bn and an en text.", f"{field}: then 'bn: …' and 'en: …' indented below it.")
    if not isinstance(front.get("minutes"), int) or front["minutes"] <= 0:
        wrong("minutes is not a whole number.", "minutes: 40")
    if front.get("status") not in STATUSES:
        wrong(f"status {front.get('status')!r} is unknown.", "one of " + ", ".join(STATUSES) + ".")
    unknown = sorted(set(front) - {"title", "objective", "needs", "minutes", "status"})
    if unknown:
        wrong(f"unknown field {', '.join(map(str, unknown))}.", "delete it.")
    if problems:
        raise RefusedError(problems)
    return Lesson(name=name, path=shown, **front)


def _cells(shown: str, number: str, raw: list, starts: list[int]) -> list[Cell]:
    """Pair the text cells, give every cell its id, and complete nbgrader's metadata."""
    problems: list[Problem] = []
    cells: list[Cell] = []
    waiting: Cell | None = None  # a Bengali text whose English has not come yet

    def wrong(line: int, what: str, fix: str) -> None:
        problems.append(Problem(shown, line, f"cell {len(cells) + 1}", what, fix))

    def unpaired() -> None:
        fix = 'add +++ {"lang": "en"} and the English.'
        wrong(waiting.line, "this Bengali text has no English text after it.", fix)

    for item, line in zip(raw, starts, strict=True):
        metadata = dict(item.metadata)
        if item.cell_type == "code":
            if waiting:
                unpaired()
                waiting = None
            metadata = completed(number, metadata, lambda what, fix, line=line: wrong(line, what, fix))
            identity = metadata.get("nbgrader", {}).get("grade_id") or f"cell-{len(cells) + 1:02d}"
            cells.append(Cell(identity, line, code=item.source.rstrip(), metadata=metadata))
            continue
        language = metadata.pop("lang", None)
        free = tuple(metadata.pop("free", ()))
        if item.cell_type != "markdown" or language not in LANGUAGES:
            tags = '+++ {"lang": "bn"} or +++ {"lang": "en"}'
            wrong(line, "this text has no language tag.", f"put {tags} above it, also after a code cell.")
        elif language == "bn":
            if waiting:
                unpaired()
            identity = f"cell-{len(cells) + 1:02d}"
            waiting = Cell(identity, line, metadata=metadata, free=free)
            waiting.text["bn"], waiting.lines["bn"] = item.source, line
        elif waiting is None:
            fix = 'write the Bengali first, below +++ {"lang": "bn"}.'
            wrong(line, "this English text has no Bengali text before it.", fix)
        else:
            waiting.text["en"], waiting.lines["en"] = item.source, line
            cells.append(waiting)
            waiting = None
    if waiting:
        unpaired()
    seen: set[str] = set()
    for cell in cells:
        if cell.id in seen:
            fix = "give each its own number."
            problems.append(Problem(shown, cell.line, cell.id, "this grade_id stands twice.", fix))
        seen.add(cell.id)
    if problems:
        raise RefusedError(problems)
    return cells
