"""The parts of the classroom one by one: names, files, repairs, plans, tables, boards."""

import copy
import csv
import datetime
import doctest
import functools
import json
import logging
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

import tests.throwaway  # noqa: F401  (puts notebooks/ on the path, for the builder below)
from labkit import _classroom_answers as honest
from labkit import _classroom_board as boards
from labkit import _classroom_collect as collecting
from labkit import _classroom_course as courses
from labkit import _classroom_grade as grading
from labkit import _classroom_names as names
from labkit import _classroom_notebook as notebooks
from labkit import _classroom_plan as plan
from labkit import _classroom_preflight as checks
from labkit import _classroom_table as tables
from labkit import classroom
from tests import classroom_faults as faults

from builder import editions, source  # isort: skip

ROOT = Path(__file__).resolve().parent.parent
KNOWN = ["01_measuring", "02_roofline", "03_kernel_fusion"]


@functools.cache
def lesson_source(lesson: str):
    return source.read(ROOT / f"notebooks/src/{lesson}.md")


def edition(lesson: str, language: str = "en", *, solved: bool = False):
    return editions.edition(lesson_source(lesson), language, "https://github.com/OWNER/labkit", solved=solved)


@pytest.fixture(scope="module")
def measuring():
    """(what learners get, the same with solutions and hidden tests)."""
    return edition("01_measuring"), edition("01_measuring", solved=True)


def kinds(checked) -> list[tuple[str, str]]:
    return [(finding.kind, finding.exercise) for finding in checked.findings]


def answer(notebook, exercise: str) -> str:
    return next(cell.source for cell in notebook.cells if plan.is_answer(cell)
                and cell.metadata.nbgrader.grade_id == f"ex-{exercise}")


# names


@pytest.mark.parametrize(
    ("file", "folder", "student", "lesson"),
    [
        ("03_kernel_fusion (1).ipynb", "রহিমা খাতুন_81234_assignsubmission_file_", "রহিমা খাতুন", "03_kernel_fusion"),
        ("Copy of 03_kernel_fusion-১৯০৪০১২ (2).ipynb", "", "1904012", "03_kernel_fusion"),
        ("Copy of Copy of 03_kernel_fusion.ipynb", "downloads", "", "03_kernel_fusion"),
        ("03_kernel_fusion - Copy.ipynb", "Karim", "Karim", "03_kernel_fusion"),
        ("03-kernel-fusion_Md. Karim_1904015.ipynb.txt", "", "Md. Karim 1904015", "03_kernel_fusion"),
        ("1904012_lab3.ipynb", "", "1904012", "03_kernel_fusion"),
        ("ল্যাব ৩ করিম.ipynb", "", "করিম", "03_kernel_fusion"),
        ("01_measuring (2)-1904004.ipynb", "", "1904004", "01_measuring"),
        ("Untitled3.ipynb", "", "", ""),
        ("homework.ipynb", "1904007", "homework", ""),
        ("..\\..\\1904012-01_measuring.ipynb", "", "1904012", "01_measuring"),
    ],
)
def test_whose_file_is_it(file, folder, student, lesson):
    found = names.understand(file, KNOWN, folder)
    assert (found.student, found.lesson) == (student, lesson)


@pytest.mark.parametrize("text", ["../../etc", "a/b", "..", "/", "C:\\x", "con", "", "…", "\x00"])
def test_a_name_is_never_a_path(text):
    found = names.identity(text)
    assert found not in (".", "..")
    assert not set(found) & set('/\\:*?"<>|+\x00')


def test_two_spellings_are_one_student():
    assert names.key("রহিমা খাতুন") == names.key("রহিমা  খাতুন ")
    assert names.key("\u09af\u09bc") == names.key("\u09df"), "both ways to type the letter"
    assert names.key("Karim") != names.key("Rahim")


@pytest.mark.parametrize("module", [names, plan, honest])
def test_the_examples_in_the_docstrings_hold(module):
    assert doctest.testmod(module).failed == 0


# files


