"""Take and hold times: ``measure()`` gives a ``Measurement``.

What ``measure()`` does not do: decide which of two functions is faster. Two measurements taken one after the other are
hit by different disturbances; ``compare()`` interleaves them.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from labkit import _callables, _statistics, _stopwatch
from labkit._leaves import described

MIN_RUNS = 10
FEWEST_RUNS = 3  # what a budget that is too short for MIN_RUNS still gets
SETTLE_SHARE = 0.2  # of the budget, spent before the spread is trusted


@dataclass(frozen=True, repr=False)
class Measurement:
    """Times of one function. Seconds everywhere; one run is ``calls`` calls in a row, and its time is per call."""

    name: str
    times_s: tuple[float, ...]  # (n,) wall time per call, one entry a run
    first_s: float  # the first call: lazy initialisation and compilation live here
    device: str
    threads: int
    calls: int
    cache: str
    stopped: str  # "settled", or "budget" when time ran out first
    inputs: tuple[dict, ...]
    utc: str
    device_times_s: tuple[float, ...] | None = None  # (n,) by CUDA events
    noted: tuple[str, ...] = ()  # how it came about: see `labkit._stopwatch.noted`

    @property
    def median_s(self) -> float:
        return _statistics.median_and_iqr(self.times_s)[0]

    @property
    def iqr_s(self) -> float:
        """Interquartile range: the middle half of the runs lies within this span."""
        return _statistics.median_and_iqr(self.times_s)[1]

    @property
    def n(self) -> int:
        return len(self.times_s)

    @property
    def device_median_s(self) -> float | None:
        """Median time on the GPU alone, by CUDA events; None elsewhere, and in a comparison. Far below ``median_s``
        means launch-bound: the GPU waits for the next kernel most of the time."""
        return _statistics.median_and_iqr(self.device_times_s)[0] if self.device_times_s else None

    @property
    def spread(self) -> float:
        """IQR / median."""
        median, iqr = _statistics.median_and_iqr(self.times_s)
        return iqr / median if median > 0 else 0.0

    @property
    def slowdown(self) -> float:
        """How much longer the last runs took than the first, as a ratio; 1 where that is not clear."""
        return _statistics.slowdown(self.times_s)

    @property
    def is_noisy(self) -> bool:
        return self.spread > _statistics.NOISY

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to doubt about this measurement, in the current language; empty when nothing."""
        from labkit._measurement_view import warnings

        return warnings(self)

    def card(self) -> dict:
        """Provenance as plain JSON values: what was timed, where, with what, when, and the result."""
        from labkit import hardware

        return {
            "format": 1, "kind": "measurement", "name": self.name, "utc": self.utc,
            "result": {"median_s": self.median_s, "iqr_s": self.iqr_s, "n": self.n, "calls": self.calls,
                       "first_s": self.first_s, "device_median_s": self.device_median_s, "stopped": self.stopped,
                       "is_noisy": self.is_noisy, "noted": list(self.noted)},
            "device": self.device, "threads": self.threads, "cache": self.cache,
            "inputs": [dict(item) for item in self.inputs], "machine": hardware.provenance(),
        }

    def __str__(self) -> str:
        from labkit._measurement_view import as_text

        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from labkit._measurement_view import as_html

        return as_html(self)


def measure(fn, *args, name=None, budget_s=1.0, cache="warm", clock=None) -> Measurement:
    """Time ``fn(*args)`` honestly.

    The first call is kept apart as ``first_s``. Then calls warm up until two blocks agree, and runs repeat until there
    are at least ten and their median is known to half a percent, or ``budget_s`` seconds are over. Calls shorter than a
    millisecond are timed in blocks. On CUDA every run is made twice: for the synchronised wall time, and for the time
    on the GPU alone, between two events and without waiting for launches.

    ``cache="cold"`` empties the last-level cache before every run, by writing twice its size. ``clock`` returns
    nanoseconds, like ``time.perf_counter_ns``.

    Raises NotTimeableError (no function, a generator, a coroutine), CallFailedError (the function raised; the original
    is its cause), BudgetTooSmallError, ValueError for another ``cache``. Warnings are texts in ``.warnings`` and in
    the display.
    """
    _callables.require_callable(fn, "lab.measure")
    _callables.require_repeatable(args, "lab.measure")
    _callables.require_budget(budget_s)
    _callables.require_cache(cache)
    name = name or _callables.name_of(fn)
    with _stopwatch.undisturbed(clock) as disturbed:
        watch = _stopwatch.Stopwatch(fn, args, name=name, tool="lab.measure", cache=cache, clock=clock,
                                     on_device=True)
        call_s, calls = watch.warm_up(budget_s)
        if call_s > budget_s:
            raise _callables.budget_too_small(budget_s, 1.2 * MIN_RUNS * call_s, call_s)
        runs, stopped = _repeat(watch, calls, budget_s)
    return measurement(watch, runs, calls=calls, cache=cache, stopped=stopped, disturbed=disturbed)


def measurement(watch, runs, *, calls: int, cache: str, stopped: str, disturbed: tuple[str, ...] = ()) -> Measurement:
    """Make a Measurement of a stopwatch's ``runs``: pairs of wall and device seconds per call."""
    device_times = tuple(device_s for _, device_s in runs if device_s is not None)
    return Measurement(
        name=watch.name, times_s=tuple(wall_s for wall_s, _ in runs), first_s=watch.first_s, device=watch.device,
        threads=_stopwatch.threads(), calls=calls, cache=cache, stopped=stopped,
        inputs=tuple(described(watch.args)), device_times_s=device_times or None,
        utc=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        noted=_stopwatch.noted(watch, disturbed))


def _repeat(watch, calls: int, budget_s: float) -> tuple[list, str]:
    """Runs until the spread is small enough or the budget ends; says which."""
    runs, next_check, begin_s = [], MIN_RUNS, watch.clock.now_s()
    while True:
        runs.append(watch.block(calls))
        _stopwatch.tidy()
        elapsed_s = watch.clock.now_s() - begin_s
        if len(runs) >= next_check and elapsed_s >= SETTLE_SHARE * budget_s:
            if _statistics.is_settled([wall_s for wall_s, _ in runs]):
                return runs, "settled"
            next_check = int(1.3 * len(runs))  # the check costs more than a short run
        if elapsed_s >= budget_s and len(runs) >= FEWEST_RUNS:
            return runs, "budget"


