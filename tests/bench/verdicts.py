"""Does ``compare()`` name the right winner, on an idle machine and beside a process that burns a core in bursts?

The same questions are put to two medians of ``torch.utils.benchmark.Timer``, taken one after the other, for scale.
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


def _comparisons(count: int, make, args=(), **options) -> list:
    """``count`` separate comparisons; ``make()`` gives the two functions, called "a" and "b"."""
    found = []
    for _ in range(count):
        a, b = make()
        found.append(lab.compare({"a": a, "b": b}, *args, baseline="a", budget_s=BUDGET_S, **options))
    return found


def _case(name: str, goal: str, count: int, loaded: bool, make, args, judge, one_thread=False, **options) -> Case:
    def run(quick: bool) -> Outcome:
        with bursts(loaded), Others() as others, threads(1 if one_thread else torch.get_num_threads()):
            comparisons = _comparisons(max(2, count // 8) if quick else count, make, args, **options)
        found = [comparison.verdict("b") for comparison in comparisons]
        text, ok = judge(found)
        counts = ", ".join(f"{kind} {found.count(kind)}" for kind in ("faster", "slower", "same", "undecided"))
        # What other guests of the same host do is not in ``others``, but it is in how far one function's times spread.
        spread = statistics.median(comparison.measurements["a"].spread for comparison in comparisons)
        return Outcome(f"{text} ({counts}; {others.text}; times spread by {100 * spread:.0f}%)", ok)

    return Case(f"{name}, {'loaded' if loaded else 'idle'}", goal, run)


def _wrong_at_most(allowed: int):
    def judge(found):
        wrong = found.count("faster") + found.count("slower")
        return f"{wrong} wrong of {len(found)}", wrong <= allowed

    return judge


def _found_at_least(wanted: float):
    def judge(found):
        right = found.count("slower")
        return f"{right} found of {len(found)}", right >= wanted * len(found)

    return judge


def _found_of(found):
    return f"{found.count('slower')} found of {len(found)}", None


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
            _case("steady, 2% more work, margin 0.01", "at least 19 of 20", 20, loaded,
                  lambda: (steady(100), steady(102)), (), _found_at_least(0.95), one_thread=True, margin=0.01),
            _case("steady, 1% more work, margin 0", "at least 9 of 10", 10, loaded,
                  lambda: (steady(100), steady(101)), (), _found_at_least(0.9), one_thread=True, margin=0.0),
            _case("steady, all threads, 2% more work, margin 0.01", "for scale", 20, loaded,
                  lambda: (steady(100), steady(102)), (), _found_of, margin=0.01),
            _case("allocating, equal", "at most 1 wrong of 40", 40, loaded, lambda: (allocating(), allocating()),
                  (_floats(),), _wrong_at_most(1)),
            _timer_case("Timer, steady, equal", loaded, 12, lambda: (steady(100), steady(100)), ()),
            _timer_case("Timer, allocating, equal", loaded, 20, lambda: (allocating(), allocating()), (_floats(),)),
        ]
    return found