def test_outputs_are_left_unread(tmp_path, measuring):
    loud = faults.with_outputs(measuring[0], 2_000_000)
    loud.cells[3].source = 'text = "outputs"\nkeys = ["outputs", {"a": [1]}]'
    loud.metadata["widgets"] = {"state": ["x" * 100_000]}
    path = tmp_path / "loud.ipynb"
    nbformat.write(loud, path)
    assert len(notebooks.without_outputs(path)) < 100_000
    read = notebooks.read(path)
    assert [cell.source for cell in read.cells] == [cell.source for cell in loud.cells]
    assert not any(cell.get("outputs") for cell in read.cells)


@pytest.mark.slow
def test_a_lesson_is_released_where_the_environment_is_not_activated(tmp_path):
    """nbgrader calls a program of the environment by its bare name."""
    command = [sys.executable, "-m", "labkit.classroom", "release", "01", "--lang", "en", "--out", tmp_path / "out",
               "--course", tmp_path / "course"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": os.defpath}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/01_measuring.ipynb").exists()


def test_the_reason_that_nbgrader_only_logs_is_told():
    log, heard = logging.Logger("nbgrader"), courses._Heard()
    log.addHandler(heard)
    log.warning("careful")
    try:
        raise FileNotFoundError("alembic")
    except FileNotFoundError:
        log.exception("There was an error processing the assignment")
    log.error("see above")
    assert heard.reason == "FileNotFoundError: alembic"


