"""A whole class, graded by the command an instructor types: killed half-way, run again, every mark exact."""

from __future__ import annotations

import csv
import datetime
import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import tests.throwaway  # noqa: F401  (puts notebooks/ on the path, for the builder below)
from labkit import _classroom_plan as plan
from labkit._classroom_sandbox import Limits
from tests import classroom_faults as faults

from builder import editions, source  # isort: skip

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="grading needs POSIX limits")]
ROOT = Path(__file__).resolve().parent.parent
AS_ROOT = ["--as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
DUE = datetime.datetime.fromtimestamp(faults.DUE, datetime.UTC).isoformat()
KILL_AFTER = 6  # submissions


def classroom(*words: str, course: Path, check: bool = True) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "labkit.classroom", *words, "--course", str(course), "--lang", "en"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def grading(course: Path) -> list[str]:
    return [sys.executable, "-m", "labkit.classroom", "grade", "01", "--course", str(course), "--lang", "en",
            "--csv", str(course / "grades.csv"), "--limit-s", "8", "--memory-gb", "2", *AS_ROOT]


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Release, hand in, collect, grade until killed, grade to the end."""
    home = tmp_path_factory.mktemp("class")
    course, downloads = home / "course", home / "downloads"
    released = {}
    for language in ("bn", "en"):
        command = ["release", "01", "--out", str(home / language)]
        done = subprocess.run([sys.executable, "-m", "labkit.classroom", *command, "--course", str(course), "--lang",
                               language], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        released[language] = home / language / f"{faults.LESSON}.ipynb"
    solved = nbformat.read(course / "source" / faults.LESSON / f"{faults.LESSON}.ipynb", as_version=4)
    people = faults.Class(released, solved, downloads, course)
    people.write()
    people.collected = classroom("collect", str(downloads), "--due", DUE, course=course).stdout
    people.released, people.home = released, home
    with subprocess.Popen(grading(course), cwd=ROOT, stdout=subprocess.PIPE, text=True) as first:
        seen = []
        for line in first.stdout:
            seen.append(line)
            if sum(found.startswith("[") for found in seen) == KILL_AFTER:
                first.kill()  # SIGKILL, in the middle of other submissions
        # Read to the end: what it announced before the signal reached it was announced.
    people.before = "".join(seen)
    second = subprocess.run(grading(course), cwd=ROOT, capture_output=True, text=True)
    assert second.returncode == 0, second.stdout + second.stderr
    people.after = second.stdout
    return people


def table(course: Path) -> dict[str, dict[str, str]]:
    with (course / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        return {row["student"].removeprefix("'"): row for row in csv.DictReader(file)}


def marks(row: dict[str, str]) -> dict[str, float] | None:
    found = {key: row[f"{key} (/{points:g})"] for key, points in faults.FULL.items()}
    return None if set(found.values()) == {""} else {key: float(value) for key, value in found.items()}


def contained(course: Path) -> dict[str, bool]:
    from labkit import _classroom_book, _classroom_course, _classroom_grade

    with _classroom_book.Record(_classroom_course.Course(course)) as record:
        return record.report(_classroom_grade.REFERENCE, faults.LESSON)["contained"]


@pytest.mark.timeout(900)
def test_every_mark_is_exact(graded):
    rows = table(graded.course)
    expected = dict(graded.expected)
    if contained(graded.course)["files"]:
        expected |= graded.contained
    assert len(expected) >= 20
    assert {student: marks(rows[student]) for student in expected} == expected
    assert set(rows) == set(graded.expected) | set(graded.contained)


def test_the_crash_lost_nothing_and_repeated_nothing(graded):
    first = set(re.findall(r"^\[\d+/\d+\] ([^:]+):", graded.before, re.MULTILINE))
    second = set(re.findall(r"^\[\d+/\d+\] ([^:]+):", graded.after, re.MULTILINE))
    everybody = len(graded.expected) + len(graded.contained)
    assert KILL_AFTER <= len(first) < everybody
    # One more may have been saved before the signal came, but not yet announced.
    assert len(first | second) >= everybody - 1
    assert not first & second
    [before] = re.findall(r"^(\d+) graded before", graded.after, re.MULTILINE)
    assert int(before) == everybody - len(second)
    assert int(before) - len(first) in (0, 1)
    assert "solutions earn full marks" in graded.before
    assert "solutions earn full marks" not in graded.after


def test_each_submission_shows_its_time(graded):
    lines = [line for line in (graded.before + graded.after).splitlines() if line.startswith("[")]
    graded_lines = [line for line in lines if "not graded" not in line]
    assert all(re.search(r", \d+\.\d s$", line) for line in graded_lines)
    print("\n".join(graded_lines))


@pytest.mark.parametrize("name", [name for name in faults.CHEATS if name not in faults.GREEDY])
def test_a_cheat_is_named_and_not_a_silent_zero(graded, name):
    student = next(found for found in graded.expected if found.startswith("cheat") and found.endswith(f" {name}"))
    notes = table(graded.course)[student]["notes"]
    assert "01-1: Changes or looks into what marks it" in notes or "ended its own process" in notes, notes


# Exercise of lesson 03, an answer that dodges the work, the marks it deserves.
DODGES = {
    "a remembered number": ("03-1", "def bytes_moved(n_ops, n, itemsize):\n    return 10 * 2**22", 0),
    "the first result again": (
        "03-1", "first = []\ndef bytes_moved(n_ops, n, itemsize):\n"
        "    first.append(2 * n_ops * n * itemsize)\n    return first[0]", 0),
    "the check's own numbers": (
        "03-1", "import sys\ndef bytes_moved(n_ops, n, itemsize):\n    frame = sys._getframe(1)\n"
        "    return 2 * n_ops * n * itemsize", 0),
    "the check's own output": (
        "03-3", "@triton.jit\ndef residual_kernel(x_ptr, r_ptr, out_ptr, n, BLOCK: tl.constexpr):\n    import gc\n"
        "    for thing in gc.get_objects():\n        if isinstance(thing, torch.Tensor) and thing.isinf().all():\n"
        "            thing.fill_(0.0)", 0),
    "one part of it": (
        "03-1", "def bytes_moved(n_ops, n, itemsize):\n    return 2 * n * itemsize + (n_ops - 1) * n", 2),
}  # fmt: skip


@pytest.fixture(scope="module")
def judge():
    from labkit._classroom_marker import Judge

    found = Judge()
    yield found
    found.close()


@pytest.mark.parametrize("name", DODGES)
def test_lesson_03_cannot_be_dodged(judge, name):
    exercise, answer, points = DODGES[name]
    read = source.read(ROOT / "notebooks/src/03_kernel_fusion.md")
    solved = editions.edition(read, "en", "https://github.com/OWNER/labkit", solved=True)
    filled = faults.answers(solved, {exercise: answer})
    [task] = [found for found in plan.exercises(filled) if found.id == exercise]
    assert judge.mark(task, "03_kernel_fusion", Limits(seconds=60)).points == points


def test_what_was_repaired_or_unreadable_is_named(graded):
    rows = table(graded.course)
    told = {"1904005": "lost their labels", "1904006": "01-3 was deleted", "1904007": "01-1 was edited",
            "1904008": "damaged or cut off", "1904009": "web page", "1904014": "no valid Python",
            "1904015": "in another cell", "1904016": "damaged"}
    for student, text in told.items():
        assert text in rows[student]["notes"], (student, rows[student]["notes"])
    assert not rows["1904001"]["notes"]
    assert "Untitled.ipynb: whose is it?" in graded.collected
    assert "points outside the zip file" in graded.collected
    assert "is later and counts" in graded.collected


def test_late_hours_and_harmless_names(graded):
    rows = table(graded.course)
    assert rows["1904013"]["hours late"] == "3.0"
    assert not rows["1904001"]["hours late"]
    raw = (graded.course / "grades.csv").read_bytes()
    assert raw.startswith(b"\xef\xbb\xbf")
    assert "রহিমা খাতুন".encode() in raw
    assert b"\n'=SUM(A1)," in raw


def test_nothing_was_written_outside(graded):
    if contained(graded.course)["files"]:
        assert not (graded.downloads / "scribble").exists()
    assert not list(graded.home.rglob("*evil*"))


@pytest.fixture(scope="module")
def given_back(graded):
    """A function: student -> their feedback page."""
    assert "pages are in" in classroom("feedback", "01", course=graded.course).stdout

    def page(student: str) -> Path:
        return graded.course / "feedback" / student / faults.LESSON / f"{faults.LESSON}.html"

    return page


def test_hidden_tests_and_solutions_are_in_no_file_that_a_learner_gets(graded, given_back):
    from labkit._classroom_course import secrets_in

    master = nbformat.read(graded.course / "source" / faults.LESSON / f"{faults.LESSON}.ipynb", as_version=4)
    files = [*graded.released.values(), graded.course / "release" / faults.LESSON / f"{faults.LESSON}.ipynb",
             given_back("1904002")]
    for file in files:
        assert secrets_in(html.unescape(file.read_text(encoding="utf-8")), master) is None
    assert secrets_in(json.dumps(master, ensure_ascii=False), master), "a search that finds nothing proves nothing"


def test_feedback_speaks_the_language_of_the_notebook(given_back):
    def page(student):
        return given_back(student).read_text(encoding="utf-8")

    assert '<html lang="bn">' in page("রহিমা খাতুন")
    assert "অনুশীলনী ১.১" in page("রহিমা খাতুন")
    assert '<html lang="en">' in page("1904001")
    assert "Exercise 1.1" in page("1904001")
    assert "web page" not in page("1904009")  # no edition is known: the page speaks Bengali
    assert not re.search(r"<script|https?://", page("1904001"))


def test_a_mark_given_by_hand_stays(graded):
    from labkit import _classroom_book, _classroom_course

    course = _classroom_course.Course(graded.course)
    with _classroom_book.gradebook(course) as book:
        book.find_grade("test-01-3", faults.LESSON, faults.LESSON, "1904012").manual_score = 3.5
        book.db.commit()
    # A later, better file: its automatic marks change, the mark by hand does not.
    graded.file("01_measuring-1904012 (2).ipynb", graded.solved(), when=faults.DUE - 60)
    classroom("collect", str(graded.downloads), "--due", DUE, course=graded.course)
    again = subprocess.run(grading(graded.course), cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0
    assert re.findall(r"^\[1/1\] (\d+):", again.stdout, re.MULTILINE) == ["1904012"]
    assert marks(table(graded.course)["1904012"]) == {"01-1": 4.0, "01-2": 5.0, "01-3": 3.5}
    graded.expected["1904012"] = {"01-1": 4.0, "01-2": 5.0, "01-3": 3.5}
