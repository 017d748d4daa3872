"""What is written from all sources together: the lesson index, README's lesson table, and a printable page a lesson."""

from __future__ import annotations

from pathlib import Path

import nbformat

from . import editions, sheets
from .editions import number
from .source import LANGUAGES, Lesson, RefusedError, front, read

START, END = "<!-- lessons:start -->", "<!-- lessons:end -->"
STATUS = {
    "bn": {"ready": "প্রস্তুত", "draft": "খসড়া", "planned": "আসছে"},
    "en": {"ready": "ready", "draft": "draft", "planned": "planned"},
}
PAGE = {
    "bn": (
        "# ল্যাবের তালিকা\n\nযে ল্যাব করতে চান, তার নামে চাপ দিন; নোটবুকটি খুলে যাবে। তারপর ওপর থেকে একটি একটি করে সেল চালান। "
        "প্রথমবার এলে তালিকার প্রথমটি দিয়ে শুরু করুন।",
        "| | ল্যাব | শেষে যা পারবেন | মিনিট | অবস্থা |",
    ),
    "en": (
        "# The labs\n\nClick on the name of a lab to open its notebook, then run it cell by cell from the top. "
        "If this is your first visit, begin with the first one.",
        "| | lab | what you can do afterwards | minutes | status |",
    ),
}
RULE = "|---|---|---|---|---|"


def all_lessons(root: Path) -> list[Lesson]:
    """The front matter of every source, in order of number, whatever was asked to be built."""
    paths = sorted((root / "notebooks/src").glob("[0-9]*.md"))
    return [front(path, path.relative_to(root).as_posix()) for path in paths]


def linked(lesson: Lesson, language: str, folder: str) -> str:
    """The lesson's title, a link to its edition below ``folder`` once there is one."""
    name = lesson.title[language]
    return name if lesson.status == "planned" else f"[{name}]({folder}{language}/{lesson.name}.ipynb)"


def page(lessons: list[Lesson], language: str) -> str:
    """One language's half of the index notebook."""
    intro, head = PAGE[language]
    rows = [
        f"| {number(lesson.number, language)} | {linked(lesson, language, '')} | {lesson.objective[language].strip()} "
        f"| {number(lesson.minutes, language)} | {STATUS[language][lesson.status]} |"
        for lesson in lessons
    ]
    return "\n".join([intro, "", head, RULE, *rows])


def table(lessons: list[Lesson], address: str) -> str:
    """README's table: both languages in one row, with Colab links."""
    rows = ["| | বাংলা | English | যা লাগবে / needs | মিনিট / minutes | অবস্থা / status |", RULE + "---|"]
    for lesson in lessons:
        names = []
        for language in LANGUAGES:
            name = linked(lesson, language, "notebooks/")
            if lesson.status != "planned":
                name += f" ([Colab]({editions.colab(address, language, lesson.name)}))"
            names.append(name)
        status = " / ".join(STATUS[language][lesson.status] for language in LANGUAGES)
        needs = "<br>".join(lesson.needs[language].strip() for language in LANGUAGES)
        rows.append(f"| {lesson.number} | {names[0]} | {names[1]} | {needs} | {lesson.minutes} | {status} |")
    return "\n".join(rows)


def pages(root: Path) -> dict[Path, str]:
    """Path -> text of the index notebook, the sheets, and README with its table (without markers it stays as it is)."""
    lessons = all_lessons(root)
    cells = [nbformat.v4.new_markdown_cell(page(lessons, language), id=language) for language in LANGUAGES]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=editions.KERNEL)
    found = {root / "notebooks/index.ipynb": editions.dumps(notebook), **sheets.pages(_readable(root, lessons), root)}
    readme = root / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    if START in text and END in text.split(START, 1)[1]:
        before, rest = text.split(START, 1)
        after = rest.split(END, 1)[1]
        rows = table(lessons, editions.repository(root))
        found[readme] = f"{before}{START}\n{rows}\n{END}{after}"
    return found


def _readable(root: Path, lessons: list[Lesson]) -> list[Lesson]:
    """The lessons whose sources can be read to the end; what is wrong with the others is told where they are built."""
    found = []
    for lesson in lessons:
        try:
            found.append(read(root / lesson.path, lesson.path))
        except RefusedError:
            continue
    return found


def out_of_date(found: dict[Path, str]) -> dict[Path, str]:
    """Those of ``pages()`` that differ from what is on disk."""
    return {path: text for path, text in found.items() if not path.exists() or path.read_text(encoding="utf-8") != text}


def write(root: Path) -> None:
    for path, text in out_of_date(pages(root)).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
