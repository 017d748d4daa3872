"""Timing one block of calls: the clock, waiting for asynchronous work, cold caches, garbage collection."""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import sys
import time
from pathlib import Path

from labkit import _callables, _compiling, _probes, _turns
from labkit._leaves import arrays
from labkit.language import t

BLOCK_S = 1e-3  # a block this long hides the clock's own cost (about 0.1 us) below one part in ten thousand
AGREE = 0.05  # two warm-up blocks within 5 % count as equal
WARM_UP_SHARE = 0.25  # of the budget, at most, unless that is over before FEWEST_BLOCKS
FEWEST_BLOCKS = 3  # one stall of a busy machine must not make a quick function look slow
STALL_BLOCKS = 6  # nor a longer one, where it would mean that the budget is too small
JUMP_S, JUMP = 5.0, 100  # a block longer than both (seconds; times its usual length) is a sleep or a jump of the clock
CLOCK_TRIES = 3


class Clock:
    """Nanoseconds of ``read``, and what to leave out of a time budget: ``lost_s``, when the machine slept or ``read``
    jumped, inside a block or between two."""

    def __init__(self, read=None):
        self.read = read or time.perf_counter_ns
        self.lost_s, self._seen = 0.0, self.read()

    def resume(self) -> None:
        """Blocks begin now, or go on after something else that took time."""
        self._seen = self.read()

    def now_s(self) -> float:
        """Seconds that a budget counts."""
        return self.between(self.read()) / 1e9 - self.lost_s

    def between(self, now: int) -> int:
        """``now`` was read outside a block; between two of them nothing takes long."""
        gap_s = (now - self._seen) / 1e9
        if not 0 <= gap_s <= JUMP_S:
            self.lost_s += gap_s
        self._seen = now
        return now

    def after_block(self, now: int, took_s: float, usual_s: float) -> None:
        if took_s < 0 or took_s > max(JUMP_S, JUMP * usual_s):
            self.lost_s += took_s
        self._seen = now


class Stopwatch:
    """Times blocks of calls of ``fn(*args)``; ``first_s`` holds the first call, which stays apart.

    ``clock``: a `Clock`, or a function that returns nanoseconds. A block in which the clock went back is run again.
    ``on_device``: on CUDA every block runs a second time for the GPU's own time (see `labkit._device_time`).
    Raises CallFailedError, NotTimeableError, ClockError.
    """

    def __init__(self, fn, args, *, name: str, tool: str, cache: str = "warm", clock=None, keep=None,
                 on_device: bool = False):
        self.fn, self.args, self.name = fn, args, name
        self.clock = clock if isinstance(clock, Clock) else Clock(clock)
        self._least_s = math.inf
        _compiling.before_the_first_call(fn)
        start = self.clock.read()
        try:
            result = fn(*args)
        except Exception as error:
            raise _callables.call_failed(name, error) from error
        _callables.require_result(result, tool)
        self.device = _device_of(result, args)
        self._wait = _wait_for(self.device, result)
        if self._wait:
            self._wait(result)
        self.first_s = (self.clock.read() - start) / 1e9
        if keep:
            keep(result)
        self._on_device = _device_timer(self.device) if on_device and self.device.startswith("cuda") else None
        self._flush = _flusher(self.device) if cache == "cold" else None

    def result(self):
        """One untimed call, finished."""
        try:
            result = self.fn(*self.args)
        except Exception as error:
            raise _callables.call_failed(self.name, error) from error
        if self._wait:
            self._wait(result)
        return result

    def block(self, calls: int) -> tuple[float, float | None]:
        """Run ``calls`` calls; return seconds per call by the wall clock and, where asked for, by the GPU's events.

        No result outlives the block, so every block finds the allocator as the last one left it.
        """
        calls = 1 if self._flush else calls
        for _ in range(CLOCK_TRIES):
            wall_s, device_s = self._block(calls)
            if wall_s >= 0:
                break
        else:
            raise _callables.ClockError(
                t("This machine's clock goes back again and again, so nothing can be timed. Restart the machine, or "
                  "the virtual machine, then run this cell again."))
        self._least_s = min(self._least_s, wall_s)
        return wall_s, device_s

    def _block(self, calls: int) -> tuple[float, float | None]:
        read = self.clock.read
        self._make_ready()
        start = self.clock.between(read())
        last = self._calls(calls)
        launched = read() if self._on_device else start
        if self._wait:
            self._wait(last)
        end = read()
        del last
        wall_s = (end - start) / 1e9 / calls
        self.clock.after_block(end, wall_s * calls, self._least_s * calls)
        if not self._on_device or wall_s < 0:
            return wall_s, None
        self._make_ready()
        device_s = self._on_device.seconds(lambda: self._calls(calls), max(0.0, (launched - start) / 1e9)) / calls
        self.clock.resume()
        return wall_s, device_s

    def _make_ready(self) -> None:
        """Cold caches where they are asked for, and nothing left to do from before."""
        if self._flush:
            self._flush()
        if self._wait:
            self._wait(None)

    def _calls(self, calls: int):
        """Call so often; the last result."""
        fn, args = self.fn, self.args
        try:
            for _ in itertools.repeat(None, calls - 1):
                fn(*args)
            return fn(*args)
        except Exception as error:
            raise _callables.call_failed(self.name, error) from error

    def warm_up(self, budget_s: float) -> tuple[float, int]:
        """Run until two blocks agree within 5 %, or a quarter of the budget is gone; longer where the budget seems too
        short for two calls, because a machine that stands still for a while makes a quick function look slow.

        Returns seconds per call, the least disturbed block's, and the calls that fill a block of ``BLOCK_S``.
        """
        self.clock.resume()
        calls, previous, spent, best = 1, None, 0.0, math.inf
        for block in itertools.count(1):
            call_s, _ = self.block(calls)
            spent += call_s * calls
            best = min(best, call_s)
            agrees = previous is not None and abs(call_s - previous) <= AGREE * min(call_s, previous)
            previous = call_s
            if self._flush is None and call_s * calls < BLOCK_S / 2:
                calls, agrees = min(calls * 10, math.ceil(BLOCK_S / max(call_s, 1e-9))), False
            if 2 * best > budget_s:
                if block >= STALL_BLOCKS:
                    break
            elif agrees or (spent > WARM_UP_SHARE * budget_s and block >= FEWEST_BLOCKS):
                break
        return best, 1 if self._flush else max(1, math.ceil(BLOCK_S / max(best, 1e-9)))


