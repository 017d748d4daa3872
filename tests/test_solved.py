"""Solved editions earn full marks, in both languages; the committed learners' editions earn none.

The code of the two editions is the same to the byte, so each lesson is run once, in English: its set-up, the cells
that exercises need, the solutions and the test cells, as in grading (the nbval lane runs all the rest). Every test
cell is run a second time right away in Bengali: its messages, and whatever else depends on the language, must not cost
a mark. Then the check is put to as many other inputs as a second allows: a hint for a wrong answer must not hit a right
one that happens to look like it.
"""

from __future__ import annotations

import copy
import re

import nbformat
import pytest

from labkit import _classroom_plan
from tests.throwaway import ROOT, build

from builder import editions, execute  # isort: skip

pytestmark = pytest.mark.slow
LESSONS = sorted(path.stem for path in (ROOT / "notebooks/en").glob("*.ipynb"))


def graded(notebook):
    return [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]


def marks(cell):
    """The number a test cell ends with: what nbgrader takes for its marks."""
    result = cell.outputs[-1]
    assert result.output_type == "execute_result", f"{cell.id} does not end with a number"
    return float(result["data"]["text/plain"])


def in_bengali(cell):
    again = copy.deepcopy(cell)
    again.id = f"{cell.id}-bn"
    again.source = f'lab.use_language("bn")\n{cell.source}'
    return [cell, again, nbformat.v4.new_code_cell('lab.use_language("en")')]


def with_other_inputs(cell):
    """A cell that repeats the check with other seeds for a second and prints the seeds that cost marks."""
    asked = re.search(r"lab\.check\((.*)\)$", cell.source, re.MULTILINE)[1]
    return nbformat.v4.new_code_cell(id=f"{cell.id}-seeds", source=f"""
import itertools, time
from IPython.utils.capture import capture_output
_until, _short = time.monotonic() + 1, []
for _seed in itertools.takewhile(lambda seed: seed < 300 and time.monotonic() < _until, itertools.count()):
    with capture_output():
        _found = lab.check({asked}, seed=_seed)
    if _found.points != _found.max_points:
        _short.append((_seed, _found.points, _found.hint))
print(_short)
""")


@pytest.mark.parametrize("language", ["bn", "en"])
@pytest.mark.parametrize("lesson", LESSONS)
def test_stubs_earn_nothing(lesson, language):
    """Read from the committed outputs; the nbval lane holds them to what a run gives."""
    notebook = nbformat.read(ROOT / f"notebooks/{language}/{lesson}.ipynb", as_version=4)
    assert [marks(cell) for cell in graded(notebook)] == [0.0] * len(graded(notebook))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("lesson", LESSONS)
def test_solutions_earn_everything(lesson):
    [read] = build.lessons(ROOT, [lesson])
    notebook = editions.edition(read, "en", editions.repository(ROOT), solved=True)
    wanted = {cell.id: float(cell.metadata.nbgrader.points) for cell in graded(notebook)}
    needed = {source for one in _classroom_plan.exercises(notebook) for source in (*one.ours, *one.theirs, one.test)}
    notebook.cells = [c for cell in notebook.cells if cell.source in needed for c in (
        [*in_bengali(cell), with_other_inputs(cell)] if cell in graded(notebook) else [cell])]
    execute.execute(notebook, ROOT / "notebooks/en", lesson)
    got = {cell.id: marks(cell) for cell in graded(notebook)}
    assert wanted
    assert got == wanted | {f"{name}-bn": points for name, points in wanted.items()}
    short = {c.id: c.outputs[0].text.strip() for c in notebook.cells if c.id.endswith("-seeds")}
    assert short == {f"{name}-seeds": "[]" for name in wanted}
    stderr = [c.id for c in graded(notebook) for o in c.outputs if o.get("name") == "stderr"]
    assert not stderr, "nbgrader gives a test cell that writes to stderr no marks"
