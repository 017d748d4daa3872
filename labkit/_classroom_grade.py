"""Grade every submission of a lesson: preflight, mark in closed-in processes, save; go on where a crash left off."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import queue
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed

import labkit
from labkit import _classroom_book as book
from labkit import _classroom_course as courses
from labkit import _classroom_notebook as notebooks
from labkit import _classroom_plan as plan
from labkit import _classroom_preflight as checks
from labkit._classroom_marker import Judge, Mark
from labkit._classroom_sandbox import Limits
from labkit.language import t

REFERENCE = "reference"  # stands for a student: the solutions, marked first
_PATIENCE_S, _TIMES = 10.0, 10.0  # an exercise may take this long, and this many times as long as the solution did


@dataclasses.dataclass(frozen=True)
class Options:
    """How to grade. ``limit_s`` is the time of one exercise; by default ten times the solution's and ten seconds."""

    workers: int = 2
    limit_s: float | None = None
    memory_gb: float = 4.0
    as_root: bool = False
    again: bool = False  # also what has been graded already


def check_all(course: courses.Course, lesson: str, say: Callable[[str], None] = print) -> dict[str, checks.Checked]:
    """Preflight every submission of a lesson: write what can be graded to ``checked/``, name the rest."""
    master, released = course.master(lesson), courses.read(course.release(lesson))
    found = {}
    for student in course.students("submitted", lesson):
        path = course.of_student("submitted", student, lesson)
        try:
            checked = checks.preflight(notebooks.read(path), master, released)
        except notebooks.UnreadableError as error:
            checked = checks.unreadable(error)
        if checked.usable:
            courses.write(checked.notebook, course.of_student("checked", student, lesson))
        found[student] = checked
        signs = {"problem": "✗", "repaired": "✓", "note": "–"}
        for finding in checked.findings:
            say(f"{signs[finding.kind]} {student}: {finding.text}")
    return found


def grade(course: courses.Course, lesson: str, options: Options, say: Callable[[str], None] = print) -> list[str]:
    """Mark every submission of ``lesson`` that is new or changed. Gives the students graded now.

    Raises ClassroomError as root unless told, and when the solutions themselves do not earn full marks here.
    """
    refuse_root(options.as_root)
    checked = check_all(course, lesson, say)
    limits = Limits(memory_bytes=int(options.memory_gb * 2**30))
    stamp = _stamp(course, lesson)
    with book.Record(course) as record, _judges(options.workers) as judges:
        spent = _reference(course, lesson, stamp, limits, judges, record, say)
        todo = {}
        for student, one in checked.items():
            mark = _fingerprint(one, stamp)
            if options.again or record.fingerprint(student, lesson) != mark:
                todo[student] = mark
        if len(todo) < len(checked):
            say(t("{count} graded before, unchanged.", count=len(checked) - len(todo)))

        def work(student: str):
            one, began = checked[student], time.monotonic()
            if not one.usable:
                return student, [], 0.0
            judge = judges.get()
            try:
                marks = [judge.mark(item, lesson, _limit(limits, options.limit_s, spent[item.id]))
                         for item in plan.exercises(one.notebook)]
            finally:
                judges.put(judge)
            return student, marks, time.monotonic() - began

        with ThreadPoolExecutor(options.workers) as pool:
            running = [pool.submit(work, student) for student in todo]
            try:
                for number, future in enumerate(as_completed(running), 1):
                    student, marks, seconds = future.result()
                    one = checked[student]
                    _keep(course, lesson, student, one, marks, seconds, todo[student], record)
                    say(_line(number, len(todo), student, marks, seconds))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return list(todo)


def refuse_root(told: bool) -> None:
    """Raise ClassroomError for root, who may do anything that the learners' code should not; and on Windows."""
    if os.name != "posix":
        raise courses.ClassroomError(t("Grading needs Linux; on Windows, use WSL. The other commands work here too."))
    if hasattr(os, "geteuid") and os.geteuid() == 0 and not told:
        raise courses.ClassroomError(t(
            "You are root, and learners' code would start with root's rights. Grade as an ordinary user; or, in a "
            "container made for this, add: --as-root"))


@contextlib.contextmanager
def _judges(count: int):
    every = [Judge(slot=slot) for slot in range(count)]
    free: queue.Queue = queue.Queue()
    for judge in every:
        free.put(judge)
    try:
        yield free
    finally:
        for judge in every:
            judge.close()


