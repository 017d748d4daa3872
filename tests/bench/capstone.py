"""Lesson 11's promise: the place-name GPT as people first write it against the way the course taught, on two cores.

Each training has processes of its own. Both ways are one process with two threads (``CAPSTONE_LAST=ranks``: the last
way as two ranks with one thread each). The last way starts with an empty Inductor cache, so its total holds a cold
compile, and the start of the ranks where there are any. All get the same names in the same batches, seed and thread
count. The naive way trains for a little over five minutes, until its validation loss is lower than ever before; the
last way until its own is no higher than that.

    python -m tests.bench --only capstone --match "seed 0"      one seed
    python -m tests.bench --only capstone                       the ratio of a step, three seeds, their median

A seed that is done is kept in ``.cache/capstone`` under a fingerprint of the code and the machine, for a day: a bench
that was interrupted goes on with the next training. ``CAPSTONE_FRESH=1`` measures everything anew.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
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
EVERY, MOST = 25, 1.5  # steps between validation losses; how many times as many steps the last way may need
QUICK_S = 20.0
A_STEP, IN_TOTAL, LEAST_S, CORES = 3.0, 2.5, 300.0, 2
STEP_S = 40.0
TESTS = Path(__file__).resolve().parents[1]
KEPT = TESTS.parent / ".cache" / "capstone"
DAY_S = 86_400.0
SIZE = name_gpt.SIZES["long"]
# Which last way is trained: "one", in one process; "ranks", with data parallelism on top.
LAST = os.environ.get("CAPSTONE_LAST", "one")


def _fingerprint() -> str:
    sources = [Path(module.__file__).read_bytes() for module in (ladder, name_batches, name_gpt)]
    facts = hardware.provenance()
    facts.pop("utc")
    text = json.dumps([facts, LEAST_S, EVERY, LAST, asdict(ladder.final()), asdict(SIZE)], sort_keys=True)
    return hashlib.sha256(b"".join([*sources, Path(__file__).read_bytes(), text.encode()])).hexdigest()[:16]


def _training(kind: str, seed: int, quick: bool, **limits) -> dict:
    """One training in processes of its own, or what an interrupted bench kept of it."""
    file = KEPT / f"{_fingerprint()}-{kind}-{seed}{'-quick' if quick else ''}.json"
    fresh = os.environ.get("CAPSTONE_FRESH") == "1"
    if not fresh and file.is_file() and time.time() - file.stat().st_mtime < DAY_S:
        return json.loads(file.read_text()) | {"kept": True}
    order = {"kind": kind, "seed": seed, "every": 10 if quick else EVERY, **limits}
    with tempfile.TemporaryDirectory() as empty, Others() as others:
        found = _in_ranks(order, empty) if kind == "ranks" else _in_one(order, empty)
    found |= {"others": others.text}
    KEPT.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(".part")
    half.write_text(json.dumps(found))
    half.replace(file)
    return found


def _in_one(order: dict, cache: str) -> dict:
    done = subprocess.run([sys.executable, "-m", "tests.bench.capstone", json.dumps(order)], check=True, text=True,
                          env=_environment(cache), cwd=TESTS.parent, stdout=subprocess.PIPE)  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def _in_ranks(order: dict, cache: str) -> dict:
    """As many ranks of one thread as the one process has threads."""
    kept = dict(os.environ)
    os.environ.clear()
    os.environ.update(_environment(cache))
    try:
        results = launch.torchrun(TESTS / "ranks" / "capstone_train.py", CORES, threads=1, timeout_s=1800,
                                  stall_s=None, show=False, values=order | {"size": "long", "begin": time.time()})
    finally:
        os.environ.clear()
        os.environ.update(kept)
    return dict(results[0])


def _environment(cache: str) -> dict:
    """The threads' own settings are left as a learner has them."""
    own = {name: text for name, text in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    return own | {"TORCHINDUCTOR_CACHE_DIR": cache, "OMP_NUM_THREADS": str(min(CORES, os.cpu_count() or 1))}


def _child(order: dict) -> None:
    """In the child: train, print one line of JSON."""
    way = ladder.NAIVE if order["kind"] == "naive" else ladder.final()
    del order["kind"]
    run = ladder.train(way, SIZE, **order)
    print(json.dumps({"history": run.history, "step_s": run.median_step_s}))


@functools.cache
def _seed(seed: int, quick: bool) -> dict:
    limits = {"most_s": QUICK_S} if quick else {"least_s": LEAST_S, "most_s": 2 * LEAST_S}
    naive = _training("naive", seed, quick, **limits)
    steps, _, target = naive["history"][-1]
    final = _training(LAST, seed, quick, target=target, steps=int(MOST * steps))
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


def _usual() -> list[int]:
    """Of the first hundred batches the one with as many letters as most: how much packing gains depends on it."""
    first = itertools.islice(name_batches.plan(SIZE.batch, 0), 101)
    return sorted(first, key=name_batches.tokens_in)[50]


def _step(quick: bool) -> Outcome:
    """Naive and last way interleaved, so that what disturbs the machine hits both."""
    found = climbing.Ladder(SIZE, way=ladder.final(), numbers=_usual())
    with Others() as others:
        run = found.total(budget_s=STEP_S / 4 if quick else STEP_S)
    r = run.ratio("final")
    text = f"{r.value:.2f}x [{r.low:.2f}, {r.high:.2f}]; {others.text}"
    return Outcome(text, r.value >= A_STEP)


def _rungs(quick: bool) -> Outcome:
    """Every rung on its own: at least one popular one makes this model slower."""
    found = climbing.Ladder(SIZE, budget_s=3.0 if quick else 8.0, numbers=_usual())
    with Others() as others:
        rungs = [found.climb(name) for name in ladder.RUNGS if found.way_with(name) != found.way]
    told = ", ".join(f"{rung.name} {rung.found.ratio(rung.name).value:.2f}x {rung.found.verdict(rung.name)}, "
                     f"{units.size(rung.peaks[1])}" for rung in rungs)  # fmt: skip
    return Outcome(f"{told}; {others.text}", any(rung.found.verdict(rung.name) == "slower" for rung in rungs))


def _ranks(quick: bool) -> Outcome:
    """Data parallel on top: two ranks of one thread beside one process with two, all in turns."""
    with Others() as others:
        results = launch.torchrun(TESTS / "ranks" / "capstone_turns.py", CORES, threads=1, timeout_s=600,
                                  stall_s=None, show=False,
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
