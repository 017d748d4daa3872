"""Turn a folder of downloads into ``submitted/STUDENT/LESSON``: whatever the names, whoever zipped it."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from labkit import _classroom_course as courses
from labkit import _classroom_names as names
from labkit import _classroom_notebook as notebooks
from labkit import _classroom_preflight as checks
from labkit.language import t

ZIP_LIMIT_BYTES = 2_000_000_000  # unpacked, all of one archive
_NOTEBOOK = (".ipynb", ".ipynb.txt", ".ipynb.json")


@dataclasses.dataclass
class Handed:
    """One file that may be a submission."""

    file: Path
    shown: str  # where it was found
    named: names.Named
    when: float  # seconds since 1970: of the file, or of its entry in the zip file
    lesson: str = ""
    unreadable: str = ""


def collect(
    course: courses.Course, folder: Path, *, due: datetime.datetime | None = None, say: Callable[[str], None] = print
) -> list[Handed]:
    """Sort the downloads in ``folder`` by student and lesson; the latest of each wins. Gives what was taken.

    Nothing is lost in silence: every file that was not taken is named with the reason. The downloads stay as they are.
    Raises ClassroomError when there is no such folder.
    """
    if not folder.is_dir():
        raise courses.ClassroomError(t("There is no folder {folder}.", folder=folder))
    roster = read_roster(course)
    with tempfile.TemporaryDirectory() as unpacked:
        best: dict[tuple[str, str], Handed] = {}
        for item in _found(folder, Path(unpacked), say):
            _recognise(item)
            student = _known(item.named.student, roster)
            if not student:
                say(t("✗ {file}: whose is it? Add the roll number to its name, or put it in a folder named after the "
                      "student, and collect again.", file=item.shown))
            elif not item.lesson:
                reason = item.unreadable or t("no lesson is recognised")
                say(t("✗ {file}: {reason}", file=item.shown, reason=reason))
            else:
                _keep_latest(best, (names.key(student), item.lesson), item, student, say)
        for (_, lesson), item in sorted(best.items()):
            _take(course, item, lesson, due, say)
        return list(best.values())


def read_roster(course: courses.Course) -> dict[str, str]:
    """Key of every id and name in ``students.csv`` (columns ``id`` and ``name``) -> id; empty without that file."""
    path = course.root / "students.csv"
    if not path.exists():
        return {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.DictReader(file) if names.identity(row.get("id") or "")]
    found = {}
    for row in rows:
        student = names.identity(row["id"])
        found |= {names.key(student): student, names.key(row.get("name") or student): student}
    return found


def _known(student: str, roster: dict[str, str]) -> str:
    """The id on the roster that is in the name; the name itself where there is no roster or nobody fits."""
    if names.key(student) in roster:
        return roster[names.key(student)]
    words = [names.key(word) for word in student.split()]
    fits = {roster[word] for word in words if word in roster}
    fits = fits or {found for key, found in roster.items() if len(key) > 3 and key in names.key(student)}
    return fits.pop() if len(fits) == 1 else student


def _found(folder: Path, unpacked: Path, say):
    """Every notebook below ``folder``, in the open or in a zip file."""
    known = courses.lessons()
    for path in sorted(folder.rglob("*")):
        shown = path.relative_to(folder).as_posix()
        if not path.is_file() or _is_litter(path.relative_to(folder).parts):
            continue
        parent = path.parent.name if path.parent != folder else ""
        if path.suffix.lower() == ".zip":
            yield from _in_zip(path, shown, parent, unpacked, known, say)
        elif path.name.lower().endswith(_NOTEBOOK):
            named = names.understand(path.name, known, parent)
            yield Handed(path, shown, named, path.stat().st_mtime)
        else:
            say(t("– {file}: not a notebook, left where it is.", file=shown))


def _is_litter(parts) -> bool:
    return any(p.startswith("._") or p in ("__MACOSX", ".ipynb_checkpoints", ".DS_Store", "Thumbs.db") for p in parts)


def _in_zip(path: Path, shown: str, parent: str, unpacked: Path, known: list[str], say):
    """Notebooks of a zip file. Each is written under a name of ours, so that no entry can choose where it lands."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            if sum(entry.file_size for entry in entries) > ZIP_LIMIT_BYTES:
                say(t("✗ {file}: it would unpack to more than {limit} GB.", file=shown, limit=ZIP_LIMIT_BYTES // 10**9))
                return
            for entry in entries:
                inside = PurePosixPath(entry.filename.replace("\\", "/"))
                label = f"{shown} › {inside}"
                if _is_litter(inside.parts) or not inside.name.lower().endswith(_NOTEBOOK):
                    continue
                if inside.is_absolute() or ".." in inside.parts or ":" in inside.parts[0]:
                    say(t("✗ {file}: its name points outside the zip file, so it was not unpacked.", file=label))
                    continue
                file = unpacked / f"{len(list(unpacked.iterdir()))}.ipynb"
                with archive.open(entry) as source, file.open("wb") as target:
                    shutil.copyfileobj(source, target)
                folder = inside.parent.name or names.understand(path.name, known, parent).student
                named = names.understand(inside.name, known, folder)
                yield Handed(file, label, named, datetime.datetime(*entry.date_time).timestamp())
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError) as error:
        say(t("✗ {file}: the zip file cannot be opened ({error}).", file=shown, error=error))


def _recognise(item: Handed) -> None:
    """The lesson by content; the name decides only where the content cannot."""
    try:
        number = checks.lesson_of(notebooks.read(item.file))
    except notebooks.UnreadableError as error:
        item.unreadable, number = str(error), ""
    item.lesson = next((name for name in courses.lessons() if name[:2] == number), "")
    if item.unreadable:
        item.lesson = item.named.lesson


def _keep_latest(best: dict, place: tuple, item: Handed, student: str, say) -> None:
    item.named = dataclasses.replace(item.named, student=student)
    other = best.get(place)
    if other is None:
        best[place] = item
        return
    # One that can be read beats one that cannot; then the later; then the higher copy number.
    rank = {id(x): (not x.unreadable, x.when, x.named.copy) for x in (item, other)}
    winner, loser = (item, other) if rank[id(item)] > rank[id(other)] else (other, item)
    winner.named = dataclasses.replace(winner.named, student=other.named.student)
    best[place] = winner
    say(t("– {file}: {other} is later and counts.", file=loser.shown, other=winner.shown))


def _take(course: courses.Course, item: Handed, lesson: str, due: datetime.datetime | None, say) -> None:
    target = course.of_student("submitted", item.named.student, lesson)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(item.file, target)
    when = datetime.datetime.fromtimestamp(item.when, datetime.UTC)
    # nbgrader reads this file, and knows a late submission by it.
    courses.write_text(target.with_name("timestamp.txt"), when.strftime("%Y-%m-%d %H:%M:%S.%f UTC"))
    late_s = max(0.0, (when - due).total_seconds()) if due else 0.0
    record = {"from": item.shown, "late_s": late_s, "due": due.isoformat() if due else None}
    courses.write_text(target.with_name("handed_in.json"), json.dumps(record, ensure_ascii=False))
    if item.named.lesson and item.named.lesson != lesson:
        say(t("– {file}: named {name}, but it holds {lesson}; filed there.", file=item.shown, name=item.named.lesson,
              lesson=lesson))
    late = t(", {hours:.1f} hours late", hours=late_s / 3600) if late_s else ""
    say(t("✓ {student}: {lesson}{late}", student=item.named.student, lesson=lesson, late=late))
