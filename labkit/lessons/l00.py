"""Checks of lesson 00, the start page."""

from __future__ import annotations

import math

from labkit.exercises import exercise
from labkit.language import t

NEEDS = ()
SMALLER_WITHOUT = ()
VERDICTS = ("faster", "slower", "same", "undecided")


@exercise("00-1", points=2)
def speed_up(task):
    """``speed_up(before_s, after_s)`` -> how many times as fast."""
    for _ in range(4):
        before_s, after_s = task.rng.uniform(5, 9), task.rng.uniform(1, 4)
        got, right = task.number(before_s, after_s), before_s / after_s
        if not _near(got, right):
            task.expect(not _near(got, 1 / right), t(
                "Upside down: the time before divided by the time after, so that above 1 means faster."))
            task.expect(not _near(got, before_s - after_s), t(
                "Those are the seconds saved. How many *times* as fast is a division."))
            task.expect(not _near(got, right - 1), t("That is how much faster. Twice as fast is 2, not 1."))
            task.fail(t("Divide the time before by the time after."))


@exercise("00-2", points=4)
def verdict(task):
    """``verdict(low, high, margin)`` -> one of the four verdicts."""
    with task.part(1, t("clear winners")):
        for _ in range(3):
            margin = task.rng.uniform(0.01, 0.1)
            low = 1 + margin + task.rng.uniform(0.01, 0.5)
            _expect(task, "faster", low, low + task.rng.uniform(0.01, 0.5), margin)
            high = 1 / (1 + margin) - task.rng.uniform(0.01, 0.3)
            _expect(task, "slower", high - task.rng.uniform(0.01, 0.3), high, margin)
    with task.part(1, t("no difference worth mentioning")):
        for _ in range(3):
            margin = task.rng.uniform(0.02, 0.1)
            _expect(task, "same", 1 - task.rng.uniform(0, 0.9) * margin / (1 + margin),
                    1 + task.rng.uniform(0, 0.9) * margin, margin)
    with task.part(2, t("not enough evidence")):
        for _ in range(3):
            margin = task.rng.uniform(0.02, 0.1)
            _expect(task, "undecided", 1 + 0.5 * margin, 1 + margin + task.rng.uniform(0.01, 0.5), margin)
            _expect(task, "undecided", 1 / (1 + margin) - task.rng.uniform(0.01, 0.3), 1.0, margin)
            _expect(task, "undecided", 0.7, 1.6, margin)


def _expect(task, wanted: str, low: float, high: float, margin: float) -> None:
    got = task.call(low, high, margin, returns=str)
    task.expect(got in VERDICTS, t("Return one of {names}, written just so.", names=", ".join(map(repr, VERDICTS))))
    task.expect(got == wanted or {got, wanted} != {"faster", "slower"}, t(
        "Faster and slower are swapped: a ratio above 1 means that the candidate took less time than the baseline."))
    task.expect(got == wanted or wanted != "undecided" or got == "same", t(
        "You named a winner although one end of the interval is still on this side of the mark. Both ends must agree."))
    task.expect(got == wanted or wanted != "undecided", t(
        "One end is outside the two marks, so a difference is possible. `same` needs both ends between the marks."))
    task.expect(got == wanted, t(
        "Compare `low` with `1 + margin` and `high` with `1 / (1 + margin)`; then see whether both lie in between."))


def _near(got: float, right: float) -> bool:
    return math.isclose(got, right, rel_tol=1e-6, abs_tol=1e-9)
