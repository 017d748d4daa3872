"""Labs: choose, guess, press Run, and see a measured answer. ``lab.widgets.FusionLab()`` shows one.

How a lab is used stands with `labkit._lab.Lab`, and in the docstring of that module how one is written. Nothing is
loaded before the first lab is asked for.
"""

from __future__ import annotations

import importlib

# Lab -> the module it lives in: the one place that a new lab is added to.
_HOMES = {
    "Lab": "_lab",
    "TimingLab": "_timing_lab",
    "RooflineLab": "_roofline_lab",
    "FusionLab": "_fusion_lab",
    "CompileLab": "_compile_lab",
    "DecisionLab": "_decision_lab",
    "CostLab": "_cost_lab",
    "DataParallelLab": "_data_parallel_lab",
    "PipelineLab": "_pipeline_lab",
    "MemoryLab": "_memory_lab",
    "MXNetLab": "_mxnet_lab",
    "ScaleLab": "_scale_lab",
}

__all__ = list(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'labkit.widgets' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"labkit.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*__all__, "__doc__"})
