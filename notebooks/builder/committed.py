"""Whether the committed editions, the index and README's table are what the sources say."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat

from . import editions, execute, index
from .source import Lesson, Problem, RefusedError

FIX = "run: python notebooks/build.py {number}"


def differences(root: Path, found: list[Lesson], languages: list[str], whole: bool) -> list[Problem]:
    """What --check reports for the lessons ``found``; ``whole``: of every lesson, so that the index is held too."""
    problems = []
    for lesson in found:
        for language in languages if lesson.status != "planned" else ():
            path = root / "notebooks" / language / f"{lesson.name}.ipynb"
            wanted = editions.edition(lesson, language, editions.repository(root))
            problems += _edition(path, path.relative_to(root).as_posix(), wanted, FIX.format(number=lesson.number))
    if whole:
        built = {lesson.name for lesson in found if lesson.status != "planned"}
        for language in languages:
            for path in sorted((root / "notebooks" / language).glob("*.ipynb")):
                if path.stem not in built:
                    shown = path.relative_to(root).as_posix()
                    problems.append(Problem(shown, 0, "notebook", "has no source.", "delete it, or write its source."))
        wanted_pages = index.pages(root)
        for path in index.out_of_date(wanted_pages):
            shown = path.relative_to(root).as_posix()
            problems.append(Problem(shown, 0, "lesson table", "out of date.", "run: python notebooks/build.py --index"))
        for path in sorted(set((root / "notebooks/sheets").glob("*/*.html")) - set(wanted_pages)):
            problems.append(Problem(path.relative_to(root).as_posix(), 0, "sheet", "has no source.", "delete it."))
    return problems


def retold(root: Path, lesson: Lesson, language: str) -> str:
    """Write the committed edition anew with the source's text and its own outputs; returns a line about it.

    Raises RefusedError when any code cell differs from the source's: then the outputs are another program's. The
    generated set-up cell, which prints nothing, may differ.
    """
    path = root / "notebooks" / language / f"{lesson.name}.ipynb"
    shown = path.relative_to(root).as_posix()
    if not path.exists():
        raise RefusedError([Problem(shown, 0, "notebook", "not built.", FIX.format(number=lesson.number))])
    notebook = editions.edition(lesson, language, editions.repository(root))
    before = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    was, now = ([cell for cell in edition.cells if cell.cell_type == "code"] for edition in (before, notebook))
    differ = [old for old, new in zip(was, now, strict=False) if _shared(old) != _shared(new) and not _is_silent(old)]
    if differ or len(was) != len(now):
        raise RefusedError([Problem(shown, 0, "code", "differs from its source.", FIX.format(number=lesson.number))])
    for old, new in zip(was, now, strict=True):
        new.outputs, new.execution_count = old.outputs, old.execution_count
    if "widgets" in before.metadata:
        notebook.metadata["widgets"] = before.metadata["widgets"]
    path.write_text(editions.dumps(notebook), encoding="utf-8", newline="\n")
    return f"{shown}  text only"


def _edition(path: Path, shown: str, wanted: nbformat.NotebookNode, fix: str) -> list[Problem]:
    """How one committed edition differs from ``wanted``, outputs and execution counts aside."""
    if not path.exists():
        return [Problem(shown, 0, "notebook", "not built.", fix)]
    text = path.read_text(encoding="utf-8")
    try:
        nbformat.validate(json.loads(text))
        committed = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    except (ValueError, nbformat.ValidationError) as error:
        return [Problem(shown, 0, "notebook", f"not a notebook: {error}", fix)]
    problems = []
    for number, cell in enumerate(committed.cells, 1):
        if cell.cell_type != "code":
            continue
        failed = any(output.output_type == "error" for output in cell.outputs)
        if cell.execution_count is None:
            problems.append(Problem(shown, 0, f"cell {number} ({cell.id})", "was never executed.", fix))
        elif failed and "raises-exception" not in cell.metadata.get("tags", []):
            problems.append(Problem(shown, 0, f"cell {number} ({cell.id})", "shows an error.", fix))
    problems += execute.inspect(committed, shown, len(text.encode()))
    for number, (was, now) in enumerate(zip(committed.cells, wanted.cells, strict=False), 1):
        if _shared(was) != _shared(now):
            problems.append(Problem(shown, 0, f"cell {number} ({was.get('id')})", "differs from its source.", fix))
            break
    else:
        if len(committed.cells) != len(wanted.cells):
            problems.append(Problem(shown, 0, "notebook", "has cells that its source has not, or lacks some.", fix))
    if _metadata(committed) != _metadata(wanted):
        problems.append(Problem(shown, 0, "notebook", "its metadata differ from what would be written.", fix))
    return problems


def _is_silent(cell) -> bool:
    """Whether it is the set-up cell, and has no output that another text could contradict."""
    return cell.get("id") == "setup" and not cell.outputs


def _shared(cell) -> tuple:
    return cell.cell_type, cell.get("id"), cell.source, cell.metadata


def _metadata(notebook) -> dict:
    """All but the widgets' state, which is an output."""
    rest = {key: value for key, value in notebook.metadata.items() if key != "widgets"}
    return rest | {"nbformat": (notebook.nbformat, notebook.nbformat_minor)}
