"""``compare()`` for callers that choose the budget themselves, so that nobody is there to choose a longer one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from labkit import comparison, hardware
from labkit._callables import BudgetTooSmallError

CALLS = 8  # calls of each candidate that a budget must hold, or there is nothing to say
TRIES = 3


def compare(candidates, *args, budget_s: float, **options) -> comparison.Comparison:
    """``lab.compare``, asked again with the time that it says it needs.

    A machine that stands still during a warm-up makes a call look many times as long as it is. Raises what
    ``lab.compare`` raises, and BudgetTooSmallError when ``TRIES`` budgets in a row were too small.
    """
    for _ in range(TRIES - 1):
        try:
            return comparison.compare(candidates, *args, budget_s=budget_s, **options)
        except BudgetTooSmallError as error:
            budget_s = error.needed_s
    return comparison.compare(candidates, *args, budget_s=budget_s, **options)


def budget(steps: Mapping[str, Callable], least_s: float, *, calls: int = CALLS) -> float:
    """Seconds for ``compare``: above ``least_s`` where the machine is slow or busy, for a lesson must go on."""
    return max(least_s, calls * sum(timed(step) for step in steps.values()))


def timed(call: Callable) -> float:
    """Seconds of one call, with all work on the device done."""
    begin = time.perf_counter()
    call()
    hardware.sync()
    return time.perf_counter() - begin
