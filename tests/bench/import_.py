"""``import labkit`` beside a bare Python: a notebook's set-up cell must cost nothing that one notices."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.bench import Case, Outcome
from tests.bench._machine import Others

MOST_S = 0.050
ROOT = Path(__file__).resolve().parents[2]


def _seconds(code: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    return time.perf_counter() - begin


def _beyond_bare(quick: bool) -> Outcome:
    _seconds("pass"), _seconds("import labkit")  # files into the cache
    pairs = []
    with Others() as others:
        for number in range(5 if quick else 21):  # interleaved, the order turned round every time
            names = ("pass", "import labkit") if number % 2 else ("import labkit", "pass")
            taken = {name: _seconds(name) for name in names}
            pairs.append((taken["import labkit"], taken["pass"]))
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    beyond = statistics.median(one - other for one, other in pairs)
    text = f"{1e3 * beyond:.1f} ms ({1e3 * ours:.0f} ms against {1e3 * bare:.0f} ms; {others.text})"
    return Outcome(text, beyond < MOST_S)


def cases() -> list[Case]:
    return [Case("import labkit", f"less than {1e3 * MOST_S:.0f} ms beyond bare Python", _beyond_bare)]
