"""The marks as a table: a row a student, a column an exercise."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path

from labkit import _classroom_book as book
from labkit import _classroom_collect as collecting
from labkit import _classroom_course as courses
from labkit._classroom_words import here
from labkit.language import t

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run what begins like this


@dataclasses.dataclass(frozen=True)
class Row:
    """One student's line in the table."""

    student: str
    name: str
    edition: str
    marks: dict[str, float | None]
    late_h: float
    notes: str


def write_csv(path: Path, rows: list[Row], columns: list[tuple[str, float]]) -> None:
    """A row a student, a column an exercise, with a byte-order mark: so spreadsheets open Bengali intact."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\r\n")
    table.writerow([t("student"), t("name"), t("edition"), *(f"{name} (/{points:g})" for name, points in columns),
                    t("total"), t("out of"), t("hours late"), t("notes")])
    for row in rows:
        given = [row.marks.get(name) for name, _ in columns]
        total = f"{sum(filter(None, given)):g}" if any(mark is not None for mark in given) else ""
        marks = ["" if mark is None else f"{mark:g}" for mark in given]
        table.writerow([harmless(row.student), harmless(row.name), row.edition, *marks, total,
                        f"{sum(points for _, points in columns):g}", f"{row.late_h:.1f}" if row.late_h else "",
                        harmless(row.notes)])
    courses.write_text(path, text.getvalue(), encoding="utf-8-sig")


def harmless(text: str) -> str:
    """The text, with a quote before it where a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def table(course: courses.Course, lessons: list[str]) -> tuple[list[Row], list[tuple[str, float]]]:
    """Rows and columns of the marks table: everyone who handed in, and everyone on the roster."""
    columns = [pair for lesson in lessons for pair in courses.exercises(course.master(lesson))]
    roster = collecting.read_roster(course)
    names = {student: key for key, student in roster.items() if key != student.casefold()}
    everyone = set(roster.values())
    scores, reports = {}, {}
    with book.Record(course) as record:
        for lesson in lessons:
            scores[lesson] = book.scores(course, lesson)
            for student in course.students("submitted", lesson):
                everyone.add(student)
                reports[student, lesson] = record.report(student, lesson)
    rows = []
    for student in sorted(everyone):
        mine = [reports.get((student, lesson), {}) for lesson in lessons]
        marks = {name: value for lesson in lessons
                 for name, (value, _) in scores[lesson].get(student, {}).items()}
        rows.append(Row(student, names.get(student, ""), _first(mine, "edition"), marks,
                             max(_late_h(course, student, lesson) for lesson in lessons), _notes(mine)))
    return rows, columns


def _first(reports: list[dict], field: str) -> str:
    return next((report[field] for report in reports if report.get(field)), "")


def _notes(reports: list[dict]) -> str:
    said = [here(finding["said"]) for report in reports for finding in report.get("findings", [])]
    marks = [mark for report in reports for mark in report.get("marks", [])]
    said += [f"{mark['exercise']}: {here(mark['reasons'])}" for mark in marks if here(mark["reasons"])]
    return "; ".join(said)


def _late_h(course: courses.Course, student: str, lesson: str) -> float:
    path = course.of_student("submitted", student, lesson).with_name("handed_in.json")
    return json.loads(path.read_text(encoding="utf-8"))["late_s"] / 3600 if path.exists() else 0.0
