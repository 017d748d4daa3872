"""Does ``measure()`` agree with ``torch.utils.benchmark.Timer`` on functions of 10 us, 1 ms and 100 ms?"""

from __future__ import annotations

import statistics

import torch
from torch.utils import benchmark

import labkit as lab
from tests.bench import Case, Outcome
from tests.bench._machine import Others

TOLERANCE = 0.03


def _repeated(target_s: float):
    """A function that takes about ``target_s``: in-place steps on a small tensor, so that nothing is allocated."""
    small = torch.zeros(256, device=lab.device())

    def work(steps: int = 1):
        for _ in range(steps):
            small.add_(1)
        return small

    steps = max(1, round(target_s / lab.measure(work, 100, budget_s=0.2).median_s * 100))
    return lambda: work(steps)


def _case(label: str, target_s: float, rounds: int, time_s: float) -> Case:
    def run(quick: bool) -> Outcome:
        work = _repeated(target_s)
        ours, theirs = [], []
        with Others() as others:
            for _ in range(3 if quick else rounds):
                ours.append(lab.measure(work, budget_s=time_s).median_s)
                timer = benchmark.Timer("work()", globals={"work": work}, num_threads=torch.get_num_threads())
                theirs.append(timer.blocked_autorange(min_run_time=time_s).median)
        off = statistics.median(ours) / statistics.median(theirs) - 1
        return Outcome(f"{100 * off:+.1f}% ({others.text})", abs(off) <= TOLERANCE)

    return Case(label, "within 3% of Timer", run)


def cases() -> list[Case]:
    return [_case("10 us", 10e-6, 9, 0.3), _case("1 ms", 1e-3, 9, 0.5), _case("100 ms", 0.1, 7, 1.5)]
