"""How far rounding alone moves a gradient: found by nudging what goes in, in place of a guess.

A right version of a network rounds otherwise, and that is enough for a value next to zero to pass a ReLU in one version
and not in the other, or for another element to win a max pool. The gradients then differ by far more than rounding. A
nudge of the size that the rounding of a few layers adds up to does the same, so it shows by how much.
"""

from __future__ import annotations

from labkit._leaves import dtype_name, overwrite, to_numpy

UNITS = 16  # a nudge, in units in the last place
NUDGES = 4  # how often, each time others; one nudge meets no such value where the next one does
ROOM = 4  # a right version may be so many times as far off as the furthest of the nudges
NUDGED = ("float32", "float64")  # lower precision has a wide tolerance as it is


def nudge(arrays, seed: int) -> None:
    """Move each element of ``arrays`` (of torch, numpy or mxnet) by ``UNITS`` units in the last place, up or down at
    random, in place."""
    import numpy as np

    draw = np.random.default_rng(seed)
    for array in arrays:
        if dtype_name(array) in NUDGED:
            values = to_numpy(array)
            signs = draw.choice(np.array([-1, 1], values.dtype), values.shape)
            overwrite(array, values * (1 + values.dtype.type(UNITS * np.finfo(values.dtype).eps) * signs))
