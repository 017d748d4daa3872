"""Time on a CUDA GPU alone, by events, without the gaps in which the GPU waits for the next launch.

Two events around a block of calls also time those gaps: of a launch-bound function they would say what the wall clock
says. So the GPU is first given something to do, long enough for the whole block to be launched behind it. A function
that itself waits for the GPU in the middle (``.item()``) still has its gaps counted.
"""

from __future__ import annotations

from collections.abc import Callable

from labkit import _torch_private

_CALIBRATE_CYCLES = 1_000_000  # about a millisecond
_MARGIN, _LEAST_S = 1.5, 50e-6  # launches take longer at times, and clocks go up and down
_MOST_S = 0.05  # of waiting: a block that takes longer to launch has long kernels, or waits for the GPU itself


class DeviceTimer:
    """Seconds of work on one GPU, by two events on its current stream."""

    def __init__(self, device: str):
        import torch

        self._cuda, self._device = torch.cuda, torch.device(device)
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._cycles_per_s = 0.0

    def seconds(self, run: Callable[[], object], launch_s: float) -> float:
        """Seconds that the GPU needs for what ``run()`` launches; launching it takes ``launch_s``."""
        self._cycles_per_s = self._cycles_per_s or self._calibrated()
        busy_s = min(_MOST_S, _MARGIN * launch_s + _LEAST_S)
        return self._between(lambda: self._keep_busy(int(busy_s * self._cycles_per_s)), run)

    def _between(self, before: Callable[[], object], run: Callable[[], object]) -> float:
        stream = self._cuda.current_stream(self._device)
        before()
        self._start.record(stream)
        last = run()  # alive until it is finished, as in a timed block
        self._end.record(stream)
        self._end.synchronize()
        del last
        return self._start.elapsed_time(self._end) / 1e3

    def _keep_busy(self, cycles: int) -> None:
        if cycles > 0:
            with self._cuda.device(self._device):
                _torch_private.keep_gpu_busy(cycles)

    def _calibrated(self) -> float:
        """Cycles a second of the counter that ``_keep_busy`` looks at."""
        self._keep_busy(1)  # the first launch of a kernel loads it
        took_s = self._between(lambda: None, lambda: self._keep_busy(_CALIBRATE_CYCLES))
        return _CALIBRATE_CYCLES / took_s
