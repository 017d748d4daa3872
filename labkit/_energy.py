"""Joules of a call, where the machine lets us read them: NVML on NVIDIA GPUs, RAPL on Linux CPUs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from labkit.language import t

_RAPL = Path("/sys/class/powercap")


@dataclass(frozen=True)
class Energy:
    """``joules`` a call and the counter they come from; None and the reason where no counter can be read."""

    joules: float | None
    source: str

    def __str__(self) -> str:
        if self.joules is None:
            return t("Energy cannot be read here: {reason}", reason=self.source)
        return t("{joules} J a call, read from {source}", joules=f"{self.joules:.3g}", source=self.source)


def energy(fn: Callable, *args, seconds_s: float = 1.0) -> Energy:
    """Mean joules of ``fn(*args)`` over at least ``seconds_s`` seconds of calls.

    Counts everything that draws from the counter (the whole GPU, or all CPU packages), idle power included. Sources:
    nvmlDeviceGetTotalEnergyConsumption (millijoules); the Linux powercap files ``energy_uj`` (microjoules, wrap at
    ``max_energy_range_uj``).
    """
    from labkit import hardware

    reader, source = _counter()
    if reader is None:
        return Energy(None, source)
    fn(*args)
    hardware.sync()
    before, start, calls = reader(), time.perf_counter(), 0
    while not calls or time.perf_counter() - start < seconds_s:
        fn(*args)
        calls += 1
    hardware.sync()
    return Energy(reader(before) / calls, source)


def _counter():
    """(function, name) of the first counter that can be read, or (None, reason)."""
    from labkit import hardware

    if hardware.has_cuda():
        try:
            import pynvml

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        except Exception as error:  # no package, no permission, or a GPU before Volta
            return None, t("the GPU gives no energy counter ({kind})", kind=type(error).__name__)

        def nvml(before: float = 0.0) -> float:
            return pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3 - before

        return nvml, "NVML"
    packages = sorted(_RAPL.glob("intel-rapl:?"))
    if not packages:
        return None, t("this processor or virtual machine shows no energy counter (RAPL)")
    try:
        ranges = [int((p / "max_energy_range_uj").read_text()) / 1e6 for p in packages]
        [int((p / "energy_uj").read_text()) for p in packages]
    except OSError:
        return None, t("reading the energy counter (RAPL) needs administrator rights")

    def rapl(before=None):
        now = [int((p / "energy_uj").read_text()) / 1e6 for p in packages]
        if before is None:
            return now
        # A counter that wrapped reads lower than before.
        return sum((n - b) % r for n, b, r in zip(now, before, ranges, strict=True))

    return rapl, "RAPL"