@contextlib.contextmanager
def undisturbed(clock=None):
    """Hold the garbage collector back while timing; ``tidy()`` lets it work between blocks.

    Waits while another notebook of this machine times something (by a real clock, so not where ``clock`` is given);
    gives what disturbs all the same, as codes for ``noted()``.
    """
    with _turns.turn() if clock is None else contextlib.nullcontext(True) as alone:
        was_on = gc.isenabled()
        gc.collect(1)  # a full collection takes 0.15 s once torch is loaded
        gc.freeze()  # what exists now is not looked at again, so tidy() is quick
        gc.disable()
        try:
            yield () if alone else ("beside",)
        finally:
            gc.unfreeze()
            if was_on:
                gc.enable()


def noted(watch: Stopwatch, disturbed: tuple[str, ...]) -> tuple[str, ...]:
    """What a Measurement says about how it came about: ``"beside"`` (another notebook measured at the same time),
    ``"clock"`` (it jumped, or the machine slept), ``"battery"``."""
    clock = ("clock",) if watch.clock.lost_s else ()
    return (*disturbed, *clock, *(("battery",) if _probes.on_battery() else ()))


def tidy() -> None:
    """Free reference cycles that the timed function left, outside the timed part."""
    if gc.get_count()[0] > 700:
        gc.collect()


def threads() -> int:
    """CPU threads that the timed library uses: torch's where torch is loaded."""
    import os

    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch else int(os.environ.get("OMP_NUM_THREADS", 0)) or os.cpu_count() or 1


def _device_of(result, args) -> str:
    for _, leaf in itertools.chain(arrays(result), arrays(args)):
        device = getattr(leaf, "device", None) or getattr(leaf, "ctx", None)
        if device is not None and not isinstance(device, str):
            return str(device)
    return "cpu"


def _wait_for(device: str, result):
    """A function of a result that waits for everything submitted so far, or None where calls are synchronous."""
    torch, mxnet = sys.modules.get("torch"), sys.modules.get("mxnet")
    found = [leaf for _, leaf in arrays(result)]
    of = {type(leaf).__module__.partition(".")[0] for leaf in found}
    if any(hasattr(leaf, "wait_to_read") for leaf in found) and "mxnet" not in of:
        return _wait_to_read
    if hasattr(mxnet, "nd") and "torch" not in of:
        return lambda result: mxnet.nd.waitall()  # also for a plain number: other work may still be on its way
    kind = device.partition(":")[0]
    if kind == "cuda":
        return lambda result: torch.cuda.synchronize(device)  # the result's own GPU need not be the current one
    backend = getattr(torch, kind, None) if torch and kind != "cpu" else None
    if backend is not None and hasattr(backend, "synchronize"):
        return lambda result: backend.synchronize()
    if torch and torch.cuda.is_available() and torch.cuda.is_initialized():
        return lambda result: torch.cuda.synchronize()  # a function may use the GPU and return a plain number
    return None


def _wait_to_read(result) -> None:
    for _, leaf in arrays(result):
        if hasattr(leaf, "wait_to_read"):
            leaf.wait_to_read()


def _device_timer(device: str):
    from labkit._device_time import DeviceTimer

    return DeviceTimer(device)


def _flusher(device: str):
    """A function that pushes everything else out of the last-level cache by writing twice its size."""
    torch = sys.modules.get("torch")
    if torch is None:
        import numpy as np

        buffer = np.zeros(2 * _cpu_cache_bytes(), dtype=np.uint8)
        return lambda: np.add(buffer, 1, out=buffer)
    if device.startswith("cuda"):
        cache_bytes = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or 64 * 2**20
        return torch.zeros(2 * cache_bytes, dtype=torch.uint8, device=device).zero_
    buffer = torch.zeros(2 * _cpu_cache_bytes(), dtype=torch.uint8)
    return lambda: buffer.add_(1)  # all threads write, so each core's own cache is emptied too


def _cpu_cache_bytes() -> int:
    """Size of the last-level cache; 64 MiB where the system does not tell."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        number = text.rstrip("KMG")
        if number.isdigit():
            sizes.append(int(number) * {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1], 1))
    return max(sizes) or 64 * 2**20
