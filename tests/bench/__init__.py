"""What the project promises about speed, measured: ``python -m tests.bench`` (or ``make bench``).

A bench is a module in this folder with a function ``cases() -> list[Case]``; nothing is registered. A case is one line
of the table: what is measured, the goal, and a function that measures it and says whether the goal was met. Modules
whose names begin with an underscore are helpers; one at the end is no part of the bench's name (``import_``).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """What came out, in a few words, and whether it meets the goal (None: shown for scale, has no goal).

    ``too_early``: nothing could be judged yet, because the machine was not idle; the case wants to run again later.
    """

    text: str
    ok: bool | None
    too_early: bool = False


@dataclass(frozen=True)
class Case:
    """One promise. ``run(quick)`` measures it; with ``quick`` it may do fewer repetitions."""

    name: str
    goal: str
    run: Callable[[bool], Outcome]


def discover() -> dict[str, Callable[[], list[Case]]]:
    """Bench name -> its ``cases``, for every module of this folder that has them."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        if not info.name.startswith("_"):
            module = importlib.import_module(f"{__name__}.{info.name}")
            if hasattr(module, "cases"):
                found[info.name.rstrip("_")] = module.cases
    return found
