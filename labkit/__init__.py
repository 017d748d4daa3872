"""labkit: measure, compare and explain what makes deep-learning training faster or bigger.

``import labkit as lab`` loads nothing heavy. Every public name below lives in one small module and is
imported on first use; ``lab.<tab>`` in a notebook lists them all.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

# Public name -> the submodule it lives in.  No name here may equal a submodule's name: importing the submodule
# would overwrite the function.  tests/test_package.py holds that.
_HOMES = {
    "use_language": "language",
    "current_language": "language",
    "machine": "hardware",
    "device": "hardware",
    "sync": "hardware",
    "pick": "hardware",
    "measure": "timing",
    "Measurement": "timing",
    "compare": "comparison",
    "Comparison": "comparison",
    "claim": "comparison",
    "check": "exercises",
    "CheckResult": "marks",
    "predict": "guesses",
    "predictions": "guesses",
    "peaks": "ceilings",
    "roofline": "ceilings",
    "advise": "advisor",
    "Advice": "advisor",
    "break_even": "cost",
    "rental": "cost",
    "published_claims": "cost",
    "report": "launch",
}
_SUBMODULES = (
    "language", "units", "hardware", "datasets", "timing", "comparison", "ceilings", "graphs", "launch", "mx",
    "attempts", "marks", "tasks", "exercises", "guesses", "advisor", "cost", "models", "plots", "widgets", "classroom",
    "transliteration", "report_card",
)

__all__ = [*_HOMES, *_SUBMODULES]


def __getattr__(name: str):
    if name in _HOMES:
        value = getattr(importlib.import_module(f"labkit.{_HOMES[name]}"), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"labkit.{name}")
    else:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*__all__, "__version__", "__doc__"})
