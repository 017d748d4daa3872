"""One page for each student, in the language of the notebook they handed in: marks, verdicts, their code, comments."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from pathlib import Path

from labkit import _classroom_book as book
from labkit import _classroom_course as courses
from labkit import _classroom_plan as plan
from labkit._classroom_page import page, table
from labkit._classroom_words import here
from labkit.language import bengali_digits, current_language, speaking, t

# Verdicts are HTML that labkit drew, but in a process that the learner's code shared: nothing active may come through.
_ACTIVE = re.compile(r"<(?!/?(?:div|b|pre|span|p|code|i|em|br)\b)|\bon\w+\s*=|javascript:|url\s*\(", re.IGNORECASE)


def feedback(course: courses.Course, lesson: str, say: Callable[[str], None] = print) -> list[Path]:
    """Write ``feedback/STUDENT/LESSON/LESSON.html`` for everyone who handed in; hidden tests are not shown."""
    scores, pages = book.scores(course, lesson), []
    with book.Record(course) as record:
        for student in course.students("submitted", lesson):
            report = record.report(student, lesson)
            if not report:
                say(t("– {student}: not graded yet. Type: python -m labkit.classroom grade {number}", student=student,
                      number=lesson[:2]))
                continue
            path = course.of_student("feedback", student, lesson).with_suffix(".html")
            with speaking(report["edition"]):
                words = book.comments(course, lesson, student)
                text = _page(course, lesson, student, report, scores.get(student, {}), words)
            courses.write_text(path, text)
            pages.append(path)
    return pages


def _page(course, lesson: str, student: str, report: dict, given: dict, words: dict[str, str]) -> str:
    # The master's cell ids say which exercise a cell belongs to; the answers are those that were marked.
    marks = report["marks"]
    rows = [[_number(mark["exercise"]), _points(given, mark), f"{mark['max_points']:g}"] for mark in marks]
    got = sum(value for value, _ in given.values())
    rows.append([t("total"), f"{got:g}" if given else "–", f"{sum(mark['max_points'] for mark in marks):g}"])
    body = table([t("exercise"), t("marks"), t("out of")], rows) if marks else ""
    body += "".join(f'<p class="note">{escape(here(finding["said"]))}</p>' for finding in report["findings"])
    answers = _answers(course, lesson, student) if marks else {}
    for mark in marks:
        body += _section(mark, given, answers.get(mark["exercise"], ""), words.get(mark["exercise"], ""))
    title = t("Lab {number}: marks of {student}", number=_digits(str(int(lesson[:2]))), student=student)
    return page(title, current_language(), body)


def _section(mark: dict, given: dict, answer: str, comment: str) -> str:
    exercise = mark["exercise"]
    html = f"<h2>{escape(t('Exercise {number}', number=_number(exercise)))}</h2>"
    by_hand = exercise in given and given[exercise][1]
    if by_hand:
        html += f'<p class="note">{escape(t("This mark was given by your teacher."))}</p>'
    if comment:
        html += f'<p class="note"><b>{escape(t("From your teacher:"))}</b> {escape(comment)}</p>'
    if here(mark["reasons"]):
        html += f"<p>{escape(here(mark['reasons']))}</p>"
    for output in mark["outputs"]:
        drawn = output.get("data", {}).get("text/html", "")
        html += drawn if not _ACTIVE.search(drawn) else f"<pre>{escape(output['data'].get('text/plain', ''))}</pre>"
    return html + f"<pre>{escape(answer)}</pre>"


def _answers(course, lesson: str, student: str) -> dict[str, str]:
    notebook = courses.read(course.of_student("checked", student, lesson))
    return {cell.metadata.nbgrader.grade_id.removeprefix("ex-"): cell.source
            for cell in notebook.cells if plan.is_answer(cell)}


def _points(given: dict, mark: dict) -> str:
    return f"{given[mark['exercise']][0]:g}" if mark["exercise"] in given else "–"


def _number(exercise: str) -> str:
    lesson, _, number = exercise.partition("-")
    return _digits(f"{int(lesson)}.{number}")


def _digits(text: str) -> str:
    return bengali_digits(text) if current_language() == "bn" else text
