"""The project's marks, from what the verifier found on its own machine: numbers that repeat, quality, counts, speed."""

from __future__ import annotations

from labkit._project_trials import NAIVE, PROJECT
from labkit.language import t

MOST = 20
AS_GOOD, ALMOST = 0.01, 0.03  # above the naive training's character error rate
LEAST = 1 / 20  # of the naive training's operators: with fewer, the counter did not see the work
FEWER = ((2.0, 4), (1.3, 2))  # naive operators / own, marks
FASTER = ((2.0, 6), (1.6, 4), (1.3, 2))  # the low end of naive time / own time, marks


def marks(found: dict) -> list[tuple[int, int, str]]:
    """(points, of how many, for what). Faster but clearly worse is no gain: then counts and speed earn nothing."""
    worse = found["cer"][PROJECT] - found["cer"][NAIVE]
    quality = 6 if worse <= AS_GOOD else 3 if worse <= ALMOST else 0
    fewer = found["operators"][NAIVE] / max(1, found["operators"][PROJECT])
    return [
        (4, 4, t("a card whose numbers repeat")),
        (quality, 6, t("names as well written as by the naive training")),
        (_step(FEWER, fewer) if quality and not too_few(found) else 0, 4, t("fewer operators called")),
        (_step(FASTER, found["ratio"][1]) if quality else 0, 6, t("faster by verdict, low end of the ratio")),
    ]


def too_few(found: dict) -> bool:
    """Whether so few operators were counted that the function must do its work where they are not."""
    return found["operators"][PROJECT] < LEAST * found["operators"][NAIVE]


def _step(steps, value: float) -> int:
    return next((points for least, points in steps if value >= least), 0)
