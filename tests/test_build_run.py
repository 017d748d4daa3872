"""The build with a kernel: a throw-away lesson of two hand-written files is run, solved, compared and released."""

from __future__ import annotations

import sys

import nbformat
import pytest

from tests.nbval_run import nbval
from tests.throwaway import BODY, FRONT, NAME, build, course

from builder import editions, execute, widget_state  # isort: skip

pytestmark = pytest.mark.slow
LANGUAGES = ("bn", "en")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = course(tmp_path_factory.mktemp("course"), with_labkit=True)
    assert build.main(["--jobs", "2"], folder) == 0
    return folder


@pytest.fixture(scope="module")
def solved(root):
    assert build.main(["--solved", str(root / "solved")], root) == 0
    return root / "solved"


def cells(path):
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


def points(cell):
    return float(cell.outputs[-1]["data"]["text/plain"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_built_lesson_is_what_check_wants(root, language):
    path = root / f"notebooks/{language}/{NAME}.ipynb"
    assert build.main(["--check"], root) == 0
    assert cells(path)["cell-02"].outputs[0].text == "3 numbers in 12.5 ms\n"
    assert cells(path)["setup"].outputs == []
    text = path.read_text(encoding="utf-8")
    assert sys.version.split()[0] not in text
    assert '"execution": {' not in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_stubs_earn_nothing_and_solutions_everything(root, solved, language):
    learner = cells(root / f"notebooks/{language}/{NAME}.ipynb")
    assert points(learner["test-90-1"]) == 0
    assert points(cells(solved / f"{language}/{NAME}.ipynb")["test-90-1"]) == 3


def test_the_second_build_differs_in_nothing_but_ignored_output(root):
    path = root / f"notebooks/en/{NAME}.ipynb"
    before = cells(path)
    assert build.main(["90", "--lang", "en"], root) == 0
    after = cells(path)
    assert [name for name in before if before[name] != after[name]] == ["cell-06"]


def test_nbval_is_green_until_a_digit_changes(root):
    path = root / f"notebooks/en/{NAME}.ipynb"
    good = path.read_text(encoding="utf-8")
    here = {"PYTHONPATH": str(root)}
    try:
        assert nbval(path, **here)[:2] == (0, [])
        path.write_text(good.replace("12.5 ms\\n", "99.75 ms\\n"), encoding="utf-8")
        assert nbval(path, **here)[:2] == (0, []), "a time is not compared"
        path.write_text(good.replace("3 numbers", "4 numbers"), encoding="utf-8")
        assert nbval(path, **here)[:2] == (1, ["Cell 1"]), "a count is"
    finally:
        path.write_text(good, encoding="utf-8")


def test_a_cell_that_fails_is_named_and_nothing_is_written(tmp_path, capsys):
    root = course(tmp_path, (FRONT + BODY).replace("x = [1, 2, 3]", "x = 1 / 0"))
    assert build.main(["--lang", "en"], root) == 1
    said = capsys.readouterr().err
    assert f"notebooks/en/{NAME}.ipynb: cell 4 (cell-02): does not run" in said
    assert "ZeroDivisionError" in said
    assert not (root / f"notebooks/en/{NAME}.ipynb").exists()


def test_a_path_in_the_output_is_refused(tmp_path, capsys):
    text = (FRONT + BODY).replace("x = [1, 2, 3]", "import os\n\nx = [os.getcwd()]\nprint(x)")
    assert build.main(["--lang", "en"], course(tmp_path, text)) == 1
    assert "a path of this machine" in capsys.readouterr().err


def test_widgets_keep_a_small_state_of_fixed_names(tmp_path):
    code = "import ipywidgets as w\n\nw.Text('unseen')\nw.VBox([w.IntSlider(7), w.HTML('<p>seen</p>')])"

    def run():
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code, id="a")], metadata=editions.KERNEL)
        execute.execute(notebook, tmp_path, "n")
        return notebook

    first, second = run(), run()
    assert editions.dumps(first) == editions.dumps(second)
    state = first.metadata["widgets"][widget_state.STATE]["state"]
    view = first.cells[0].outputs[0]["data"][widget_state.VIEW]["model_id"]
    children = [state[name.removeprefix("IPY_MODEL_")]["state"] for name in state[view]["state"]["children"]]
    assert [child["value"] for child in children] == [7, "<p>seen</p>"]
    assert "unseen" not in editions.dumps(first).split('"metadata": {\n  "kernelspec"')[1]


def test_nbgrader_releases_the_same_cells(root, tmp_path):
    """The committed learner's edition is what nbgrader makes of the solved one."""
    api = pytest.importorskip("nbgrader.apps")
    from traitlets.config import Config

    assert build.main(["--solved", str(tmp_path / "source"), "--no-execute"], root) == 0
    assignment = tmp_path / "source/lab"
    (tmp_path / "source/en").rename(assignment)
    config = Config()
    config.CourseDirectory.root = str(tmp_path)
    config.ClearSolutions.code_stub = {"python": "return None  # your code here"}
    result = api.NbGraderAPI(config=config).generate_assignment("lab")
    assert result["success"], result["log"]
    released = cells(tmp_path / f"release/lab/{NAME}.ipynb")
    learner = cells(root / f"notebooks/en/{NAME}.ipynb")
    assert list(released) == list(learner)
    assert [n for n in learner if released[n].source.rstrip() != learner[n].source.rstrip()] == []


def test_a_lesson_is_two_files(root):
    """Nothing else below the course was written by hand."""
    written = {p.relative_to(root).as_posix() for p in (root / "notebooks").rglob("*") if p.is_file()}
    editions_of = {f"notebooks/{language}/{NAME}.ipynb" for language in LANGUAGES}
    sheets = {f"notebooks/sheets/{language}/{NAME}.html" for language in LANGUAGES} | {"notebooks/sheets/sheet.css"}
    generated = editions_of | sheets | {"notebooks/index.ipynb"}
    assert written == {f"notebooks/src/{NAME}.md", "notebooks/src/glossary.csv"} | generated
