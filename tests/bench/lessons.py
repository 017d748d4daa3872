"""Seconds of every lesson, run from top to bottom by a kernel, against its budget: warm, one language.

A lesson that is over its budget the first time is run again: the first run may have found the compilers' caches cold.
"""

from __future__ import annotations

import functools
from pathlib import Path

from tests import gpu
from tests.bench import Case, Outcome
from tests.bench._machine import Others

BUDGETS_S = {"00": 20, "01": 45, "02": 60, "03": 75, "04": 60, "05": 75, "06": 75, "07": 60, "08": 75, "09": 60,
             "10": 60, "11": 75}  # fmt: skip
USUAL_S = 75  # for a lesson that is not listed
COURSE_S = 12 * 60
NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks/en"


def budget_s(path: Path) -> int:
    return BUDGETS_S.get(path.name[:2], USUAL_S)


@functools.cache
def _lesson(path: Path) -> tuple[float, str, str]:
    """Seconds, error, and who else was busy."""
    with Others() as others:
        done = gpu.run_lesson(path)
        if not done["error"] and done["seconds"] > budget_s(path):
            done = gpu.run_lesson(path)
    return done["seconds"], done["error"], others.text


def _case(path: Path) -> Case:
    limit_s = budget_s(path)

    def run(quick: bool) -> Outcome:
        seconds, error, others = _lesson(path)
        return Outcome(error or f"{seconds:.0f} s ({others})", not error and seconds <= limit_s)

    return Case(path.stem, f"at most {limit_s} s", run)


def _course(quick: bool) -> Outcome:
    taken = [_lesson(path) for path in _notebooks()]
    total_s = sum(seconds for seconds, _, _ in taken)
    return Outcome(f"{total_s:.0f} s, {len(taken)} lessons", total_s <= COURSE_S and not any(e for _, e, _ in taken))


def _notebooks() -> list[Path]:
    return sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def cases() -> list[Case]:
    every = [_case(path) for path in _notebooks()]
    return [*every, Case("the whole course in one language", f"at most {COURSE_S} s", _course)]
