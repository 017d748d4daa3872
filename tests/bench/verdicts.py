"""Does ``compare()`` name the right winner, on an idle machine and beside a process that burns a core in bursts?

The same questions are put to two medians of ``torch.utils.benchmark.Timer``, taken one after the other, for scale.

What a second of measuring can find depends on the machine, and other guests of the same host are seen nowhere but in
the times themselves. The goals for small differences are promises for an idle machine. So each comparison is asked how
far the baseline's own runs spread, which says nothing about the candidate; beyond ``CALM`` the machine was not idle,
and one more is taken. What a host's other guests do comes and goes, so a case that met too few calm ones goes on after
all other benches. All of them are in the result, and no wrong winner is forgiven, however busy the machine was.
Beside the burst load every comparison, calm or not, meets all of it: the bursts are shorter than a comparison and burn
another core, which by itself leaves the spread where it was.
"""

from __future__ import annotations

import contextlib
import functools
import statistics

import torch
from torch.utils import benchmark

import labkit as lab
from tests.bench import Case, Outcome
from tests.bench._machine import Others, bursts

BUDGET_S = 1.0
CALM = 0.02  # IQR / median of the baseline's own runs; the smallest difference asked for at a margin is as large
MOST_TRIES = 6  # comparisons a visit for each calm one that is wanted


@functools.cache
def _matrices():
    torch.manual_seed(0)
    left = torch.randn(128, 128, device=lab.device()) / 128**0.5
    return left, torch.randn(128, 128, device=lab.device()), torch.empty(128, 128, device=lab.device())


def steady(products: int):
    """A function of ``products`` matrix products (128, 128) x (128, 128) into one preallocated output."""
    left, right, out = _matrices()

    def work():
        for _ in range(products):
            torch.mm(left, right, out=out)
        return out

    return work


def allocating():
    """A function that makes three new tensors of 2^20 floats."""
    return lambda x: torch.relu(x * 2 + 1)


@functools.cache
def _floats():
    return torch.randn(2**20, device=lab.device())


@contextlib.contextmanager
def threads(count: int):
    """Let torch use ``count`` threads. The steady work gets one: on two cores the burst load leaves a second thread no
    core of its own, and each burst then doubles the time of whatever runs in it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _comparison(make, args, options):
    """One comparison of the two functions that ``make()`` gives, called "a" and "b"."""
    a, b = make()
    return lab.compare({"a": a, "b": b}, *args, baseline="a", budget_s=BUDGET_S, **options)


def calm_ones(comparisons) -> list:
    return [comparison for comparison in comparisons if comparison.measurements["a"].spread <= CALM]


def _case(name: str, goal: str, count: int, loaded: bool, make, args, judge, one_thread=False, idle=False,
          **options) -> Case:
    """``count`` comparisons, or with ``idle`` as many as it takes until ``count`` of them are calm; those of earlier
    visits to the case stay with the later ones'."""
    comparisons = []

    def run(quick: bool) -> Outcome:
        wanted = max(2, count // 8) if quick else count
        with bursts(loaded), Others() as others, threads(1 if one_thread else torch.get_num_threads()):
            for _ in range(wanted * (MOST_TRIES if idle else 1)):
                comparisons.append(_comparison(make, args, options))
                if idle and len(calm_ones(comparisons)) == wanted:
                    break
        text, ok = judge(comparisons, wanted)
        too_early = idle and len(calm_ones(comparisons)) < wanted
        found = [comparison.verdict("b") for comparison in comparisons]
        counts = ", ".join(f"{kind} {found.count(kind)}" for kind in ("faster", "slower", "same", "undecided"))
        spread = statistics.median(comparison.measurements["a"].spread for comparison in comparisons)
        around = f"all {len(found)}: {counts}; {others.text}; times spread by {100 * spread:.0f}%"
        return Outcome(f"{text} ({around})", ok, too_early)

    return Case(f"{name}, {'loaded' if loaded else 'idle'}", goal, run)


def _wrong_at_most(allowed: int):
    def judge(comparisons, wanted):
        wrong = sum(comparison.verdict("b") in ("faster", "slower") for comparison in comparisons)
        return f"{wrong} wrong of {len(comparisons)}", wrong <= allowed

    return judge


def found_at_least(share: float):
    """Judge: of the first ``wanted`` calm comparisons the share that found the slower one, and never the other one."""

    def judge(comparisons, wanted):
        calm = calm_ones(comparisons)
        if len(calm) < wanted:
            return f"not idle: only {len(calm)} calm of {len(comparisons)}", False
        right = sum(comparison.verdict("b") == "slower" for comparison in calm)
        wrong = any(comparison.verdict("b") == "faster" for comparison in comparisons)
        return f"{right} found of {len(calm)} calm ones", right >= share * len(calm) and not wrong

    return judge


def _found_of(comparisons, wanted):
    return f"{sum(comparison.verdict('b') == 'slower' for comparison in comparisons)} found of {len(comparisons)}", None


def _timer_median(f, args) -> float:
    timer = benchmark.Timer("f(*args)", globals={"f": f, "args": args}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=0.5).median


def _timer_case(name: str, loaded: bool, count: int, make, args) -> Case:
    """Two medians of Timer, one after the other, 3 % apart: how often do equal functions get a winner?"""

    def run(quick: bool) -> Outcome:
        ratios = []
        with bursts(loaded):
            for _ in range(max(2, count // 8) if quick else count):
                first, second = (_timer_median(f, args) for f in make())
                ratios.append(first / second)
        wrong = sum(abs(r - 1) > 0.03 for r in ratios)
        return Outcome(f"{wrong} wrong of {len(ratios)}, ratios {min(ratios):.2f} to {max(ratios):.2f}", None)

    return Case(f"{name}, {'loaded' if loaded else 'idle'}", "for scale", run)


def cases() -> list[Case]:
    found = []
    for loaded in (False, True):
        found += [
            _case("steady, equal, margin 0.01", "0 wrong of 40", 40, loaded, lambda: (steady(100), steady(100)), (),
                  _wrong_at_most(0), one_thread=True, margin=0.01),
            _case("steady, 2% more work, margin 0.01", "at least 19 of 20 calm ones", 20, loaded,
                  lambda: (steady(100), steady(102)), (), found_at_least(0.95), one_thread=True,
                  idle=True, margin=0.01),
            _case("steady, 1% more work, margin 0", "at least 9 of 10 calm ones", 10, loaded,
                  lambda: (steady(100), steady(101)), (), found_at_least(0.9), one_thread=True,
                  idle=True, margin=0.0),
            _case("steady, all threads, 2% more work, margin 0.01", "for scale", 20, loaded,
                  lambda: (steady(100), steady(102)), (), _found_of, margin=0.01),
            _case("allocating, equal", "at most 1 wrong of 40", 40, loaded, lambda: (allocating(), allocating()),
                  (_floats(),), _wrong_at_most(1)),
            _timer_case("Timer, steady, equal", loaded, 12, lambda: (steady(100), steady(100)), ()),
            _timer_case("Timer, allocating, equal", loaded, 20, lambda: (allocating(), allocating()), (_floats(),)),
        ]
    return found
