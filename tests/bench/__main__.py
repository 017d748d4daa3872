"""Run benches and print one table, each result beside its goal; exit status 1 when one falls short.

    python -m tests.bench                          all of them
    python -m tests.bench --only verdicts,measure  some
    python -m tests.bench --only verdicts --match idle    cases whose name contains "idle"
    python -m tests.bench --quick                  fewer repetitions: shows that it runs, proves less
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

from tests import bench

MARKS = {True: "ok", False: "SHORT", None: "-"}
RESULT, GOAL = 58, 40  # columns of the table
MORE_VISITS = 4  # after all other cases, to one for which the machine was never idle enough


def measured(name: str, case: bench.Case, quick: bool) -> dict:
    """Run one case: a row. A case that breaks falls short; the others still run."""
    begin = time.perf_counter()
    try:
        outcome = case.run(quick)
    except Exception as error:
        outcome = bench.Outcome(f"{type(error).__name__}: {error}", ok=False)
    return {"bench": name, "case": case.name, "goal": case.goal, "result": outcome.text, "ok": outcome.ok,
            "too_early": outcome.too_early, "seconds": round(time.perf_counter() - begin, 1)}  # fmt: skip


def _visits(rows: list[dict], count: int, more: int) -> Iterator[int]:
    """Which case comes next: each once, then up to ``more`` times those whose row says that it was too early."""
    yield from range(count)
    for _ in range(more):
        yield from [number for number, row in enumerate(rows) if row["too_early"]]


def table(rows: list[dict]) -> str:
    """Every target, what came out beside what was promised; long texts go on in the next line."""
    first = max(len(f"{row['bench']}: {row['case']}") for row in rows)
    lines = [f"{'':<7}{'target':<{first}}  {'result':<{RESULT}}  {'goal':<{GOAL}}  {'s':>5}"]
    for row in rows:
        texts = [textwrap.wrap(" ".join(row[key].split()), width) or [""] for key, width in (("result", RESULT),
                                                                                             ("goal", GOAL))]
        for number in range(max(map(len, texts))):
            result, goal = (text[number] if number < len(text) else "" for text in texts)
            start = f"{MARKS[row['ok']]:<7}{row['bench']}: {row['case']}" if number == 0 else ""
            seconds = f"{row['seconds']:>5.0f}" if number == 0 else ""
            lines.append(f"{start:<{first + 7}}  {result:<{RESULT}}  {goal:<{GOAL}}  {seconds}".rstrip())
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="BENCH,…", help="benches to run; default all")
    parser.add_argument("--match", default="", metavar="TEXT", help="only cases whose name contains TEXT")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--list", action="store_true", help="print the cases and their goals, run nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON too")
    options = parser.parse_args(arguments)

    found = bench.discover()
    names = [name for name in options.only.split(",") if name] or sorted(found)
    if unknown := [name for name in names if name not in found]:
        parser.error(f"no bench named {', '.join(unknown)}; there are: {', '.join(sorted(found))}")
    chosen = [(name, case) for name in names for case in found[name]() if options.match in case.name]
    if not chosen:
        parser.error(f"no case matches {options.match!r}")
    if options.list:
        for name, case in chosen:
            print(f"{name}: {case.name}  (goal: {case.goal})")
        return 0

    rows: list[dict] = []
    for number in _visits(rows, len(chosen), 0 if options.quick else MORE_VISITS):
        name, case = chosen[number]
        print(f"[{number + 1}/{len(chosen)}] {name}: {case.name} …", flush=True)
        row = measured(name, case, options.quick)
        if number < len(rows):
            row["seconds"] = round(row["seconds"] + rows[number]["seconds"], 1)
        rows[number : number + 1] = [row]
        print(f"{MARKS[row['ok']]:<7}{' '.join(row['result'].split())}", flush=True)
        if options.json:  # after each: a machine that is rented by the hour may be gone before the last one ends
            text = json.dumps({"quick": options.quick, "rows": rows}, indent=1, ensure_ascii=False)
            options.json.write_text(text + "\n", encoding="utf-8")
    short = sum(row["ok"] is False for row in rows)
    print(f"\n{table(rows)}\n\n{len(rows)} targets, {short} short of the goal" + (" (quick)" if options.quick else ""))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
