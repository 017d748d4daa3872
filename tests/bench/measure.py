"""Does ``measure()`` agree with ``torch.utils.benchmark.Timer`` on functions of 10 us, 1 ms and 100 ms?

The two take turns, run by run, within one measurement.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time

import torch
from torch.utils import benchmark

import labkit as lab
from tests.bench import Case, Outcome
from tests.bench._machine import Others

TOLERANCE = 0.03


def repeated(target_s: float):
    """A function that takes about ``target_s``: in-place steps on a small tensor, so that nothing is allocated."""
    small = torch.zeros(256, device=lab.device())

    def work(steps: int = 1):
        for _ in range(steps):
            small.add_(1)
        return small

    steps = max(1, round(target_s / lab.measure(work, 100, budget_s=0.2).median_s * 100))
    return lambda: work(steps)


class TakingTurns:
    """A clock for ``measure()`` that gives Timer a turn each time it was read, and leaves that turn out.

    The speed of a shared machine changes from one second to the next, so two measurements of a second each, one after
    the other, differ by more than the tolerance even when both are right.
    """

    def __init__(self, work, number: int):
        self._timer = benchmark.Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads())
        self._work = work
        self._number, self._left_out_ns = number, 0
        self.readings_ns: list[int] = []
        self.turns_s: list[float] = []

    def __call__(self) -> int:
        read_ns = time.perf_counter_ns()
        self.readings_ns.append(read_ns - self._left_out_ns)
        self.turns_s.append(self._timer.timeit(self._number).median)
        for _ in range(max(self._number // 100, 2)):  # as Timer before its own: neither side times a cold start
            self._work()
        self._left_out_ns += time.perf_counter_ns() - read_ns
        return self.readings_ns[-1]

    def ratios(self, ours) -> list[float]:
        """Each run of the measurement ``ours`` against Timer's turns just before and just after it."""
        found, runs = [], iter(ours.times_s)
        wanted = next(runs, None)
        for i, (begin_ns, end_ns) in enumerate(itertools.pairwise(self.readings_ns)):
            if wanted is not None and math.isclose((end_ns - begin_ns) * 1e-9 / ours.calls, wanted, rel_tol=1e-6):
                found.append(wanted / math.sqrt(self.turns_s[i] * self.turns_s[i + 1]))
                wanted = next(runs, None)
        assert len(found) == len(ours.times_s), "a run of measure() was not found between two readings of its clock"
        return found


def ratios(target_s: float, rounds: int, budget_s: float) -> list[float]:
    """Time by ``measure()`` / time by Timer, run by run, for work of about ``target_s`` seconds."""
    work, found = repeated(target_s), []
    for _ in range(rounds):
        turns = TakingTurns(work, number=max(1, round(1e-3 / target_s)))
        found += turns.ratios(lab.measure(work, budget_s=budget_s, clock=turns))
    return found


def _case(label: str, target_s: float, rounds: int, budget_s: float) -> Case:
    def run(quick: bool) -> Outcome:
        with Others() as others:
            found = ratios(target_s, 2 if quick else rounds, budget_s)
        off = statistics.median(found) - 1
        return Outcome(f"{100 * off:+.1f}%, median of {len(found)} runs ({others.text})", abs(off) <= TOLERANCE)

    return Case(label, "within 3% of Timer", run)


def cases() -> list[Case]:
    return [_case("10 us", 10e-6, 9, 0.3), _case("1 ms", 1e-3, 9, 0.3), _case("100 ms", 0.1, 3, 3.0)]
