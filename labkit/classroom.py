"""For instructors: hand out, collect, grade and give back the labs. ``python -m labkit.classroom --help``.

    release 03 --lang bn --out DIR    the learners' notebook; solutions and hidden tests stay here (--exam: no verdicts)
    collect DOWNLOADS                 sort what students handed in, whatever they called it (--due 2026-03-01T23:59)
    preflight 03                      find, repair and name what would have cost marks for no reason
    grade 03 --csv grades.csv         mark in closed-in processes; run it again after a crash or for late files
    feedback 03                       a page for each student, in their language
    board CARDS --out DIR             what the machines of a class measured, on one page
    rehearse 03                       how long a lesson takes on this PC, and which claims do not hold

Everything lives in a course folder (``--course``, ``course`` by default), laid out as nbgrader lays it out: nbgrader's
formgrader opens it, and a mark given by hand there is never overwritten. Needs the extra ``instructor`` and a clone of
the repository. ``notebooks/guides`` has the instructor's guide.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import sys
from pathlib import Path

from labkit._classroom_board import board
from labkit._classroom_collect import collect
from labkit._classroom_course import ClassroomError, Course, lessons, named, release
from labkit._classroom_feedback import feedback
from labkit._classroom_grade import Options, check_all, grade
from labkit._classroom_rehearse import rehearse
from labkit._classroom_table import table, write_csv
from labkit.language import LANGUAGES, t, use_language

__all__ = [
    "ClassroomError", "Course", "Options", "board", "check_all", "collect", "feedback", "grade", "lessons", "named",
    "rehearse", "release", "table", "write_csv",
]


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 when it did what was asked, 1 when an instructor has to settle something first."""
    options = _parser().parse_args(arguments)
    if options.lang:
        use_language(options.lang)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # a Windows console may lack Bengali letters
    try:
        _require()
        return options.command(options, Course(options.course)) or 0
    except ClassroomError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(t("Stopped. What was graded is saved; the same command goes on from there."), file=sys.stderr)
        return 130


def _require() -> None:
    if importlib.util.find_spec("nbgrader") is None:
        raise ClassroomError(t("nbgrader is missing. Type: make setup EXTRAS=lab,mxnet,instructor"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m labkit.classroom", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    # --lang also chooses the edition that is released or rehearsed; it stands behind the command, where people type it.
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--course", type=Path, default=Path("course"))
    common.add_argument("--lang", choices=LANGUAGES)

    def command(name: str, run, *positional: str, **more) -> argparse.ArgumentParser:
        one = commands.add_parser(name, parents=[common])
        for argument in positional:
            one.add_argument(argument, **more)
        one.set_defaults(command=run)
        return one

    one = command("release", _release, "lessons", nargs="+", metavar="NN")
    one.add_argument("--out", type=Path, default=Path("."))
    one.add_argument("--exam", action="store_true")
    one = command("collect", _collect, "folder", type=Path)
    one.add_argument("--due", type=datetime.datetime.fromisoformat)
    command("preflight", _preflight, "lessons", nargs="+", metavar="NN")
    one = command("grade", _grade, "lessons", nargs="+", metavar="NN")
    one.add_argument("--csv", type=Path)
    one.add_argument("--workers", type=int, default=2)
    one.add_argument("--limit-s", type=float)
    one.add_argument("--memory-gb", type=float, default=4.0)
    one.add_argument("--as-root", action="store_true")
    one.add_argument("--again", action="store_true")
    command("feedback", _feedback, "lessons", nargs="+", metavar="NN")
    one = command("board", _board, "folder", type=Path)
    one.add_argument("--out", type=Path, default=Path("."))
    one.add_argument("--names", action="store_true")
    command("rehearse", _rehearse, "lessons", nargs="+", metavar="NN")
    return parser


def _release(options, course: Course) -> None:
    for number in options.lessons:
        path = release(course, number, language=options.lang or "bn", out=options.out, exam=options.exam)
        print(t("✓ {path}: give this file to your students.", path=path))


def _collect(options, course: Course) -> None:
    due = options.due
    if due is not None and due.tzinfo is None:
        due = due.astimezone()  # the clock on the instructor's wall
    taken = collect(course, options.folder, due=due, say=_say)
    print(t("{count} submissions are in {folder}.", count=len(taken), folder=course.root / "submitted"))


def _preflight(options, course: Course) -> int:
    bad = 0
    for number in options.lessons:
        found = check_all(course, named(number), _say)
        bad += sum(not one.usable for one in found.values())
        print(t("{lesson}: {good} of {all} submissions can be graded.", lesson=named(number),
                good=sum(one.usable for one in found.values()), all=len(found)))
    return int(bad > 0)


def _grade(options, course: Course) -> None:
    how = Options(workers=max(1, options.workers), limit_s=options.limit_s, memory_gb=options.memory_gb,
                  as_root=options.as_root, again=options.again)
    names = [named(number) for number in options.lessons]
    for lesson in names:
        grade(course, lesson, how, _say)
    if options.csv:
        write_csv(options.csv, *table(course, names))
        print(t("✓ {path}: open it in a spreadsheet.", path=options.csv))


def _feedback(options, course: Course) -> None:
    for number in options.lessons:
        pages = feedback(course, named(number), _say)
        print(t("{count} pages are in {folder}.", count=len(pages), folder=course.root / "feedback"))


def _board(options, course: Course) -> None:
    path, refused = board(options.folder, options.out, names=options.names)
    for line in refused:
        _say(line)
    print(t("✓ {path}: open it in a browser; it needs no network.", path=path))


def _rehearse(options, course: Course) -> int:
    bad = 0
    for number in options.lessons:
        done = rehearse(number, language=options.lang or "bn", say=_say)
        for line in done.lines():
            _say(line)
        bad += bool(done.errors)
    return int(bad > 0)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
