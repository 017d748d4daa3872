"""Lesson 11's promise: the place-name GPT as people first write it against the way the course taught, on two cores.

Each training is a process of its own. The last way starts with an empty Inductor cache, so its total holds a cold
compile. Both get the same names in the same batches, seed and thread count; the naive one trains ``STEPS`` steps (over
five minutes on two cores), the last way until its validation loss is no higher. Importing is in neither.

    python -m tests.bench --only capstone --match "seed 0"      one seed
    python -m tests.bench --only capstone                       the ratio of a step, three seeds, their median

A seed that is done is kept in ``.cache/capstone`` under a fingerprint of the code and the machine, for a day: a bench
that was interrupted goes on with the next training. ``CAPSTONE_FRESH=1`` measures everything anew.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import labkit as lab
from labkit import hardware, launch, units
from labkit.lessons import climbing, ladder, name_batches, name_gpt, rank_turns
from tests.bench import Case, Outcome
from tests.bench._machine import Others

SEEDS = (0, 1, 2)
STEPS, EVERY, MOST = 1500, 50, 1.5  # of the naive way; validation; how many times as many steps the other may need
A_STEP, IN_TOTAL, LEAST_S, CORES = 3.0, 2.5, 300.0, 2
STEP_S = 40.0
KEPT = Path(__file__).resolve().parents[2] / ".cache" / "capstone"
DAY_S = 86_400.0
SIZE = name_gpt.SIZES["long"]


def _fingerprint() -> str:
    sources = [Path(module.__file__).read_bytes() for module in (ladder, name_batches, name_gpt)]
    facts = hardware.provenance()
    facts.pop("utc")
    text = json.dumps([facts, STEPS, EVERY, asdict(ladder.final())], sort_keys=True)
    return hashlib.sha256(b"".join([*sources, Path(__file__).read_bytes(), text.encode()])).hexdigest()[:16]


def _training(kind: str, seed: int, target: float | None, quick: bool) -> dict:
    """One training in a process of its own, or what an interrupted bench kept of it."""
    file = KEPT / f"{_fingerprint()}-{kind}-{seed}{'-quick' if quick else ''}.json"
    fresh = os.environ.get("CAPSTONE_FRESH") == "1"
    if not fresh and file.is_file() and time.time() - file.stat().st_mtime < DAY_S:
        return json.loads(file.read_text()) | {"kept": True}
    with tempfile.TemporaryDirectory() as empty, Others() as others:
        order = {"kind": kind, "seed": seed, "target": target, "steps": STEPS // 50 if quick else STEPS}
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.capstone", json.dumps(order)], env=_environment(empty), check=True,
            cwd=Path(__file__).resolve().parents[2], stdout=subprocess.PIPE, text=True)  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1]) | {"others": others.text}
    KEPT.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(".part")
    half.write_text(json.dumps(found))
    half.replace(file)
    return found


def _environment(cache: str) -> dict:
    """The threads' own settings are left as a learner has them."""
    own = {name: text for name, text in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    return own | {"TORCHINDUCTOR_CACHE_DIR": cache, "OMP_NUM_THREADS": str(min(CORES, os.cpu_count() or 1))}


def _child(order: dict) -> None:
    """In the child: train, print one line of JSON."""
    way = ladder.NAIVE if order["kind"] == "naive" else ladder.final()
    naive = order["target"] is None
    run = ladder.train(way, SIZE, steps=order["steps"] if naive else int(MOST * order["steps"]), every=EVERY,
                       seed=order["seed"], target=order["target"])  # fmt: skip
    print(json.dumps({"history": run.history, "step_s": run.median_step_s, "first_s": run.history[0][1]}))


@functools.cache
def _seed(seed: int, quick: bool) -> dict:
    naive = _training("naive", seed, None, quick)
    target = naive["history"][-1][2]
    final = _training("final", seed, target, quick)
    return {"naive": naive, "final": final, "target": target,
            "naive_s": _reached(naive["history"], target), "final_s": _reached(final["history"], target)}  # fmt: skip


def _reached(history, target: float) -> float:
    return next((after_s for _, after_s, loss in history if loss <= target), float("inf"))


def _ratios(found: dict) -> tuple[float, float]:
    """How many times as fast: a step, and the time to the same validation loss."""
    return found["naive"]["step_s"] / found["final"]["step_s"], found["naive_s"] / found["final_s"]


def _one(seed: int, quick: bool) -> Outcome:
    found = _seed(seed, quick)
    a_step, in_total = _ratios(found)
    naive, final = found["naive"], found["final"]
    text = (
        f"{a_step:.2f}x a step ({units.seconds(naive['step_s'])} and {units.seconds(final['step_s'])}), "
        f"{in_total:.2f}x in total ({found['naive_s']:.0f} s and {found['final_s']:.0f} s) to validation loss "
        f"{found['target']:.4f} (steps {naive['history'][-1][0]} and {final['history'][-1][0]}, last loss "
        f"{final['history'][-1][2]:.4f}); {naive.get('others')}; {final.get('others')}"
        + ("; kept from an interrupted bench" if "kept" in naive else "")
    )
    return Outcome(text, quick or found["naive_s"] >= LEAST_S and found["final_s"] < float("inf"))


def _median(quick: bool) -> Outcome:
    steps, totals = zip(*(_ratios(_seed(seed, quick)) for seed in SEEDS), strict=True)
    a_step, in_total = statistics.median(steps), statistics.median(totals)
    ok = None if quick else a_step >= A_STEP and in_total >= IN_TOTAL
    return Outcome(f"{a_step:.2f}x a step, {in_total:.2f}x in total with a cold compile", ok)


def _step(quick: bool) -> Outcome:
    """Naive and last way interleaved, so that what disturbs the machine hits both."""
    found = climbing.Ladder(SIZE, way=ladder.final())
    with Others() as others:
        run = found.total(budget_s=STEP_S / 4 if quick else STEP_S)
    r = run.ratio("final")
    text = f"{r.value:.2f}x [{r.low:.2f}, {r.high:.2f}]; {others.text}"
    return Outcome(text, r.value >= A_STEP)


def _rungs(quick: bool) -> Outcome:
    """Every rung on its own: at least one popular one makes this model slower."""
    found = climbing.Ladder(SIZE, budget_s=3.0 if quick else 8.0)
    with Others() as others:
        rungs = [found.climb(name) for name in ladder.RUNGS]
    told = ", ".join(f"{rung.name} {rung.found.ratio(rung.name).value:.2f}x {rung.found.verdict(rung.name)}, "
                     f"{units.size(rung.peaks[1])}" for rung in rungs)  # fmt: skip
    return Outcome(f"{told}; {others.text}", any(rung.found.verdict(rung.name) == "slower" for rung in rungs))


def _ranks(quick: bool) -> Outcome:
    """Data parallel on top: two ranks of one thread beside one process with two, all in turns."""
    script = Path(__file__).resolve().parents[1] / "ranks" / "capstone_turns.py"
    with Others() as others:
        results = launch.torchrun(script, CORES, threads=1, timeout_s=600, stall_s=None, show=False,
                                  values={"size": "long", "rounds": 3 if quick else 9})  # fmt: skip
    run = rank_turns.comparison(results, baseline="naive")
    told = ", ".join(f"{name} {run.ratio(name).value:.2f}x [{run.ratio(name).low:.2f}, {run.ratio(name).high:.2f}]"
                     for name in ("final", "two ranks"))  # fmt: skip
    return Outcome(f"{told}; {others.text}", None)


def cases() -> list[Case]:
    return [
        Case("one rung after the other", "at least one of them slower", _rungs),
        Case("a step, interleaved", f">= {A_STEP}x", _step),
        Case("two ranks on top, a step", "none: shown beside one process", _ranks),
        *(Case(f"to the same loss, seed {seed}", f"naive >= {LEAST_S:.0f} s, and the loss is reached",
               functools.partial(_one, seed)) for seed in SEEDS),
        Case("median of the seeds", f">= {A_STEP}x a step, >= {IN_TOTAL}x in total with a cold compile", _median),
    ]  # fmt: skip


if __name__ == "__main__":
    lab.use_language("en")
    _child(json.loads(sys.argv[1]))
