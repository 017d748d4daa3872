"""What more lessons and more students cost: time and memory of the build, of collecting tests, and of grading.

Each part runs in a process of its own on small, medium and large input; the time of the large one may not be more than
in proportion to the small one's, and the memory hardly more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests import throwaway
from tests.bench import Case, Outcome

LESSONS, STUDENTS = (3, 6, 12), (5, 10, 20)
TIME, MEMORY = 1.15, 1.25  # times the proportional growth; times the small one's memory
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Cost:
    seconds: float
    peak_bytes: int


# Linux counts in the peak of a process what its parent held when it was forked: so the parent is a small one.
SMALL_PARENT = """
import os, subprocess, sys, time
begin = time.perf_counter()
process = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(process.pid, 0)
with open(sys.argv[1], "w") as out:
    print(time.perf_counter() - begin, usage.ru_maxrss, os.waitstatus_to_exitcode(status), file=out)
"""


def cost(command: list[str], folder: Path) -> Cost:
    """Run it; seconds by the wall clock and the largest process's memory. Raises RuntimeError when it fails."""
    said, log = folder / "cost", folder / "log"
    with log.open("w") as out:
        subprocess.run([sys.executable, "-S", "-c", SMALL_PARENT, said, *command], cwd=folder, stdout=out,
                       stderr=subprocess.STDOUT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)  # fmt: skip
    seconds, peak, status = map(float, said.read_text().split())
    if status:
        raise RuntimeError(f"{' '.join(command)}\n{log.read_text()[-2000:]}")
    return Cost(seconds, int(peak) * (1 if sys.platform == "darwin" else 1024))


def judged(sizes: tuple[int, ...], costs: list[Cost], unit: str) -> Outcome:
    """Growth no worse than in proportion, memory nearly level."""
    factor = sizes[-1] / sizes[0]
    ok = (costs[-1].seconds <= TIME * factor * costs[0].seconds
          and costs[-1].peak_bytes <= MEMORY * costs[0].peak_bytes)  # fmt: skip
    told = [f"{n} {unit} {c.seconds:.1f} s, {c.peak_bytes / 1e6:.0f} MB" for n, c in zip(sizes, costs, strict=True)]
    return Outcome("; ".join(told), ok)


def _course(folder: Path, lessons: int) -> Path:
    """A course of ``lessons`` copies of the throw-away lesson, each with a number and exercises of its own."""
    root = throwaway.course(folder)
    source = (root / f"notebooks/src/{throwaway.NAME}.md").read_text(encoding="utf-8")
    for number in range(91 - lessons, 90):
        text = source.replace("90-1", f"{number}-1").replace("Exercise 90.1", f"Exercise {number}.1")
        digits = str(number).translate(str.maketrans("0123456789", "০১২৩৪৫৬৭৮৯"))
        throwaway.write(root, text.replace("অনুশীলনী ৯০.১", f"অনুশীলনী {digits}.১"), f"{number}_copy")
    return root


def _build(folder: Path, lessons: int) -> Cost:
    root = _course(folder, lessons)
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'notebooks')!r}); import build; from pathlib import Path; "
    code += f"sys.exit(build.main(['--no-execute'], root=Path({str(root)!r})))"
    return cost([sys.executable, "-c", code], folder)


def _collect(folder: Path, lessons: int) -> Cost:
    """What pytest needs to find the cells of as many committed lessons as there are, some of them twice."""
    found = sorted((ROOT / "notebooks/en").glob("[0-9][0-9]_*.ipynb"))[:3]
    for number in range(lessons):
        shutil.copy(found[number % len(found)], folder / f"{number:02}.ipynb")
    return cost([sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", "--collect-only", "-c",
                 "/dev/null", f"--rootdir={folder}", str(folder)], folder)  # fmt: skip


def _grade(folder: Path, students: int) -> Cost:
    """The first ``students`` of the simulated class, every one with the solutions of lesson 01."""
    import nbformat

    from tests import classroom_faults as faults

    classroom = [sys.executable, "-m", "labkit.classroom"]
    course = ["--course", str(folder / "course"), "--lang", "en"]
    cost([*classroom, "release", "01", "--out", str(folder), *course], folder)
    solved = nbformat.read(folder / "course/source" / faults.LESSON / f"{faults.LESSON}.ipynb", as_version=4)
    released = nbformat.read(folder / f"{faults.LESSON}.ipynb", as_version=4)
    answers = {key: cell.source for cell in solved.cells
               if (key := cell.metadata.get("nbgrader", {}).get("grade_id", "")).startswith("ex-")}  # fmt: skip
    (folder / "downloads").mkdir()
    for number in range(students):
        mine = faults.answers(released, {key.removeprefix("ex-"): text for key, text in answers.items()})
        nbformat.write(mine, folder / "downloads" / f"student{number:02}_{faults.LESSON}.ipynb")
    cost([*classroom, "collect", str(folder / "downloads"), *course], folder)
    as_root = ["--as-root"] if os.geteuid() == 0 else []
    return cost([*classroom, "grade", "01", *course, "--memory-gb", "2", *as_root], folder)


def _case(name: str, sizes: tuple[int, ...], unit: str, one: Callable[[Path, int], Cost]) -> Case:
    def run(quick: bool) -> Outcome:
        costs = []
        for size in sizes:
            with tempfile.TemporaryDirectory() as folder:
                costs.append(one(Path(folder), size))
        return judged(sizes, costs, unit)

    return Case(name, f"time x{sizes[-1] / sizes[0]:g} at most (+15%), memory x{MEMORY} at most", run)


def cases() -> list[Case]:
    found = [_case("build without running", LESSONS, "lessons", _build),
             _case("collecting tests", LESSONS, "lessons", _collect)]  # fmt: skip
    if os.name == "posix":
        found.append(_case("grading", STUDENTS, "students", _grade))
    return found
