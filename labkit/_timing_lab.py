"""TimingLab: two equal functions, timed once each and timed honestly, while other programs disturb on purpose."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from labkit import _enough_time, comparison, hardware, plots
from labkit._background_load import background_load
from labkit._lab import Choice, Lab, Number, Question, Table, step, with_guess
from labkit._verdict_view import label
from labkit.language import t
from labkit.units import ratio, seconds, significant

WORK = ("product", "relu", "sort")
LOAD = ("none", "one", "many")


@dataclass(frozen=True)
class Timing:
    """Two equal functions A and B: ``singles`` are pairs of seconds, one naive run each; ``honest`` compares them."""

    work: str
    load: str
    singles: tuple[tuple[float, float], ...]
    honest: comparison.Comparison

    @property
    def naive_ratios(self) -> tuple[float, ...]:
        """Time of A / time of B, a number a trial; they are equal, so every one should be 1."""
        return tuple(a / b for a, b in self.singles)

    @property
    def worst(self) -> float:
        """The largest "speed-up" that a naive trial showed, whichever of the two it favoured."""
        return max(max(r, 1 / r) for r in self.naive_ratios)

    @property
    def false_winners(self) -> int:
        """Naive trials that differ by more than the comparison's margin."""
        return sum(max(r, 1 / r) > 1 + self.honest.margin for r in self.naive_ratios)

    def card(self) -> dict:
        return {"format": 1, "kind": "timing lab", "work": self.work, "load": self.load,
                "singles_s": [list(pair) for pair in self.singles], "honest": self.honest.card()}  # fmt: skip


class TimingLab(Lab):
    """The same function under two names: how often does a single run name a winner, and does ``compare()``?"""

    key = "01-timing"

    def title(self) -> str:
        return t("TimingLab: two equal functions, and who “wins”")

    def about(self) -> str:
        return t("A and B are the same function. Each trial times both once, as one does with a stopwatch; then "
                 "lab.compare measures them. The other programs are really started, on purpose.")  # fmt: skip

    def controls(self):
        work = {"product": t("matrix product 256 × 256"), "relu": t("ReLU of 262,144 numbers"),
                "sort": t("sort 20,000 numbers")}  # fmt: skip
        load = {"none": t("none"), "one": t("one"), "many": t("two for every core")}
        return [
            Choice("work", t("Work"), WORK, show=work.get),
            Choice("load", t("Other programs at the same time"), LOAD, default="one", show=load.get),
            Number("trials", t("Single trials"), 20, 3, 200),
            Number("budget_s", t("Time for lab.compare (seconds)"), 1.5, 0.2, 20.0),
        ]

    def question(self) -> Question:
        return Question(t("Timed once each, how many times as fast will one of the two seem in the worst trial?"), "x")

    @staticmethod
    def measure(*, work: str, load: str, trials: int, budget_s: float) -> Timing:
        return time_both(job(work), work=work, load=load, trials=trials, budget_s=budget_s)

    def measured(self, value: Timing) -> float:
        return value.worst

    def table(self, value: Timing) -> Table:
        found, honest = value.naive_ratios, value.honest.ratio("B")
        rows = [
            [t("single runs, {count} trials", count=len(found)), ratio(statistics.median(found)),
             f"{ratio(min(found))} – {ratio(max(found))}",
             t("a winner in {count} of {trials} trials", count=value.false_winners, trials=len(found))],
            ["lab.compare", ratio(honest.value), f"{ratio(honest.low)} – {ratio(honest.high)}",
             label(value.honest.verdict("B"))],
        ]  # fmt: skip
        return Table([t("way of measuring"), t("time of A / time of B"), t("from – to"), t("what it says")], rows)

    def figure(self, value: Timing, guess: float | None):
        single = {t("trial {number}", number=k): r for k, r in enumerate(value.naive_ratios[:12], 1)}
        rows = {**single, "lab.compare": value.honest.ratio("B")}
        figure = plots.intervals(rows, xlabel=lambda: t("time of A / time of B (they are equal: 1)"), reference=1.0,
                                 margin=value.honest.margin)  # fmt: skip
        return with_guess(figure, x=guess)

    def verdict(self, value: Timing) -> str:
        said = label(value.honest.verdict("B"))
        return t("A and B are equal, yet single runs named a winner in {count} of {trials} trials, in the worst one "
                 "{worst} times as fast. lab.compare says: {verdict}.", count=value.false_winners,
                 trials=len(value.singles), worst=ratio(value.worst), verdict=said)  # fmt: skip

    def why(self, value: Timing) -> list[str]:
        every = sorted(time_s for pair in value.singles for time_s in pair)
        middle = statistics.median(every)
        text = t("A single run took from {low} to {high}, the slowest {percent}% longer than the median: other "
                 "programs, the first call and the clock of the processor decide, not your code. In lab.compare both "
                 "take turns, so a disturbance hits both alike, and the interval says how sure the answer is.",
                 low=seconds(every[0]), high=seconds(every[-1]),
                 percent=significant(100 * (every[-1] / middle - 1), 2))  # fmt: skip
        if value.load == "none":
            return [text]
        return [text, t("The disturbance was made on purpose. Other programs that kept the processor busy: {count}.",
                        count=programs(value.load))]  # fmt: skip


def programs(load: str) -> int:
    """How many other programs a choice starts."""
    return {"none": 0, "one": 1, "many": 2 * (os.cpu_count() or 1)}[load]


def job(work: str) -> Callable:
    """The function to time; it allocates nothing, so that two of them can be equal."""
    import torch

    x = torch.rand(256, 256, device=hardware.device())
    if work == "product":
        out = torch.empty_like(x)
        return lambda: torch.mm(x, x, out=out)
    if work == "relu":
        x = torch.rand(2**18, device=hardware.device()) - 0.5
        out = torch.empty_like(x)
        return lambda: torch.clamp_min(x, 0.0, out=out)
    numbers = torch.rand(20_000).tolist()
    return lambda: len(sorted(numbers))


def time_both(run: Callable, *, work: str, load: str, trials: int, budget_s: float,
              clock=time.perf_counter) -> Timing:  # fmt: skip
    """Time ``run`` as A and as B, naively ``trials`` times and then by ``compare``, beside other programs."""
    with background_load(for_s=20.0 + 4 * budget_s, programs=programs(load)):
        singles = []
        for trial in range(trials):
            step(t("single runs, trial {number}", number=trial + 1), 0.3 * trial / trials)
            # As one does it without knowing better: one run, no warm-up, and no waiting for an asynchronous device.
            start = clock()
            run()
            middle = clock()
            run()
            singles.append((max(middle - start, 1e-9), max(clock() - middle, 1e-9)))
        first = singles[0]
        step(t("first trial: A {a}, B {b}. Now lab.compare …", a=seconds(first[0]), b=seconds(first[1])), 0.4)
        honest = _enough_time.compare({"A": run, "B": lambda: run()}, baseline="A", budget_s=budget_s)
    return Timing(work, load, tuple(singles), honest)
