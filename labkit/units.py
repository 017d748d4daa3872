"""Seconds, bytes and FLOP/s, and how they are printed. Inside labkit every number is in the base unit."""

from __future__ import annotations

import math

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_RATES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def _scaled(value: float, steps, digits: int) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return f"0 {steps[-1][1] or ''}".rstrip()
    for factor, unit in steps:
        if abs(value) >= factor * (1 - 0.5 * 10 ** (-digits)):
            return f"{significant(value / factor, digits)} {unit}".rstrip()
    factor, unit = steps[-1]
    return f"{significant(value / factor, digits)} {unit}".rstrip()


def significant(value: float, digits: int = 3) -> str:
    """``value`` with ``digits`` significant digits, never in exponent form.

    >>> significant(1234.5), significant(0.012345)
    ('1234', '0.0123')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    # Round first: 9.996 is 10.0 with three digits, not 10.00.
    rounded = float(f"{value:.{digits - 1}e}")
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(rounded))))}f}"


def seconds(value_s: float, digits: int = 3) -> str:
    """A duration in s, ms, us or ns.

    >>> seconds(0.00123)
    '1.23 ms'
    """
    return _scaled(value_s, _SECONDS, digits)


def size(value_bytes: float, digits: int = 3) -> str:
    """A size in decimal units: 1 kB is 1000 B, as disks and bandwidths count.

    >>> size(134217728)
    '134 MB'
    """
    if 0 < abs(value_bytes) < 1000 and float(value_bytes).is_integer():
        return f"{int(value_bytes)} B"
    return _scaled(value_bytes, _BYTES, digits)


def bandwidth(value_bytes_per_s: float, digits: int = 3) -> str:
    """Bytes a second.

    >>> bandwidth(44e9)
    '44.0 GB/s'
    """
    return size(value_bytes_per_s, digits) + "/s"


def flop_rate(value_flops_per_s: float, digits: int = 3) -> str:
    """Floating-point operations a second.

    >>> flop_rate(1.5e12)
    '1.50 TFLOP/s'
    """
    number, _, prefix = _scaled(value_flops_per_s, _RATES, digits).partition(" ")
    return f"{number} {prefix}FLOP/s"


def ratio(value: float, digits: int = 3) -> str:
    """A ratio such as a speed-up, without a unit: ``1.87``."""
    return significant(value, digits)
