"""Run the test lanes one after another: python tests/lanes.py [--only lint,unit] [--list]

Each lane's seconds and every skip with its reason are printed at the end. The run fails when a test fails, when a lane
runs no test at all, and on a skip that tests/allowed_skips.txt does not list.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED_SKIPS = ROOT / "tests" / "allowed_skips.txt"
PYTHON = sys.executable
FAST = "not slow and not browser and not gpu and not timing and not netns and not colab"
SLOW = "(slow or netns) and not (browser or gpu or timing)"

# A thread of OpenMP that waits for another one spins. Beside any other process it then holds the core that the other
# one needs, and small parallel work takes several times as long. Where processes run side by side it sleeps instead.
PATIENT = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
# Where nothing runs beside what is timed it waits as it does for readers: waking a sleeping thread costs small work
# much of what compiling it saves (lesson 05's LSTM).
TIMED = ("timing", "nbval", "colab", "gpu")


def pytest(*arguments: str) -> list[str]:
    return [PYTHON, "-m", "pytest", "-q", *arguments]


# Lane -> its commands, in the order they run.  A pytest command counts its tests, any other command counts as one.
LANES: dict[str, list[list[str]]] = {
    "lint": [[PYTHON, "-m", "ruff", "check", "."], [PYTHON, "notebooks/catalogue.py", "--check"]],
    "editions": [[PYTHON, "notebooks/build.py", "--check"]],
    "unit": [pytest("-m", FAST, "-n", "2", "--dist", "loadscope")],
    "unit-slow": [
        pytest("-m", f"{SLOW} and not alone", "--ignore=tests/test_solved.py", "-n", "2", "--dist", "loadfile",
               "--no-loadscope-reorder", "--durations=15"),
        # Two of them side by side: one alone keeps one of two cores busy.
        pytest("-m", f"{SLOW} and alone", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--durations=15"),
    ],
    # On their own, so that nothing heats the caches or holds a core beside them.
    "timing": [pytest("-m", "timing and not gpu")],
    "nbval": [
        pytest(
            "--nbval",
            "--nbval-current-env",
            "--nbval-sanitize-with=tests/nbval_sanitize.cfg",
            "--nbval-cell-timeout=240",
            "--timeout=0",
            "notebooks/bn",
            "notebooks/en",
        )
    ],
    "solved": [pytest("tests/test_solved.py", "-n", "2")],
    "browser": [pytest("-m", "browser")],
    "colab": [pytest("-m", "colab")],
    "gpu": [pytest("-m", "gpu")],
}


@dataclass
class Outcome:
    """What a lane came to; ``skips`` are (test, reason) pairs, ``complaints`` are why it fails although no test did."""

    passed: int = 0
    failed: int = 0
    skips: list[tuple[str, str]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, report: Path) -> None:
        """Add the tests of a JUnit report."""
        for case in ElementTree.parse(report).iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed += 1
            elif skipped is not None:
                self.skips.append((name, skipped.get("message") or "no reason given"))
            else:
                self.passed += 1

    @property
    def ok(self) -> bool:
        return not self.failed and not self.complaints


def allowed_skips(path: Path = ALLOWED_SKIPS) -> list[tuple[str, str]]:
    """(glob of the test, part of the reason), one a line."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    rows = [[part.strip() for part in line.split("|")] for line in lines]
    if any(len(row) != 3 or not all(row) for row in rows):
        raise ValueError(f"{path}: each line needs a test, a reason and why it is acceptable, with | between them")
    return [(test, reason) for test, reason, _why in rows]


def is_allowed(test: str, reason: str, allowed: list[tuple[str, str]]) -> bool:
    return any(fnmatch.fnmatch(test, glob) and part in reason for glob, part in allowed)


def run(commands: list[list[str]], allowed: list[tuple[str, str]], settings: dict[str, str] | None = None) -> Outcome:
    """Run one lane's commands, with ``settings`` in their environment; their output goes straight to the terminal."""
    outcome, began = Outcome(), time.monotonic()
    path = str(Path(PYTHON).parent) + os.pathsep + os.environ.get("PATH", "")
    environment = {**os.environ, "PATH": path, **(settings or {})}
    # Every kernel and every rank imports labkit: as on a learner's machine, it is compiled once and kept.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for command in commands:
        print("$", " ".join(["python", *command[1:]]), flush=True)
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            is_pytest = command[1:3] == ["-m", "pytest"]
            extra = [f"--junitxml={report}"] if is_pytest else []
            code = subprocess.run([*command, *extra], cwd=ROOT, env=environment).returncode
            failed_before = outcome.failed
            if is_pytest and report.exists():
                outcome.count(report)
            elif not is_pytest:
                outcome.passed += code == 0
            if code not in (0, 5) and outcome.failed == failed_before:
                outcome.failed += 1  # it could not even start, or was killed
    outcome.seconds = time.monotonic() - began
    if not outcome.passed and not outcome.failed and not outcome.skips:
        outcome.complaints.append("no test ran")
    for test, reason in outcome.skips:
        if not is_allowed(test, reason, allowed):
            outcome.complaints.append(f"a skip that tests/allowed_skips.txt does not list: {test}: {reason}")
    return outcome


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def summary(outcomes: dict[str, Outcome]) -> str:
    """The table of lanes, the skips, the complaints, and the closing line."""
    lines = ["", f"{'lane':<12}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}"]
    for name, outcome in outcomes.items():
        counts = f"{outcome.passed:>8}{outcome.failed:>8}{len(outcome.skips):>9}{outcome.seconds:>9.0f}"
        lines.append(f"{name:<12}{counts}{'' if outcome.ok else '   FAILED'}")
    reasons: dict[str, int] = {}
    for outcome in outcomes.values():
        for test, reason in outcome.skips:
            reasons[f"skipped: {test}: {reason}"] = 1
    lines += ["", *reasons] if reasons else []
    lines += [f"{name}: {text}" for name, outcome in outcomes.items() for text in outcome.complaints]
    passed = sum(outcome.passed for outcome in outcomes.values())
    failed = sum(outcome.failed + len(outcome.complaints) for outcome in outcomes.values())
    skipped = sum(len(outcome.skips) for outcome in outcomes.values())
    return "\n".join([*lines, "", f"{passed} passed, {failed} failed, {skipped} skipped"])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="LANE,LANE", help=", ".join(LANES))
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(arguments)
    wanted = [name for name in options.only.split(",") if name] or list(LANES)
    if unknown := [name for name in wanted if name not in LANES]:
        parser.error(f"no such lane: {', '.join(unknown)}; there are {', '.join(LANES)}")
    if options.list:
        print("\n".join(wanted))
        return 0
    if not options.only and not has_gpu():
        wanted.remove("gpu")
        print("The gpu lane is left out: no CUDA GPU here. make gpu runs it where there is one.")
    allowed, outcomes = allowed_skips(), {}
    with tempfile.TemporaryDirectory(prefix="labkit-colab-") as colab:  # made by one lane, used by another
        for name in wanted:
            print(f"\n== {name}", flush=True)
            settings = {"LABKIT_COLAB": colab, **({} if name in TIMED else PATIENT)}
            outcomes[name] = run(LANES[name], allowed, settings)
            print(f"== {name}: {outcomes[name].seconds:.0f} s", flush=True)
    print(summary(outcomes))
    return 0 if all(outcome.ok for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
