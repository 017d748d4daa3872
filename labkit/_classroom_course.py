"""A course folder, laid out as nbgrader lays it out, and the release of a lesson from its one source.

``source/LESSON/LESSON.ipynb`` has solutions and hidden tests and never leaves the instructor; ``release/`` is what
learners get; ``submitted/STUDENT/LESSON/``, ``checked/`` (repaired), ``autograded/`` and ``feedback/`` follow;
``gradebook.db`` is nbgrader's. So nbgrader's own commands and its formgrader work on the same folder.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from labkit._classroom_preflight import exam_text
from labkit._folders import write_whole
from labkit.language import LANGUAGES, t

CLONE = Path(__file__).resolve().parent.parent
STUB = "return None  # your code here"  # the same as in the learners' editions, so that an untouched answer runs
SECRET = re.compile(r"### BEGIN (SOLUTION|HIDDEN TESTS).*?\n(.*?)### END \1", re.DOTALL)
_TELLING = 12  # characters of a line that make it worth searching for


class ClassroomError(RuntimeError):
    """Something an instructor has to settle; the text says what happened, the cause, and what to type."""


@dataclasses.dataclass(frozen=True)
class Course:
    """The folder of one course; ``root`` need not exist yet."""

    root: Path

    @property
    def gradebook_url(self) -> str:
        return f"sqlite:///{self.root / 'gradebook.db'}"

    def source(self, lesson: str) -> Path:
        return self.root / "source" / lesson / f"{lesson}.ipynb"

    def release(self, lesson: str) -> Path:
        return self.root / "release" / lesson / f"{lesson}.ipynb"

    def of_student(self, step: str, student: str, lesson: str) -> Path:
        """``step`` is submitted, checked, autograded or feedback."""
        return self.root / step / student / lesson / f"{lesson}.ipynb"

    def students(self, step: str, lesson: str) -> list[str]:
        """Who has a notebook of ``lesson`` at ``step``, sorted."""
        return sorted(path.parents[1].name for path in (self.root / step).glob(f"*/{lesson}/{lesson}.ipynb"))

    def master(self, lesson: str):
        """The released lesson with solutions and hidden tests. Raises ClassroomError when it was not released."""
        path = self.source(lesson)
        if not path.exists():
            raise ClassroomError(t(
                "Lesson {lesson} was not released in this course yet. Type: python -m labkit.classroom release "
                "{number}", lesson=lesson, number=lesson[:2]))
        return read(path)


def read(path: Path):
    """A notebook of our own making."""
    import nbformat

    return nbformat.read(path, as_version=4)


def write(notebook, path: Path) -> None:
    """Write whole or not at all: a crash leaves the old file or the new one."""
    import nbformat

    write_text(path, nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n")


def write_text(path: Path, text: str, encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text, encoding=encoding, newline="")


def lessons() -> list[str]:
    """Names of the lessons that exist in both editions, ``NN_topic``."""
    found = [{path.stem for path in (CLONE / "notebooks" / language).glob("[0-9][0-9]_*.ipynb")}
             for language in LANGUAGES]
    return sorted(set.intersection(*found))


def named(number: str) -> str:
    """``"03"`` or ``"03_kernel_fusion"`` -> the lesson's name. Raises ClassroomError."""
    known = lessons()
    if not known:
        raise ClassroomError(t(
            "The lessons' sources are not here: classroom commands run from a clone of the repository, not from an "
            "installed package. Clone it, type: make setup EXTRAS=lab,instructor"))
    match = [name for name in known if name == number or name[:2] == number.zfill(2)]
    if not match:
        raise ClassroomError(t("There is no lesson {number}. There are: {known}.", number=number,
                               known=", ".join(known)))
    return match[0]


def exercises(notebook) -> list[tuple[str, float]]:
    """(id such as ``03-1``, points) of every graded cell, in order."""
    return [(cell.metadata.nbgrader.grade_id.removeprefix("test-"), float(cell.metadata.nbgrader.points))
            for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]