def _limit(limits: Limits, told_s: float | None, reference_s: float) -> Limits:
    return dataclasses.replace(limits, seconds=told_s or _PATIENCE_S + _TIMES * reference_s)


def _reference(course, lesson, stamp: str, limits: Limits, judges, record: book.Record, say) -> dict[str, float]:
    """Mark the solutions once on this machine: what they cannot earn here, nobody can. Exercise -> seconds."""
    master = course.master(lesson)
    if record.fingerprint(REFERENCE, lesson) != stamp:
        judge = judges.get()
        try:
            patient = dataclasses.replace(limits, seconds=300.0)
            marks = [judge.mark(item, lesson, patient) for item in plan.exercises(master)]
        finally:
            judges.put(judge)
        short = [mark for mark in marks if mark.points != mark.max_points]
        if short:
            reasons = "\n".join(f"  {m.exercise}: {m.points} / {m.max_points:g} {m.reason}" for m in short)
            raise courses.ClassroomError(t(
                "On this machine the solutions themselves do not earn full marks, so nothing was graded:\n{reasons}\n"
                "See what is missing: python -c \"import labkit; print(labkit.machine())\"", reasons=reasons))
        seconds = {mark.exercise: mark.seconds for mark in marks}
        record.put(REFERENCE, lesson, stamp, {"seconds": seconds, "contained": marks[0].contained})
        say(t("The solutions earn full marks here, in {seconds:.1f} s.", seconds=sum(seconds.values())))
        say(containment(marks[0].contained or {}))
    return record.report(REFERENCE, lesson)["seconds"]


def containment(contained: dict) -> str:
    """Say plainly what keeps the learners' code in, and what does not."""
    names = {"network": t("network"), "processes": t("other processes"), "files": t("files outside its folder"),
             "unprivileged": t("administrator's rights")}
    held = ", ".join(text for key, text in names.items() if contained.get(key))
    loose = ", ".join(text for key, text in names.items() if not contained.get(key))
    lines = [t("Time, memory of each process, size of each file and number of processes are limited.")]
    if held:
        lines.append(t("Out of reach for the learners' code: {what}.", what=held))
    if loose:
        lines.append(t("NOT out of reach on this system: {what}. Grade on a machine that holds nothing else.",
                       what=loose))
    return "\n".join(lines)


def _stamp(course: courses.Course, lesson: str) -> str:
    """Changes with the master notebook, labkit, and the checks of the lesson."""
    parts = [course.source(lesson).read_bytes(), labkit.__version__.encode()]
    package = courses.CLONE / "labkit"
    parts += [path.read_bytes() for path in sorted((package / "lessons").glob("*.py"))]
    parts += [(package / f"{name}.py").read_bytes() for name in ("exercises", "tasks", "marks")]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _fingerprint(checked: checks.Checked, stamp: str) -> str:
    findings = [dataclasses.astuple(finding) for finding in checked.findings]
    return hashlib.sha256(json.dumps([checked.notebook, findings, stamp], sort_keys=True).encode()).hexdigest()


def _keep(course, lesson, student, checked, marks: list[Mark], seconds: float, fingerprint: str, record) -> None:
    """Marks first, then the note that they are complete: a crash in between costs a repetition, never a mark."""
    unmarked = [mark for mark in marks if mark.points is None]
    if marks and not unmarked:
        book.save(course, lesson, student, checked.notebook, marks)
    report = {
        "edition": checked.edition, "seconds": seconds,
        "findings": [dataclasses.asdict(finding) for finding in checked.findings],
        "marks": [dataclasses.asdict(mark) for mark in marks],
    }
    record.put(student, lesson, "" if unmarked else fingerprint, report)


def _line(number: int, of: int, student: str, marks: list[Mark], seconds: float) -> str:
    if not marks:
        return t("[{number}/{of}] {student}: not graded, see above", number=number, of=of, student=student)
    got = sum(mark.points or 0 for mark in marks)
    line = t("[{number}/{of}] {student}: {got:g} of {full:g}, {seconds:.1f} s", number=number, of=of, student=student,
             got=got, full=sum(mark.max_points for mark in marks), seconds=seconds)
    looks = [f"\n    {mark.exercise}: {mark.reason}" for mark in marks if mark.suspicious or mark.points is None]
    return line + "".join(looks)
