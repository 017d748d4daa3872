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
import time
from pathlib import Path

from tests import bench


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

    rows = []
    width = max(len(f"{name}: {case.name}") for name, case in chosen)
    for name, case in chosen:
        title = f"{name}: {case.name}".ljust(width)
        if options.list:
            print(f"{title}  goal {case.goal}")
            continue
        begin = time.perf_counter()
        outcome = case.run(options.quick)
        seconds = time.perf_counter() - begin
        mark = {True: "ok", False: "SHORT", None: "-"}[outcome.ok]
        print(f"{mark:<6}{title}  {outcome.text}  (goal: {case.goal})  [{seconds:.0f} s]", flush=True)
        rows.append({"bench": name, "case": case.name, "goal": case.goal, "result": outcome.text, "ok": outcome.ok,
                     "seconds": round(seconds, 1)})
    if options.json and rows:
        options.json.write_text(json.dumps({"quick": options.quick, "rows": rows}, indent=1, ensure_ascii=False) + "\n")
    short = sum(row["ok"] is False for row in rows)
    if rows:
        print(f"{len(rows)} lines, {short} short of the goal" + (" (quick)" if options.quick else ""))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
