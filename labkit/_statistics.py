"""Medians, spreads, and the interval of a ratio between two interleaved series.

The method of ``compare()``. Runs of baseline and candidate stand next to each other in time, so what disturbs one
disturbs the other. Each pair gives one log ratio; the estimate is their median, which a burst of foreign load cannot
drag along. The 95 % interval comes from a bootstrap that draws whole stretches of consecutive pairs, because
neighbours in time resemble each other (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, ch. 8 and 13;
Künsch, Annals of Statistics 17, 1989, for blocks). Pairing as in tango (github.com/bazhenov/tango).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BLOCKS = 20  # stretches of consecutive pairs that the bootstrap draws from
RESAMPLES = 2000
NOISY, VERY_NOISY = 0.10, 0.25  # IQR / median, the thresholds of torch.utils.benchmark


@dataclass(frozen=True)
class Ratio:
    """Time of the baseline / time of the candidate, above 1 is faster; ``low, high`` bound its 95 % interval."""

    value: float
    low: float
    high: float


def median_and_iqr(times_s) -> tuple[float, float]:
    """Median and interquartile range, both in the unit of the input."""
    import numpy as np

    q1, q2, q3 = np.quantile(np.asarray(times_s, dtype=float), [0.25, 0.5, 0.75])
    return float(q2), float(q3 - q1)


def is_settled(times_s, share: float = 0.005) -> bool:
    """Whether the median is known to ``share`` of itself: 1.57 IQR / sqrt(n), McGill, Tukey & Larsen 1978."""
    median, iqr = median_and_iqr(times_s)
    return 1.57 * iqr / math.sqrt(len(times_s)) <= share * median


def ratio_interval(baseline_s, candidate_s, *, seed: int = 0) -> Ratio:
    """Median ratio of paired times with its bootstrap 95 % interval.

    ``baseline_s, candidate_s``: shape (rounds, 2), the two halves of each ABBA round. A round's log ratio is the mean
    of its halves, so that an advantage of running second cancels.
    """
    import numpy as np

    logs = np.log(np.asarray(baseline_s, dtype=float)) - np.log(np.asarray(candidate_s, dtype=float))
    logs = logs.mean(axis=1)  # (rounds,)
    low, high = _block_bootstrap(logs, seed)
    return Ratio(*(float(np.exp(value)) for value in (np.median(logs), low, high)))


def _block_bootstrap(values, seed: int) -> tuple[float, float]:
    """95 % interval of the median of a series, drawing stretches of neighbours with replacement."""
    import numpy as np

    count = min(BLOCKS, len(values))
    length = len(values) // count
    blocks = values[: count * length].reshape(count, length)
    drawn = np.random.default_rng(seed).integers(0, count, size=(RESAMPLES, count))
    medians = np.median(blocks[drawn].reshape(RESAMPLES, -1), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(low), float(high)


def verdict(ratio: Ratio, margin: float) -> str:
    """``faster`` or ``slower`` when the whole interval lies beyond the margin, ``same`` when all of it lies inside."""
    upper, lower = 1 + margin, 1 / (1 + margin)
    if ratio.low > upper:
        return "faster"
    if ratio.high < lower:
        return "slower"
    if lower <= ratio.low and ratio.high <= upper:
        return "same"
    return "undecided"
