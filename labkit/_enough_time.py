"""``compare()`` for callers that choose the budget themselves, so that nobody is there to choose a longer one."""

from __future__ import annotations

from labkit import comparison
from labkit._callables import BudgetTooSmallError

TRIES = 3


def compare(candidates, *args, budget_s: float, **options) -> comparison.Comparison:
    """``lab.compare``, asked again with the time that it says it needs.

    A machine that stands still during a warm-up makes a call look many times as long as it is. Raises what
    ``lab.compare`` raises, and BudgetTooSmallError when ``TRIES`` budgets in a row were too small.
    """
    for left in reversed(range(TRIES)):
        try:
            return comparison.compare(candidates, *args, budget_s=budget_s, **options)
        except BudgetTooSmallError as error:
            if not left:
                raise
            budget_s = error.needed_s
    raise AssertionError("unreachable")
