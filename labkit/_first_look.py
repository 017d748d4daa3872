"""A rough time of one call, for the number that a lab shows while the real measurement is still to come."""

from __future__ import annotations

import time
from collections.abc import Callable

from labkit import hardware

LOOK_S = 0.1


def first_look(run: Callable, *, clock=time.perf_counter) -> float:
    """Seconds of the quickest of a few calls after a first one, for a tenth of a second or a little more."""
    run()
    hardware.sync()
    best_s, end = float("inf"), clock() + LOOK_S
    while True:
        start = clock()
        run()
        hardware.sync()
        best_s = min(best_s, clock() - start)
        if clock() >= end:
            return best_s
