"""Where marks are kept: nbgrader's gradebook for the marks, a small database beside it for how they came about."""

from __future__ import annotations

import contextlib
import datetime
import json
import sqlite3
import warnings

from labkit import _classroom_course as courses
from labkit import _classroom_marker as marker


class Record:
    """What is known about each graded submission; one row is written when all of it is done."""

    def __init__(self, course: courses.Course):
        course.root.mkdir(parents=True, exist_ok=True)
        self._file = sqlite3.connect(course.root / "labkit.db", timeout=30)
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("CREATE TABLE IF NOT EXISTS done (student TEXT, lesson TEXT, fingerprint TEXT, report TEXT, "
                           "PRIMARY KEY (student, lesson))")
        self._file.commit()

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    def fingerprint(self, student: str, lesson: str) -> str:
        row = self._file.execute("SELECT fingerprint FROM done WHERE student=? AND lesson=?", (student, lesson))
        return (row.fetchone() or [""])[0]

    def report(self, student: str, lesson: str) -> dict:
        row = self._file.execute("SELECT report FROM done WHERE student=? AND lesson=?", (student, lesson)).fetchone()
        return json.loads(row[0]) if row else {}

    def put(self, student: str, lesson: str, fingerprint: str, report: dict) -> None:
        with self._file:
            self._file.execute("INSERT OR REPLACE INTO done VALUES (?, ?, ?, ?)",
                               (student, lesson, fingerprint, json.dumps(report, ensure_ascii=False)))


@contextlib.contextmanager
def gradebook(course: courses.Course):
    """nbgrader's gradebook, open."""
    courses.alembic_on_path()
    from nbgrader.api import Gradebook

    with Gradebook(course.gradebook_url) as book:
        yield book


def save(course: courses.Course, lesson: str, student: str, notebook, marks: list[marker.Mark]) -> None:
    """Enter automatic marks by nbgrader's own step, which never touches a mark that a person gave."""
    from nbgrader.preprocessors import SaveAutoGrades

    lay_out(notebook, marks)
    courses.write(notebook, course.of_student("autograded", student, lesson))
    when = _handed_in(course, student, lesson)
    about = {"notebook": lesson, "assignment": lesson, "student": student, "db_url": course.gradebook_url}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Object of type")  # SQLAlchemy about nbgrader's order of additions
        with gradebook(course) as book:
            book.update_or_create_student(student)
            book.update_or_create_submission(lesson, student, timestamp=when)
        SaveAutoGrades().preprocess(notebook, {"nbgrader": about})


def lay_out(notebook, marks: list[marker.Mark]) -> None:
    """Write each test cell's outputs as nbgrader reads them: the marks are the value of the cell, alone."""
    import nbformat

    by_id = {mark.exercise: mark for mark in marks}
    for cell in notebook.cells:
        grade = cell.metadata.get("nbgrader", {})
        if not grade.get("grade"):
            continue
        mark = by_id[grade["grade_id"].removeprefix("test-")]
        told = [output for output in mark.outputs if "text/html" in output.get("data", {})]
        value = {"output_type": "execute_result", "execution_count": 1, "metadata": {},
                 "data": {"text/plain": repr(float(mark.points))}}
        cell.outputs, cell.execution_count = [nbformat.from_dict(item) for item in [*told, value]], 1


def _handed_in(course: courses.Course, student: str, lesson: str) -> datetime.datetime | None:
    from nbgrader.utils import parse_utc

    path = course.of_student("submitted", student, lesson).with_name("timestamp.txt")
    return parse_utc(path.read_text(encoding="utf-8").strip()) if path.exists() else None


def scores(course: courses.Course, lesson: str) -> dict[str, dict[str, tuple[float, bool]]]:
    """Student -> exercise -> (mark, whether a person gave it), from the gradebook."""
    from nbgrader.api import MissingEntry

    found: dict[str, dict[str, tuple[float, bool]]] = {}
    with gradebook(course) as book:
        try:
            submissions = book.find_assignment(lesson).submissions
        except MissingEntry:
            return {}
        for submission in submissions:
            grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
            found[submission.student_id] = {
                grade.name.removeprefix("test-"): (grade.score + (grade.extra_credit or 0),
                                                   grade.manual_score is not None)
                for grade in grades if grade.manual_score is not None or grade.auto_score is not None}
    return found


def comments(course: courses.Course, lesson: str, student: str) -> dict[str, str]:
    """Exercise -> what the instructor wrote about it in nbgrader's formgrader."""
    from nbgrader.api import MissingEntry

    with gradebook(course) as book, contextlib.suppress(MissingEntry):
        submission = book.find_submission(lesson, student)
        return {comment.name.removeprefix("ex-"): comment.manual_comment for notebook in submission.notebooks
                for comment in notebook.comments if comment.manual_comment}
    return {}