def release(course: Course, number: str, *, language: str, out: Path, exam: bool = False) -> Path:
    """Write the learners' notebook of a lesson to ``out`` and enter the lesson in the gradebook.

    nbgrader clears the solutions and fills the gradebook; the text is that of ``language``. ``exam`` takes the instant
    verdicts out as well: a test cell then says only that it is marked after handing in.
    Raises ClassroomError when a solution or a hidden test would be in the released file.
    """
    lesson = named(number)
    editions = _with_solutions(lesson)
    master = editions["en"]  # its code is the same in both languages, and only code is marked
    write(master, course.source(lesson))
    _generate(course, lesson)
    released = _released(editions[language], read(course.release(lesson)), exam)
    if found := secrets_in(json.dumps(released, ensure_ascii=False), master):
        raise ClassroomError(t("A line of a solution or hidden test would be in the released file: {line}", line=found))
    path = out / f"{lesson}.ipynb"
    write(released, path)
    return path


def _with_solutions(lesson: str) -> dict:
    """The source versions, language -> notebook, as the build writes them."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(CLONE / "notebooks/build.py"), "--solved", folder, "--no-execute", lesson]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ClassroomError(t("The lesson's source could not be built:\n{text}", text=done.stderr.strip()))
        return {language: read(Path(folder) / language / f"{lesson}.ipynb") for language in LANGUAGES}


def _generate(course: Course, lesson: str) -> None:
    """nbgrader's own release step: writes ``release/`` and the gradebook's cells."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.converters.base import NbGraderException

    course_dir, settings = nbgrader_course(course, lesson)
    settings.ClearSolutions.code_stub = {"python": STUB}
    settings.GenerateAssignment.force = True
    step, heard = GenerateAssignment(coursedir=course_dir, config=settings), _Heard()
    step.log = logging.Logger("nbgrader")
    step.log.addHandler(heard)
    try:
        step.start()
    except NbGraderException as error:  # which only says that the reason was logged
        raise ClassroomError(t(
            "nbgrader could not release {lesson}: {error}. If submissions of an older version are in the gradebook, "
            "finish that course first and start a new one: --course NEW-FOLDER", lesson=lesson,
            error=heard.reason or error)) from error


class _Heard(logging.Handler):
    """Keeps the first error that nbgrader logs."""

    reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR and not self.reason:
            raised = (record.exc_info or (None, None))[1]
            self.reason = f"{type(raised).__name__}: {raised}" if raised else record.getMessage()


def alembic_on_path() -> None:
    """nbgrader calls ``alembic`` by name when it makes a gradebook; an environment that is not activated hides it."""
    here = str(Path(sys.executable).parent)
    if here not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = here + os.pathsep + os.environ.get("PATH", "")


def nbgrader_course(course: Course, lesson: str):
    """nbgrader's course directory and configuration for one lesson."""
    alembic_on_path()
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config

    settings = Config()
    settings.CourseDirectory.root = str(course.root.resolve())
    settings.CourseDirectory.assignment_id = lesson
    return CourseDirectory(config=settings), settings


def _released(edition, theirs, exam: bool):
    """The text of ``edition`` around the code that nbgrader released; the set-up cell keeps its language."""
    code = {cell.id: cell for cell in theirs.cells if cell.cell_type == "code"}
    for cell in edition.cells:
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count = [], None
        cell.metadata = code[cell.id].metadata
        if cell.id != "setup":
            cell.source = code[cell.id].source
        if exam and cell.metadata.get("nbgrader", {}).get("grade"):
            cell.source = exam_text()
    return edition


def secrets_in(released: str, with_solutions) -> str | None:
    """The first line of a solution or hidden test that stands in ``released`` and belongs in no learner's file."""
    if mark := re.search(r"### (?:BEGIN|END) (?:SOLUTION|HIDDEN TESTS)", released):
        return mark[0]
    public = "\n".join(SECRET.sub("", cell.source) for cell in with_solutions.cells)
    for cell in with_solutions.cells:
        for region in SECRET.finditer(cell.source):
            for line in map(str.strip, region[2].splitlines()):
                told = line in public or len(line) < _TELLING
                if not told and (line in released or json.dumps(line, ensure_ascii=False)[1:-1] in released):
                    return line
    return None
