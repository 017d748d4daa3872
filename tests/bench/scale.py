"""Lesson 10: do the statements that it prints hold for seeds that were not used while it was written?

The lesson's own cells are run as they stand, with another ``SEED``: every line that they print as "…: True" counts, and
none may say False. Cells that only time something, show a lab or judge an exercise are left out.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from tests.bench import Case, Outcome

FRESH = (8111, 8222, 8333)
LESSON = Path(__file__).resolve().parents[2] / "notebooks" / "src" / "10_scale_and_finetune.md"
CELL = re.compile(r"^```\{code-cell\}\n(?:---\n.*?\n---\n|(?::[^\n]*\n)*\n)?(.*?)^```", re.MULTILINE | re.DOTALL)
LEFT_OUT = re.compile(r"lab\.compare|lab\.claim|lab\.widgets|lab\.check|BEGIN SOLUTION|lab\.predict\([^)]*,")
SAID = re.compile(r"^(.+): (True|False)$", re.MULTILINE)


def cells() -> list[str]:
    """The lesson's code cells that say something about accuracy, in order."""
    found = CELL.findall(LESSON.read_text(encoding="utf-8"))
    return [cell for cell in found if not LEFT_OUT.search(cell)]


def statements(seed: int) -> dict[str, bool]:
    """What the lesson says with ``SEED = seed``: statement -> whether it holds."""
    import labkit as lab

    names, printed = {"lab": lab, "display": lambda _shown: None}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        for cell in cells():
            exec(compile(re.sub(r"^SEED = 0$", f"SEED = {seed}", cell, flags=re.MULTILINE), "lesson 10", "exec"), names)
    assert names["SEED"] == seed
    return {said: word == "True" for said, word in SAID.findall(printed.getvalue())}


def _fresh(seed: int):
    def run(quick: bool) -> Outcome:
        found = statements(seed)
        broken = [said for said, holds in found.items() if not holds]
        text = f"{len(found) - len(broken)} of {len(found)} hold" + "".join(f"; not: {said}" for said in broken)
        return Outcome(text, len(found) >= 10 and not broken)

    return run


def cases() -> list[Case]:
    return [Case(f"seed {seed}", "every statement of lesson 10 holds", _fresh(seed)) for seed in FRESH]
