"""Medians, spreads, and the interval of a ratio between two interleaved series.

The method of ``compare()``. Runs of baseline and candidate stand next to each other in time, so what disturbs one
disturbs the other. The four pairs in a round A B B A, of a run of A and a run of B, give a log ratio each; the estimate
is the median of all of them, which a burst of foreign load cannot drag along. The advantage of running second (a warm
cache, say) is estimated from the two halves of each round and taken off. The 95 % interval comes from a bootstrap that
draws whole stretches of consecutive rounds, because neighbours in time resemble each other (Efron & Tibshirani, An
Introduction to the Bootstrap, 1993, ch. 13; for stretches, joined end to start: Politis & Romano, A circular
block-resampling procedure for stationary data, 1992). A bootstrap of few rounds is too sure of itself, so the interval
is widened as Student's t is, and where there are fewer rounds than stretches it is never narrower than that of the sign
test.
Pairing as in tango, a benchmark harness for Rust (github.com/bazhenov/tango).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

STRETCHES = 20  # a bootstrap sample consists of about so many stretches of consecutive rounds
RESAMPLES = 2000
_AT_ONCE = 2**20  # rounds drawn at once: bounds the memory of a long comparison
NOISY, VERY_NOISY = 0.10, 0.25  # IQR / median, the thresholds of torch.utils.benchmark


@dataclass(frozen=True)
class Ratio:
    """Time of the baseline / time of the candidate, above 1 is faster; ``low, high`` bound its 95 % interval."""

    value: float
    low: float
    high: float
    rounds: int = 1000  # what it rests on


def median_and_iqr(times_s) -> tuple[float, float]:
    """Median and interquartile range, both in the unit of the input."""
    import numpy as np

    q1, q2, q3 = np.quantile(np.asarray(times_s, dtype=float), [0.25, 0.5, 0.75])
    return float(q2), float(q3 - q1)


def slowdown(times_s, least: float = 1.15) -> float:
    """How much longer a run took in the last third of the time than in the first; 1.0 unless they stand clearly apart.

    Thirds of the time, not of the runs: of the slow ones there are few. Clearly: by ``least``, at least three runs in
    each third, and three quarters of the last ones above three quarters of the first.
    """
    import numpy as np

    runs = np.asarray(times_s, dtype=float)
    ends = np.cumsum(runs)
    first, last = runs[ends <= ends[-1] / 3], runs[ends > ends[-1] * 2 / 3]
    if min(len(first), len(last)) < 3:
        return 1.0
    ratio = float(np.median(last) / np.median(first))
    return ratio if ratio >= least and np.quantile(last, 0.25) > np.quantile(first, 0.75) else 1.0


def is_settled(times_s, share: float = 0.005) -> bool:
    """Whether the median is known to ``share`` of itself: 1.57 IQR / sqrt(n), McGill, Tukey & Larsen 1978."""
    median, iqr = median_and_iqr(times_s)
    return 1.57 * iqr / math.sqrt(len(times_s)) <= share * median


def ratio_interval(baseline_s, candidate_s, first=None, *, seed: int = 0) -> Ratio:
    """Median ratio of paired times with its bootstrap 95 % interval.

    ``baseline_s, candidate_s``: shape (rounds, 2), the two halves of each ABBA round. ``first``: shape (rounds,),
    whether the baseline ran before the candidate in the first half; in the second half it is the other way round.
    """
    import numpy as np

    baseline, candidate = (np.log(np.asarray(times_s, dtype=float)) for times_s in (baseline_s, candidate_s))
    rounds, halves = len(baseline), baseline - candidate
    sign = np.where(np.ones(rounds, dtype=bool) if first is None else np.asarray(first), 1.0, -1.0)
    second_gain = np.median((halves[:, 0] - halves[:, 1]) / 2 * sign) * np.stack([sign, -sign], axis=1)
    baseline, candidate = baseline - second_gain / 2, candidate + second_gain / 2
    logs = (baseline[:, :, None] - candidate[:, None, :]).reshape(rounds, 4)
    middle = np.median(logs)
    low, high = middle + _student(1.96, rounds) / 1.96 * (np.array(_block_bootstrap(logs, seed)) - middle)
    if rounds < STRETCHES:
        sign_low, sign_high = _sign_interval((baseline - candidate).ravel())  # of two pairs that share no run
        low, high = min(low, sign_low), max(high, sign_high)
    return Ratio(*(float(np.exp(x)) for x in (middle, low, high)), rounds=rounds)


def _student(z: float, rounds: int) -> float:
    """Student's t where the normal distribution has ``z``: Abramowitz & Stegun, 26.7.5, three terms."""
    freedom = max(1, rounds - 1)
    return (z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
            + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3))


def _sign_interval(values) -> tuple[float, float]:
    """95 % interval of the median by the sign test: two of the sorted values, for any distribution."""
    import numpy as np

    n = len(values)
    outside = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n) - 0.5))
    ordered = np.sort(values)
    return float(ordered[outside]), float(ordered[n - 1 - outside])


def _block_bootstrap(logs, seed: int) -> tuple[float, float]:
    """95 % interval of the median of ``logs``, shape (rounds, pairs), from stretches of consecutive rounds drawn with
    replacement."""
    import numpy as np

    rounds = len(logs)
    length = -(-rounds // STRETCHES)
    starts = np.random.default_rng(seed).integers(0, rounds, size=(RESAMPLES, -(-rounds // length)))
    medians = []
    for some in np.array_split(starts, -(-RESAMPLES * rounds // _AT_ONCE)):
        drawn = (some[:, :, None] + np.arange(length)).reshape(len(some), -1)[:, :rounds] % rounds
        medians.append(np.median(logs[drawn].reshape(len(some), -1), axis=1))
    low, high = np.quantile(np.concatenate(medians), [0.025, 0.975])
    return float(low), float(high)


def verdict(ratio: Ratio, margin: float) -> str:
    """``faster`` or ``slower`` when the interval lies wholly beyond the margin, ``same`` when it lies wholly inside.

    One 95 % interval in twenty misses the truth, so a noisy machine would soon name a winner between equal functions.
    A winner's interval must therefore stay on its side of 1 even when widened to 99.9 % (about 3.29 standard errors
    instead of 1.96). ``margin=0`` asks for any difference at all: there the 95 % interval decides by itself.
    """
    if ratio.low > 1 + margin and (not margin or _clear_of_one(ratio, ratio.low)):
        return "faster"
    if ratio.high < 1 / (1 + margin) and (not margin or _clear_of_one(ratio, ratio.high)):
        return "slower"
    if 1 / (1 + margin) <= ratio.low and ratio.high <= 1 + margin:
        return "same"
    return "undecided"


def _clear_of_one(ratio: Ratio, nearer_end: float) -> bool:
    far, near = abs(math.log(ratio.value)), abs(math.log(nearer_end))
    return far - _student(3.29, ratio.rounds) / _student(1.96, ratio.rounds) * (far - near) > 0