@pytest.mark.slow
def test_300_mb_of_outputs_fit_in_little_memory(tmp_path, measuring):
    path = tmp_path / "huge.ipynb"
    nbformat.write(faults.with_outputs(measuring[0], 300_000_000), path)
    assert path.stat().st_size > 300_000_000
    code = """
import resource, sys
from pathlib import Path
from labkit import _classroom_notebook as notebooks
import nbformat
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resource.setrlimit(resource.RLIMIT_DATA, (400 << 20, 400 << 20))
print(len(notebooks.read(Path(sys.argv[1])).cells))
"""
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == str(len(measuring[0].cells)), done.stderr
    path.unlink()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"), (b"<!DOCTYPE html><html></html>", "web page"), (b"PK\x03\x04", "zip"), (b"%PDF-1.7", "PDF"),
        (b'{"cells": [', "cut off"), (b'{"a": 1}', "no cells"), (b"\xff\xfe{\x00}\x00", "UTF-8"),
        (b'{"cells": 3, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "damaged"), (b"[" * 100_000, "cut off"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_notebook_is_named(tmp_path, english, content, said):
    path = tmp_path / "x.ipynb"
    path.write_bytes(content)
    with pytest.raises(notebooks.UnreadableError, match=said):
        notebooks.read(path)


def test_a_byte_order_mark_does_no_harm(tmp_path, measuring):
    path = tmp_path / "bom.ipynb"
    path.write_bytes(b"\xef\xbb\xbf" + nbformat.writes(measuring[0]).encode())
    assert len(notebooks.read(path).cells) == len(measuring[0].cells)


# preflight


def test_an_untouched_notebook_needs_no_repair(measuring):
    released, master = measuring
    checked = checks.preflight(released, master, released)
    assert checked.findings == []
    assert answer(checked.notebook, "01-1") == answer(released, "01-1")
    tests = [cell.source for cell in checked.notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert all("HIDDEN TESTS" in text for text in tests), "graded is our own test cell"


def test_labels_that_colab_dropped_are_found_again(measuring):
    released, master = measuring
    own = faults.answers(released, {"01-2": "def aa_wrong_share(judge, trials):\n    return 0.5"})
    checked = checks.preflight(faults.as_colab(own), master, released)
    assert kinds(checked) == [("repaired", "")]
    assert answer(checked.notebook, "01-2").endswith("0.5")


def test_the_last_of_two_answers_counts_and_is_told(measuring):
    released, master = measuring
    twice = faults.answers(released, {"01-1": "def timed(fn, wait, clock):\n    return 1"})
    extra = nbformat.v4.new_code_cell("def timed(fn, wait, clock):\n    return 2")
    twice.cells.append(extra)
    checked = checks.preflight(twice, master, released)
    assert answer(checked.notebook, "01-1").endswith("2")
    assert ("note", "01-1") in kinds(checked)


def test_a_lost_answer_is_a_problem_and_not_a_silent_zero(measuring):
    released, master = measuring
    lost = copy.deepcopy(released)
    lost.cells = [cell for cell in lost.cells if cell.id != "ex-01-3"]
    checked = checks.preflight(lost, master, released)
    assert kinds(checked) == [("problem", "01-3")]


def test_another_lesson_and_a_foreign_notebook_are_refused(measuring, english):
    released, master = measuring
    other = checks.preflight(edition("02_roofline"), master, released)
    assert not other.usable
    assert other.findings[0].text == "This is lab 02, not lab 01."
    foreign = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(1)")])
    assert not checks.preflight(foreign, master, released).usable


@pytest.mark.parametrize("language", ["bn", "en"])
def test_the_edition_is_recognised(language):
    notebook = edition("01_measuring", language)
    assert checks.edition_of(notebook) == language
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    assert checks.edition_of(notebook) == language, "by its letters alone"


# plans


def test_only_what_a_graded_cell_needs_is_run(measuring):
    _, master = measuring
    found = {item.id: item for item in plan.exercises(master)}
    assert [source.split("\n")[0][:8] for source in found["01-1"].ours] == ["# Set-up"]
    assert "import statistics" in found["01-3"].ours[1]
    assert "ToyMachine" in found["01-3"].keep
    everything = sum(cell.cell_type == "code" for cell in master.cells)
    assert len(found["01-3"].ours) + len(found["01-3"].theirs) < everything / 4


def test_a_helper_is_run_only_where_it_is_needed(measuring):
    released, master = measuring
    own = faults.answers(released, {"01-1": "def timed(fn, wait, clock):\n    return helper()"})
    own.cells[4:4] = [nbformat.v4.new_code_cell("def helper():\n    return 1"), nbformat.v4.new_code_cell("1 / 0")]
    found = {item.id: item for item in plan.exercises(checks.preflight(own, master, released).notebook)}
    assert [text.split("(")[0] for text in found["01-1"].theirs] == ["def helper", "def timed"]
    assert len(found["01-2"].theirs) == 1


def test_names_that_a_cell_reads_and_binds():
    code = ("import os.path, a as b\nwith f() as g:\n    h = 1\nclass K(Base):\n    z = zz\n"
            "def fn(q, r=default):\n    return q + r + glob + later\nlater = [u for u in v]\nx[0] = 1")
    found = plan.names(code)
    assert found.binds == {"os", "b", "g", "h", "K", "fn", "later"}
    assert found.reads == {"f", "Base", "zz", "default", "glob", "v", "x"}
    magic = plan.names("%%torchrun -n 2 --set lr --set steps=3 --into results\nimport torch\n")
    assert (magic.reads, magic.binds) == ({"lr"}, {"results"})
    assert plan.names("def broken(:") == plan.Names()


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks/en").glob("[0-9]*.ipynb")), ids=lambda path: path.stem)
def test_every_lesson_can_be_planned_and_keeps_its_secrets(path):
    """The learners' edition and the solved one of the same source; whatever lessons there are."""
    solved, given = edition(path.stem, solved=True), edition(path.stem)
    assert len(plan.exercises(solved)) >= 2
    assert courses.secrets_in(json.dumps(given, ensure_ascii=False), solved) is None
    for cell in solved.cells:
        for region in courses.SECRET.finditer(cell.source):
            leaked = next((line for line in region[2].splitlines() if len(line.strip()) > 30), None)
            if leaked and leaked.strip() not in "\n".join(c.source for c in given.cells):
                given.cells[-1].source += leaked
    assert courses.secrets_in(json.dumps(given, ensure_ascii=False), solved) is not None


# what a result is


def test_a_result_is_taken_for_what_it_is():
    class Liar(float):
        def __eq__(self, other):
            return True

        __hash__ = float.__hash__

    class Pair(list):
        def __iter__(self):
            return iter([1, 2])

    assert honest.plain([Liar(3)]) != [4.0]
    assert honest.plain({"a": Liar(3)}) == {"a": 3.0}
    assert honest.plain(Pair([5])) == [5]
    kept = [1, (2.0, "x"), {"k": [3]}]
    assert honest.plain(kept) is kept, "what is plain already is the same object"
    tensor = pytest.importorskip("torch").ones(3)
    assert honest.plain(tensor) is tensor


# collecting


@pytest.fixture
def course(tmp_path):
    return courses.Course(tmp_path / "course")


def handed(path: Path, notebook, when: float = 1e9) -> None:
    import os

    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    os.utime(path, (when, when))


def test_the_content_decides_which_lesson_it_is(tmp_path, course, english):
    handed(tmp_path / "in/01_measuring-7.ipynb", edition("02_roofline"))
    said = []
    [item] = collecting.collect(course, tmp_path / "in", say=said.append)
    assert item.lesson == "02_roofline"
    assert course.students("submitted", "02_roofline") == ["7"]
    assert any("named 01_measuring, but it holds 02_roofline" in line for line in said)


def test_the_roster_gives_many_spellings_one_student(tmp_path, course, measuring, english):
    course.root.mkdir()
    (course.root / "students.csv").write_text("id,name\n১৯০৪০১২,রহিমা খাতুন\n1904013,Karim\n", encoding="utf-8-sig")
    handed(tmp_path / "in/01_measuring-Rahima 1904012.ipynb", measuring[0], 1e9)
    handed(tmp_path / "in/রহিমা খাতুন/01_measuring (1).ipynb", measuring[0], 2e9)
    collecting.collect(course, tmp_path / "in", say=lambda line: None)
    assert course.students("submitted", "01_measuring") == ["1904012"]
    filed = course.of_student("submitted", "1904012", "01_measuring")
    record = json.loads(filed.with_name("handed_in.json").read_text(encoding="utf-8"))
    assert record["from"] == "রহিমা খাতুন/01_measuring (1).ipynb"


def test_a_zip_file_writes_nowhere_else(tmp_path, course, measuring, english):
    (tmp_path / "in").mkdir()
    text = nbformat.writes(measuring[0])
    with zipfile.ZipFile(tmp_path / "in/all.zip", "w") as archive:
        for name in ("Karim/01_measuring.ipynb", "../../evil-01_measuring.ipynb", "/abs/01_measuring-evil.ipynb",
                     "..\\evil\\01_measuring.ipynb", "__MACOSX/Karim/._01_measuring.ipynb"):
            archive.writestr(name, text)
    (tmp_path / "in/broken.zip").write_bytes(b"PK no zip")
    said = []
    taken = collecting.collect(course, tmp_path / "in", say=said.append)
    assert [item.named.student for item in taken] == ["Karim"]
    assert not list(tmp_path.rglob("*evil*"))
    assert sum("points outside" in line for line in said) == 3
    assert any("cannot be opened" in line for line in said)


def test_late_is_counted_from_the_due_time(tmp_path, course, measuring, english):
    handed(tmp_path / "in/01_measuring-7.ipynb", measuring[0], 1e9 + 5400)
    due = datetime.datetime.fromtimestamp(1e9, datetime.UTC)
    said = []
    collecting.collect(course, tmp_path / "in", due=due, say=said.append)
    assert "1.5 hours late" in said[-1]


# tables and boards


def test_a_spreadsheet_opens_the_marks(tmp_path):
    rows = [tables.Row("=1+1", "@রহিমা", "bn", {"01-1": 3.5, "01-2": None}, 0.0, "-2; x"),
            tables.Row("7", "", "", {}, 2.25, "")]  # fmt: skip
    path = tmp_path / "grades.csv"
    tables.write_csv(path, rows, [("01-1", 4.0), ("01-2", 5.0)])
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    with path.open(encoding="utf-8-sig", newline="") as file:
        _, first, second = csv.reader(file)
    assert first == ["'=1+1", "'@রহিমা", "bn", "3.5", "", "3.5", "9", "", "'-2; x"]
    assert second == ["7", "", "", "", "", "", "9", "2.2", ""], "no marks are not a zero"


def card(cpu: str, verdict: str, ratio: float, gpus=()) -> dict:
    machine = {"cpu": cpu, "threads": 2, "torch": "2.13.0", "gpus": list(gpus)}
    return {"kind": "comparison", "baseline": "eager", "ratios": {"fused": [ratio, ratio * 0.9, ratio * 1.1]},
            "verdicts": {"fused": verdict}, "machine": machine}  # fmt: skip


def test_the_board_names_nobody_unless_told(tmp_path, english):
    cards = tmp_path / "cards"
    cards.mkdir()
    (cards / "Rahima-1904012.json").write_text(json.dumps(card("<b>CPU</b>", "faster", 2.5)))
    (cards / "Karim.json").write_text(json.dumps([card("CPU two", "undecided", 1.0, ["Tesla T4"])]))
    (cards / "bad.json").write_text('{"kind": "comparison", "ratios": 3}')
    page, refused = boards.board(cards, tmp_path / "out")
    text, table = page.read_text(encoding="utf-8"), (tmp_path / "out/board.csv").read_text(encoding="utf-8-sig")
    assert "Rahima" not in text + table
    assert "Karim" not in text + table
    assert "Tesla T4" in text
    assert "<b>CPU" not in text, "what a card says is text"
    assert not re.search(r"https?://|<script", text)
    assert len(refused) == 1
    assert len(table.splitlines()) == 3
    named, _ = boards.board(cards, tmp_path / "named", names=True)
    assert "Rahima" in named.read_text(encoding="utf-8")


def test_a_real_card_is_read(tmp_path):
    import labkit as lab

    pair = lab.compare({"a": lambda: sum(range(3000)), "b": lambda: sum(range(3000))}, baseline="a", budget_s=0.05)
    (tmp_path / "x.json").write_text(json.dumps(pair.card()))
    entries, refused = boards.read_cards(tmp_path)
    assert (len(entries), refused) == (1, [])
    assert entries[0].verdict == pair.verdict("b")


def test_no_cards_is_said(tmp_path, english):
    with pytest.raises(courses.ClassroomError, match=r"comparison\.card"):
        boards.board(tmp_path, tmp_path / "out")


# the command


@pytest.mark.parametrize(("language", "word"), [("bn", "নেই"), ("en", "There is no lesson 77")])
def test_the_command_speaks_both_languages(capsys, tmp_path, language, word):
    assert classroom.main(["rehearse", "77", "--lang", language, "--course", str(tmp_path)]) == 1
    assert word in capsys.readouterr().err


def test_root_is_refused_unless_told(monkeypatch, english):
    monkeypatch.setattr("os.geteuid", lambda: 0, raising=False)
    with pytest.raises(courses.ClassroomError, match="--as-root"):
        grading.refuse_root(told=False)
    grading.refuse_root(told=True)
    monkeypatch.setattr("os.geteuid", lambda: 1000, raising=False)
    grading.refuse_root(told=False)


@pytest.mark.slow
def test_a_rehearsal_finds_claims_that_do_not_hold(tmp_path, english):
    from labkit import _classroom_rehearse as rehearsals
    from labkit._claims import _line

    class Pair:
        baseline, facts = "eager", {}

    false = _line(Pair, "fused", "faster", 1.3, False)
    sources = [f"print({false!r})", "print('Holds: all is well')", "1 / 0", "print('still here')"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in sources])
    done = rehearsals.run(notebook, "99_test", tmp_path, say=lambda line: None, limit_s=60)
    assert done.fails == [false]
    assert [error for _, error in done.errors] == ["ZeroDivisionError: division by zero"]
    assert len(done.cells_s) == 4
    assert any("minutes of machine time" in line for line in done.lines())


def test_the_rehearsal_knows_the_sentence_in_both_languages():
    from labkit import _classroom_rehearse as rehearsals
    from labkit._claims import _line
    from labkit.language import speaking

    class Pair:
        baseline, facts = "eager", {}

    for language in ("bn", "en"):
        with speaking(language):
            for kind in ("faster", "not faster"):
                assert rehearsals._FAILS.findall(_line(Pair, "fused", kind, 1.3, False))
                assert not rehearsals._FAILS.findall(_line(Pair, "fused", kind, 1.3, True))
