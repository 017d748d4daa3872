"""Data parallelism: what a second rank brings. The launch's own cost is in ``launch``, the pipeline in ``pipeline``."""

from __future__ import annotations

from labkit.lessons.ddp_scaling import DDP, ONE, Scaling, measure
from tests.bench import Case, Outcome
from tests.bench._machine import Others

EFFICIENCY, LOWEST = 0.85, 0.80


def _text(found: Scaling, others: Others) -> str:
    e = found.efficiency
    one, both = (1e3 * found.step_s[name] for name in (ONE, DDP))
    return f"{e.value:.2f} ({e.low:.2f} to {e.high:.2f}; a step {one:.3g} and {both:.3g} ms; {others.text})"


def _measured(quick: bool, **shape) -> tuple[Scaling, Others]:
    with Others() as others:
        found = measure(ranks=2, threads=1, rounds=3 if quick else 45, ways=(ONE, DDP), timeout_s=300.0, **shape)
    return found, others


def _wide(quick: bool) -> Outcome:
    found, others = _measured(quick, width=512, layers=6, batch=2048)
    return Outcome(_text(found, others), found.efficiency.value >= EFFICIENCY and found.efficiency.low >= LOWEST)


def _narrow(quick: bool) -> Outcome:
    return Outcome(_text(*_measured(quick, width=64, layers=3, batch=32)), None)


def cases() -> list[Case]:
    return [
        Case("DDP weak scaling, 6 x 512, batch 2048 a rank, 2 ranks of one thread",
             f"at least {EFFICIENCY}, interval from {LOWEST}", _wide),
        Case("the same, 3 x 64, batch 32 a rank", "none: the case that does not pay", _narrow),
    ]  # fmt: skip
