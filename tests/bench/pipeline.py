"""Lesson 08: the idle share of a pipeline that computes, against (p - 1) / (m + p - 1).

Two ranks of one thread, GPipe and 1F1B with 2, 4 and 8 micro-batches by turns. Micro-batches are made large enough to
take 50 ms or more on a rank (forward and backward), because sending and Python's own work are no part of the formula.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from labkit import launch
from labkit.lessons.pipeline_view import idle_shares, measured
from labkit.lessons.schedules import SCHEDULES, bubble, orders
from tests.bench import Case, Outcome
from tests.bench._machine import Others

RANKS, MICROS = 2, (2, 4, 8)
LEAST_S, AIM_S, CLOSE = 0.050, 0.080, 0.10
SCRIPT = Path(__file__).resolve().parents[1] / "ranks" / "stages.py"


def _idle(quick: bool) -> Outcome:
    every = {f"{name} {m}": orders(schedule, RANKS, m) for name, schedule in SCHEDULES.items() for m in MICROS}
    values = {"orders": every, "layers": 12, "width": 768, "rows": 32, "turns": 3 if quick else 10, "least_s": AIM_S}
    with Others() as others:
        results = launch.torchrun(SCRIPT, RANKS, threads=1, values=values, timeout_s=600, show=False)
    shares = idle_shares(results)
    one_s = min(_busy_s(results, name) for name in every)
    near = all(abs(shares[f"{name} {m}"] - bubble(RANKS, m)) <= CLOSE for name in SCHEDULES for m in MICROS)
    falls = all(shares[f"{name} {a}"] > shares[f"{name} {b}"] for name in SCHEDULES
                for a, b in itertools.pairwise(MICROS))
    told = "; ".join(f"{name} " + ", ".join(f"m={m} {shares[f'{name} {m}']:.2f}" for m in MICROS) for name in SCHEDULES)
    formula = ", ".join(f"{bubble(RANKS, m):.2f}" for m in MICROS)
    text = f"{told}; formula {formula}; {1000 * one_s:.0f} ms a micro-batch; {others.text}"
    return Outcome(text, near and falls and one_s >= LEAST_S)


def _busy_s(results, name: str) -> float:
    """The shortest time that a micro-batch took on a rank, forward and backward, on average over a turn."""
    micro = int(name.split(" ")[1])
    turns = range(1, len(results[0]["runs"][name]))
    return min(sum(span.end - span.start for span in row) / micro
               for turn in turns for row in measured(results, name, turn).rows)


def _kept(quick: bool) -> Outcome:
    """The most bytes kept on rank 0 with eight micro-batches: 1F1B keeps as many as there are ranks."""
    every = {f"{name} 8": orders(schedule, RANKS, 8) for name, schedule in SCHEDULES.items()}
    values = {"orders": every, "layers": 4, "width": 256, "rows": 32, "turns": 1}
    results = launch.torchrun(SCRIPT, RANKS, threads=1, values=values, show=False)
    bytes_kept = {name: results[0]["runs"][name][0]["kept_bytes"] for name in every}
    ratio = bytes_kept["GPipe 8"] / bytes_kept["1F1B 8"]
    return Outcome(f"GPipe {bytes_kept['GPipe 8']:,} B, 1F1B {bytes_kept['1F1B 8']:,} B: {ratio:g}x", ratio == 4)


def cases() -> list[Case]:
    return [
        Case("idle share", f"within {CLOSE} of (p-1)/(m+p-1) for m = 2, 4, 8, falling, >= 50 ms a micro-batch", _idle),
        Case("bytes kept", "GPipe keeps 8 / 2 times as much as 1F1B", _kept),
    ]
