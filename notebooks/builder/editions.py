"""Make the two editions of a Lesson as notebooks, without running them."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path

import nbformat

from .grading import stubbed
from .source import Cell, Lesson

OTHER = {"bn": "en", "en": "bn"}
BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
HEADER = {
    "bn": "# ল্যাব {number}: {title}\n\n{objective}\n\n- **সময়:** {minutes} মিনিট\n- **যা লাগবে:** {needs}\n"
    "- **In English:** [{other}](../en/{name}.ipynb) · [Colab]({colab_other})\n\n[![Colab-এ খুলুন]({badge})]({colab})",
    "en": "# Lab {number}: {title}\n\n{objective}\n\n- **Time:** {minutes} minutes\n- **You need:** {needs}\n"
    "- **বাংলায়:** [{other}](../bn/{name}.ipynb) · [Colab]({colab_other})\n\n[![Open in Colab]({badge})]({colab})",
}
# No Bengali, nothing printed, nothing that differs between machines.  torch, numpy and ipywidgets are pinned to
# what is there already, because Colab breaks when one of them is replaced under a running kernel.
SETUP = '''\
# Set-up: installs labkit where it is missing, then chooses the language. Run it again whenever you like.
import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys

if importlib.util.find_spec("labkit") is None:
    clone = pathlib.Path("../..").resolve()
    labkit = str(clone) if (clone / "labkit").is_dir() else "labkit @ git+{repository}"
    have = [name for name in ("torch", "numpy", "ipywidgets") if importlib.util.find_spec(name)]
    keep = [f"{{name}}=={{importlib.metadata.version(name)}}" for name in have]
    done = subprocess.run([sys.executable, "-m", "pip", "install", labkit, *keep], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("labkit was not installed. Is the network up? Run this cell again.\\n" + done.stderr[-1500:])
    importlib.invalidate_caches()
import labkit as lab

lab.use_language("{language}")'''
KERNEL = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "file_extension": ".py", "mimetype": "text/x-python", "name": "python", "pygments_lexer": "ipython3",
    },
}


def repository(root: Path) -> str:
    """The address in ``[project.urls] Repository``: a fork changes that one line."""
    with (root / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]["urls"]["Repository"].rstrip("/")


def set_up(address: str, language: str) -> str:
    """The generated first code cell of an edition."""
    return SETUP.format(repository=address, language=language)


def colab(address: str, language: str, name: str) -> str:
    project = address.removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{project}/blob/main/notebooks/{language}/{name}.ipynb"


def edition(lesson: Lesson, language: str, address: str, *, solved: bool = False) -> nbformat.NotebookNode:
    """One edition, unexecuted. ``solved`` keeps solutions, hidden tests and their markers, as nbgrader wants them."""
    opening = 1 if lesson.cells and lesson.cells[0].text else 0
    cells = [_text("header", header(lesson, language, address))]
    cells += [_cell(cell, language, solved) for cell in lesson.cells[:opening]]
    cells.append(_code("setup", set_up(address, language), {}))
    cells += [_cell(cell, language, solved) for cell in lesson.cells[opening:]]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=copy.deepcopy(KERNEL))
    notebook.nbformat_minor = 5
    nbformat.validate(notebook)
    return notebook


def header(lesson: Lesson, language: str, address: str) -> str:
    other = OTHER[language]
    return HEADER[language].format(
        number=number(lesson.number, language), title=lesson.title[language],
        objective=lesson.objective[language].strip(), minutes=number(lesson.minutes, language),
        needs=lesson.needs[language].strip(), other=lesson.title[other], name=lesson.name, badge=BADGE,
        colab=colab(address, language, lesson.name), colab_other=colab(address, other, lesson.name),
    )


def number(value: str | int, language: str) -> str:
    """A lesson's number or minutes in the edition's digits, without leading zeros."""
    digits = str(int(value))
    return digits.translate(str.maketrans("0123456789", "০১২৩৪৫৬৭৮৯")) if language == "bn" else digits


def dumps(notebook: nbformat.NotebookNode) -> str:
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n"


def _cell(cell: Cell, language: str, solved: bool) -> nbformat.NotebookNode:
    if cell.code is None:
        return _text(cell.id, cell.text[language], cell.metadata)
    return _code(cell.id, cell.code if solved else stubbed(cell.code), cell.metadata)


def _text(identity: str, source: str, metadata: dict | None = None) -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell(source, id=identity, metadata=copy.deepcopy(metadata or {}))


def _code(identity: str, source: str, metadata: dict) -> nbformat.NotebookNode:
    return nbformat.v4.new_code_cell(source, id=identity, metadata=copy.deepcopy(metadata))
