"""Lesson 03: how much of this machine's copy bandwidth does the best fused chain reach?

Five element-wise operations on 2^25 floats (a GPU: 2^28), outputs preallocated, every candidate interleaved with
``copy_`` in the same run. The hand-written kernel is the one that the lesson prints.
"""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import torch

import labkit as lab
from labkit.lessons import l03
from tests.bench import Case, Outcome
from tests.bench._machine import Others

SHARE = 0.9
RUNS, BUDGET_S = 5, 4.0
LESSON = Path(__file__).resolve().parents[2] / "notebooks" / "src" / "03_kernel_fusion.md"


def _chain(x):
    return torch.relu(x * 0.5 + 1.0) * 2.0 - 3.0


def _eager(x, out):
    torch.mul(x, 0.5, out=out)
    return out.add_(1.0).relu_().mul_(2.0).sub_(3.0)


def _candidates() -> dict:
    """``copy_`` and its rivals, each ``fn()`` writing to the same output; right answers are asserted here."""
    x = torch.randn(lab.pick(cpu=2**25, gpu=2**28), device=lab.device())
    out = torch.ones_like(x)
    compiled = torch.compile(lambda x, out: out.copy_(_chain(x)))
    rivals = {"eager": _eager, "compiled": compiled}
    if x.device.type == "cpu":
        source = re.search(r'CHAIN_CPP = """(.*?)"""', LESSON.read_text(encoding="utf-8"), re.DOTALL)[1]
        rivals["C++"] = l03.cpp_function("fused_chain", source)
    expected = _chain(x)
    for name, fn in rivals.items():
        assert torch.allclose(fn(x, out), expected, atol=1e-5), name
    return {"copy_": lambda: out.copy_(x), **{k: lambda fn=fn: fn(x, out) for k, fn in rivals.items()}}


def _bandwidth(quick: bool) -> Outcome:
    candidates = _candidates()
    shares: dict[str, list[float]] = {name: [] for name in candidates if name != "copy_"}
    with Others() as others:
        for _ in range(2 if quick else RUNS):
            run = lab.compare(candidates, baseline="copy_", budget_s=BUDGET_S, check=lambda copied, other: True)
            for name, found in shares.items():
                found.append(run.ratio(name).value)
    medians = {name: statistics.median(found) for name, found in shares.items()}
    best = max(share for name, share in medians.items() if name != "eager")
    copy = lab.units.bandwidth(2 * 4 * lab.pick(cpu=2**25, gpu=2**28) / run.medians_s["copy_"])
    told = ", ".join(f"{name} {share:.2f}" for name, share in medians.items())
    return Outcome(f"{told} of copy_ ({copy}; {others.text})", best >= SHARE)


def _allocation(quick: bool) -> Outcome:
    """Fresh memory against preallocated, same kernels: what is not fusion."""
    x = torch.randn(lab.pick(cpu=2**24, gpu=2**27), device=lab.device())
    out = torch.ones_like(x)
    pair = {"fresh": lambda: _chain(x), "preallocated": lambda: _eager(x, out)}
    run = lab.compare(pair, baseline="fresh", budget_s=2.0 if quick else 6.0, check=l03.agree)
    faults = {name: l03.page_faults(fn) for name, fn in pair.items()}
    kernels = {name: l03.traffic(fn).kernels for name, fn in pair.items()}
    same = kernels["fresh"] == kernels["preallocated"]
    text = f"{run.ratio('preallocated').value:.2f}x at equal kernels; page faults {faults}"
    return Outcome(text, same and (x.device.type != "cpu" or run.ratio("preallocated").low > 1))


def cases() -> list[Case]:
    return [
        Case("best fused chain", f">= {SHARE} of copy_, median of {RUNS} runs", _bandwidth),
        Case("allocation apart from fusion", "equal kernels, preallocated faster on a CPU", _allocation),
    ]
