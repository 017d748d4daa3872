"""Joules of a call, where the machine lets us read them: NVML on NVIDIA GPUs, RAPL on Linux CPUs."""

from __future__ import annotations

import ctypes
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
    nvmlDeviceGetTotalEnergyConsumption (millijoules) of the current GPU; the Linux powercap files ``energy_uj``
    (microjoules, wrap at ``max_energy_range_uj``).
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
            nvml = _nvml()
            nvml()
        except Exception as error:  # no library, no permission, a part of a GPU, or a GPU before Volta
            return None, t("the GPU gives no energy counter ({kind})", kind=error)
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


def _nvml(library: str = "libnvidia-ml.so.1"):
    """A function that reads the joules of the current GPU: through the library that comes with the driver.

    The GPU is looked up by its UUID, because NVML counts also those that CUDA_VISIBLE_DEVICES hides. Raises OSError.
    Source: NVML API reference, nvmlDeviceGetTotalEnergyConsumption: millijoules since the driver was loaded.
    """
    import torch

    nvml, device, millijoules = ctypes.CDLL(library), ctypes.c_void_p(), ctypes.c_ulonglong()

    def call(name: str, *arguments) -> None:
        code = getattr(nvml, name)(*arguments)
        if code:
            raise OSError(f"{name}: NVML error {code}")

    call("nvmlInit_v2")
    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid).removeprefix("GPU-")
    call("nvmlDeviceGetHandleByUUID", f"GPU-{uuid}".encode(), ctypes.byref(device))

    def joules(before: float = 0.0) -> float:
        call("nvmlDeviceGetTotalEnergyConsumption", device, ctypes.byref(millijoules))
        return millijoules.value / 1e3 - before

    return joules
