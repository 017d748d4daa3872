"""Which lessons run here fully, smaller, or not yet: found from the lessons themselves, registered nowhere.

``labkit/lessons/lNN.py`` may say what its lesson asks of a machine, as two plain tuples that are read, not run::

    NEEDS = ("compiler", "mxnet")        # without it, a part of the lesson does not run
    SMALLER_WITHOUT = ("gpu", "triton")  # without it, everything runs, but smaller or in another way

A name is a row of the report (compiler, triton, compile, gpu, bf16, ranks, mxnet) or a Python module to be installed.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from labkit import _probes, _repairs
from labkit.language import current_language, t

PACKAGE = Path(__file__).parent
FULLY, SMALLER, NEEDS = "fully", "smaller", "needs"


@dataclass(frozen=True)
class Readiness:
    """One lesson on this machine; ``repairs`` are the commands that make it run fully, where there are any."""

    number: str
    title: str
    state: str
    text: str
    repairs: tuple[str, ...] = ()


def readiness(rows: dict, *, package: Path = PACKAGE) -> list[Readiness]:
    """One Readiness a lesson, in order. ``rows`` maps a key to a row with ``state``, ``label`` and ``repair``."""
    modules = {path.stem[1:]: path for path in (package / "lessons").glob("l[0-9][0-9].py")}
    sources = {path.name[:2]: path for path in (package.parent / "notebooks" / "src").glob("[0-9][0-9]_*.md")}
    return [_one(number, modules.get(number), sources.get(number), rows) for number in sorted({*modules, *sources})]


def _one(number: str, module: Path | None, source: Path | None, rows: dict) -> Readiness:
    try:
        asks = _declared(module) if module else {}
        title = _title(module, source)
        lacks = [_lack(name, rows) for name in asks.get("NEEDS", ())]
        wants = [_lack(name, rows) for name in asks.get("SMALLER_WITHOUT", ())]
    except (OSError, SyntaxError, ValueError) as error:
        text = t("its file cannot be read ({error})", error=type(error).__name__)
        return Readiness(number, "", NEEDS, text)
    lacks, wants = [lack for lack in lacks if lack], [lack for lack in wants if lack]
    if not lacks and not wants:
        return Readiness(number, title, FULLY, t("runs fully"))
    names = ", ".join(label for label, _repair in lacks or wants)
    repairs = tuple(dict.fromkeys(repair for _label, repair in [*lacks, *wants] if repair))
    if lacks:
        return Readiness(number, title, NEEDS, t("partly: lacks {names}", names=names), repairs)
    return Readiness(number, title, SMALLER, t("runs, smaller or otherwise: without {names}", names=names), repairs)


def _declared(module: Path) -> dict[str, tuple[str, ...]]:
    """NEEDS and SMALLER_WITHOUT of a lesson's file, without running it."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return {
        target.id: tuple(ast.literal_eval(node.value))
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in ("NEEDS", "SMALLER_WITHOUT")
    }


def _lack(name: str, rows: dict) -> tuple[str, str] | None:
    """(what is missing, how to get it), or None when it is there."""
    if name in rows:
        return None if rows[name].state == "good" else (rows[name].label, rows[name].repair)
    return None if _probes.installed(name) else (name, _repairs.package(name))


def _title(module: Path | None, source: Path | None) -> str:
    """From the source's front matter in a checkout; else from the lesson file's docstring, "Checks of lesson 03, …"."""
    if source:
        front = source.read_text(encoding="utf-8").split("\n---", 1)[0]
        found = re.search(rf"^title:\n(?:  .*\n)*?  {current_language()}: *(.+)$", front, re.MULTILINE)
        return found.group(1).strip().strip("\"'") if found else source.stem[3:].replace("_", " ")
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    found = re.search(r"lesson \d\d, ([^.:;]+)", docstring)
    return found.group(1).strip() if found else ""
