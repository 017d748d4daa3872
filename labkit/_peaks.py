"""What this machine can do at best, measured: memory bandwidth, arithmetic rate, cost of starting an operator."""

from __future__ import annotations

import functools
import math
import time
from dataclasses import dataclass

import torch

from labkit import _probes, hardware
from labkit._graph_values import html_table
from labkit._stopwatch import _cpu_cache_bytes
from labkit.language import t
from labkit.units import bandwidth, flop_rate, seconds

_MOVED = 1.25  # a ceiling that many times higher or lower than it was is another ceiling
_SHARES = {"copy": 0.3, "float32": 0.3, "bfloat16": 0.15, "float16": 0.15, "dispatch": 0.05}  # of the budget


@dataclass(frozen=True, repr=False)
class Peaks:
    """Ceilings of one device. Bytes count reading and writing; one multiply-add is two FLOPs."""

    device: str
    threads: int
    copy_bytes_per_s: float
    flops_per_s: dict[str, float]  # dtype name -> rate of a large matrix product; only dtypes native here
    dispatch_s: float  # one operator on one element, in eager mode
    buffer_bytes: int  # size of the array that was copied
    cache_bytes: int  # last-level cache
    utc: str

    def rate(self, dtype: torch.dtype) -> float:
        """FLOP/s of matrix products in ``dtype``; float32's where that dtype is not native here."""
        return self.flops_per_s.get(str(dtype).removeprefix("torch."), self.flops_per_s["float32"])

    @property
    def ridge(self) -> float:
        """FLOPs per byte at which float32 arithmetic and memory take equal time."""
        return self.flops_per_s["float32"] / self.copy_bytes_per_s

    def card(self) -> dict:
        """Provenance as plain JSON values."""
        return {"format": 1, "kind": "peaks", **vars(self), "machine": hardware.provenance()}

    def _rows(self):
        rows = [(t("copy bandwidth (bytes read + written)"), bandwidth(self.copy_bytes_per_s))]
        for dtype, rate in self.flops_per_s.items():
            rows.append((t("matrix product, {dtype}", dtype=dtype), flop_rate(rate)))
        rows.append((t("starting one operator"), seconds(self.dispatch_s)))
        return rows

    def _title(self):
        return t("This machine's ceilings, measured ({device}, threads: {threads})", device=self.device,
                 threads=self.threads)  # fmt: skip

    def __str__(self):
        width = max(len(label) for label, _ in self._rows())
        return "\n".join([self._title(), *(f"  {label:<{width}}  {value}" for label, value in self._rows())])

    __repr__ = __str__

    def _repr_html_(self):
        return html_table((self._title(), ""), self._rows())


def peaks(*, budget_s: float = 3.0, refresh: bool = False) -> Peaks:
    """Measure this device's ceilings, once a session: memory copy, matrix products per dtype, operator start.

    Copy: ``copy_`` between two allocated arrays that are far larger than the last-level cache. Products: square, grown
    until one takes long enough to time, into an allocated output; float32 as torch computes it now, bfloat16 and
    float16 only where the hardware has them. The best run counts: a ceiling is what is reached undisturbed.
    ``refresh=True`` measures anew.
    """
    if refresh:
        _measured.cache_clear()
    # What changes the ceilings is part of the key: a thread more, or TF32 switched on.
    return _measured(str(hardware.device()), torch.get_num_threads(), torch.get_float32_matmul_precision(), budget_s)


@functools.lru_cache(maxsize=8)
def _measured(device: str, threads: int, _precision: str, budget_s: float) -> Peaks:
    from datetime import UTC, datetime

    on = torch.device(device)
    cache_bytes = last_level_cache_bytes(on)
    with torch.no_grad():
        buffer_bytes, copy_rate = _copy_rate(on, cache_bytes, budget_s * _SHARES["copy"])
        rates = {name: _product_rate(on, getattr(torch, name), budget_s * _SHARES[name]) for name in native_dtypes()}
        dispatch_s = _dispatch_s(on, budget_s * _SHARES["dispatch"])
    utc = datetime.now(UTC).isoformat(timespec="seconds")
    return Peaks(device, threads, copy_rate, rates, dispatch_s, buffer_bytes, cache_bytes, utc)


def have_moved(top: Peaks) -> bool:
    """Whether a short look (below one second) finds memory or float32 arithmetic at another speed than ``top``."""
    on = torch.device(top.device)
    with torch.no_grad():
        rates = [(_product_rate(on, torch.float32, 0.2), top.flops_per_s["float32"]),
                 (_copy_rate(on, top.cache_bytes, 0.1)[1], top.copy_bytes_per_s)]  # fmt: skip
    return any(not 1 / _MOVED < now / before < _MOVED for now, before in rates)


def native_dtypes() -> list[str]:
    """``"float32"``, and ``"bfloat16"`` and ``"float16"`` where ``lab.device()`` computes in them itself."""
    names = ["float32"]
    if hardware.bf16_native():
        names.append("bfloat16")
    if hardware.has_cuda():
        has_half = torch.cuda.get_device_capability() >= (5, 3)
    else:
        has_half = bool(_probes.cpu_flags() & {"avx512_fp16", "amx_fp16", "asimdhp"})
    return [*names, "float16"] if has_half else names


def last_level_cache_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or 64 * 2**20
    return _cpu_cache_bytes()


def _best_s(fn, budget_s: float) -> float:
    """The fastest of at least three runs after a first one, synchronised."""
    fn()
    hardware.sync()
    best_s, runs, begin = math.inf, 0, time.perf_counter()
    while runs < 3 or time.perf_counter() - begin < budget_s:
        start = time.perf_counter()
        fn()
        hardware.sync()
        best_s, runs = min(best_s, time.perf_counter() - start), runs + 1
    return best_s


def _copy_rate(device: torch.device, cache_bytes: int, budget_s: float) -> tuple[int, float]:
    wanted = max(256 * 2**20, 4 * cache_bytes)
    memory = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else _probes.memory_bytes()
    elements = min(wanted, (memory or 2**32) // 8) // 4
    source, target = torch.ones(elements, device=device), torch.zeros(elements, device=device)
    # Filled, not empty: the first writing of a page costs more than the copy itself.
    return elements * 4, 2 * elements * 4 / _best_s(lambda: target.copy_(source), budget_s)


def _product_rate(device: torch.device, dtype: torch.dtype, budget_s: float) -> float:
    n, long_enough_s = (2048, 2e-3) if device.type == "cuda" else (512, 2e-2)
    while True:
        a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        out = torch.empty(n, n, device=device, dtype=dtype)
        # A short look decides the size; the last size is measured for the whole budget.
        best_s = _best_s(lambda a=a, b=b, out=out: torch.mm(a, b, out=out), budget_s / 8)
        if best_s >= long_enough_s or n >= 8192 or 8 * best_s > budget_s:
            break
        n *= 2
    return 2 * n**3 / min(best_s, _best_s(lambda: torch.mm(a, b, out=out), budget_s / 2))


def _dispatch_s(device: torch.device, budget_s: float) -> float:
    x, calls = torch.ones(1, device=device), 200

    def many():
        for _ in range(calls):
            torch.add(x, 1)

    return _best_s(many, budget_s) / calls
