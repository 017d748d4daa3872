"""NumPy names that MXNet 1.9.1 still uses and newer NumPy releases dropped.

MXNet needs them twice: while it is imported, and later, when a function looks one up as ``np.Inf``. For the import they
stand on NumPy itself and are taken off again; for later look-ups MXNet's own modules get a view of NumPy that has them.
NumPy is left exactly as it was found: SciPy and others decide by NumPy's names what it can do.
"""

from __future__ import annotations

import contextlib
import sys
import types

import numpy

# Removed financial functions: MXNet only lists them, it never calls one.
_FINANCIAL = ("mirr", "npv", "pmt", "ppmt", "pv", "rate", "fv", "ipmt", "irr", "nper")


def _gone(name: str):
    def gone(*_args, **_kwargs):
        raise NotImplementedError(f"numpy.{name} was removed from NumPy 1.20; use the package numpy-financial")

    gone.__name__ = name
    return gone


def legacy_names() -> dict[str, object]:
    """Old NumPy name -> what stands for it today (NumPy's own migration guides for 1.24 and 2.0)."""
    names = {
        "bool": bool, "int": int, "float": float, "object": object, "complex": complex, "str": str,
        "PZERO": 0.0, "NZERO": -0.0, "Inf": numpy.inf, "PINF": numpy.inf, "infty": numpy.inf,
        "Infinity": numpy.inf, "NINF": -numpy.inf, "NAN": numpy.nan, "NaN": numpy.nan,
        "product": numpy.prod, "round_": numpy.round, "alltrue": numpy.all, "sometrue": numpy.any,
    }  # fmt: skip
    # numpy.trapz and in1d were renamed; msort is gone.
    for name, modern in (("trapz", "trapezoid"), ("in1d", "isin")):
        names[name] = getattr(numpy, modern, None) or getattr(numpy, name)
    names["msort"] = lambda a: numpy.sort(a, axis=0)
    names |= {name: _gone(name) for name in _FINANCIAL}
    # NumPy 2 names booleans numpy.bool itself: what NumPy has, it keeps.
    return {name: value for name, value in names.items() if name not in vars(numpy)}


@contextlib.contextmanager
def standing_on_numpy():
    """Put the missing names on NumPy, and take exactly those off again."""
    added = legacy_names()
    for name, value in added.items():
        setattr(numpy, name, value)
    try:
        yield
    finally:
        for name in added:
            delattr(numpy, name)


class LegacyNumPy(types.ModuleType):
    """A view of NumPy that also knows the old names."""

    def __init__(self):
        super().__init__("numpy", "NumPy with the names MXNet 1.9.1 looks up when it is called")
        vars(self).update(legacy_names())
        if numpy.lib.NumpyVersion(numpy.__version__) >= "2.0.0":
            self.core = numpy._core  # numpy.core warns since NumPy 2

    def __getattr__(self, name):
        return getattr(numpy, name)


def give_view_to(package: str) -> int:
    """Let every loaded module of ``package`` see NumPy through the view; returns how many names were changed."""
    view, changed = LegacyNumPy(), 0
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != package or module is None:
            continue
        for key, value in list(vars(module).items()):
            if value is numpy:
                setattr(module, key, view)
                changed += 1
    return changed
