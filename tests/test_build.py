"""notebooks/build.py without a kernel: what is written, byte for byte, and what --check finds."""

from __future__ import annotations

import json
import textwrap
import unicodedata

import nbformat
import pytest

from tests.throwaway import BODY, FRONT, NAME, ROOT, build, course, write

from builder import editions, execute, index, source  # isort: skip


@pytest.fixture
def root(tmp_path):
    return course(tmp_path)


def made(root, language, name=NAME):
    return nbformat.read(root / f"notebooks/{language}/{name}.ipynb", as_version=nbformat.NO_CONVERT)


def written(root):
    return {path: path.read_bytes() for path in sorted(root.rglob("*.ipynb"))}


def run_by_hand(root):
    """Give every code cell an execution count, as a run would: --check looks at no more of it."""
    for path in (root / "notebooks").glob("*/*.ipynb"):
        notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
        for number, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), 1):
            cell.execution_count = number
        path.write_text(editions.dumps(notebook), encoding="utf-8")


def test_the_example_in_the_docstring_builds(tmp_path):
    example = textwrap.dedent(build.__doc__.split("jupytext)::\n\n")[1].split("\n- Front matter")[0])
    root = course(tmp_path)
    (root / f"notebooks/src/{NAME}.md").unlink()
    write(root, example, name="03_kernel_fusion")
    assert build.main(["--no-execute"], root) == 0
    assert made(root, "bn", "03_kernel_fusion").cells[0].source.startswith("# ল্যাব ৩: কার্নেল ফিউশন\n")


def test_without_execution_it_is_byte_stable(root):
    assert build.main(["--no-execute"], root) == 0
    first = written(root)
    assert [path.name for path in first] == [f"{NAME}.ipynb", f"{NAME}.ipynb", "index.ipynb"]
    assert build.main(["--no-execute"], root) == 0
    assert written(root) == first


def test_cells_and_ids_of_both_editions(root):
    build.main(["--no-execute"], root)
    ids = ["header", "cell-01", "setup", "cell-02", "cell-03", "ex-90-1", "test-90-1", "cell-06", "cell-07"]
    bn, en = made(root, "bn"), made(root, "en")
    assert [c.id for c in bn.cells] == [c.id for c in en.cells] == ids
    assert bn.metadata.kernelspec.name == en.metadata.kernelspec.name == "python3"
    assert bn.cells[1].source.startswith("প্রথমে")
    assert en.cells[1].source.startswith("First")
    pairs = [(b.source, e.source) for b, e in zip(bn.cells, en.cells, strict=True) if b.cell_type == "code"]
    assert [pair for pair in pairs if pair[0] != pair[1]] == [pairs[0]]
    assert pairs[0][0].replace('use_language("bn")', 'use_language("en")') == pairs[0][1]
    assert not any("lang" in c.metadata for c in bn.cells)


def test_header(root):
    build.main(["--no-execute"], root)
    bn, en = (made(root, language).cells[0].source for language in ("bn", "en"))
    for text in ("# ল্যাব ৯০: পরীক্ষার ল্যাব", "৫ মিনিট", "দুই কোরের ল্যাপটপ", f"[A lab for tests](../en/{NAME}.ipynb)"):
        assert unicodedata.normalize("NFC", text) in bn
    for text in ("# Lab 90: A lab for tests", "5 minutes", "By the end you can double a number."):
        assert text in en
    assert f"colab.research.google.com/github/someone/labs/blob/main/notebooks/en/{NAME}.ipynb" in en
    assert "labkit @ git+https://github.com/someone/labs" in made(root, "en").cells[2].source


def test_learners_get_stubs_and_no_hidden_tests(root, tmp_path):
    build.main(["--no-execute"], root)
    build.main(["--no-execute", "--solved", str(tmp_path / "solved")], root)
    cells = {c.id: c for c in made(root, "en").cells}
    assert cells["ex-90-1"].source == "def double(x):\n    return None  # your code here"
    assert cells["test-90-1"].source == 'result = lab.check("90-1", double)\nresult.points'
    solved = nbformat.read(tmp_path / f"solved/en/{NAME}.ipynb", as_version=4)
    solved = {c.id: c for c in solved.cells}
    assert "return 2 * x" in solved["ex-90-1"].source
    assert "assert double(21) == 42" in solved["test-90-1"].source
    grade = {"grade": True, "grade_id": "test-90-1", "locked": True, "points": 3, "schema_version": 3}
    assert cells["test-90-1"].metadata.nbgrader == grade | {"solution": False, "task": False}
    assert all(cells[name].metadata == solved[name].metadata for name in cells)


def test_text_is_normalised_not_refused(root):
    """Keyboards write one letter in two forms: U+09DF and U+09AF U+09BC are the same য়."""
    one, two = FRONT + BODY.replace("শেষ।", "সম\u09df।"), FRONT + BODY.replace("শেষ।", "সম\u09af\u09bc।")
    results = []
    for text in (one, two):
        write(root, text)
        assert build.main(["--no-execute"], root) == 0
        results.append(written(root))
    assert results[0] == results[1]
    assert made(root, "bn").cells[-1].source == "সম\u09af\u09bc।"


def test_one_lesson_one_language(root, capsys):
    write(root, FRONT + BODY.replace("90", "91").replace("৯০", "৯১"), name="91_other")
    assert build.main(["91", "--lang", "bn", "--no-execute"], root) == 0
    assert [p.relative_to(root / "notebooks").as_posix() for p in written(root)] == ["bn/91_other.ipynb", "index.ipynb"]
    assert build.main(["92", "--no-execute"], root) == 1
    assert "no such lesson" in capsys.readouterr().err


def test_index_and_readme_come_from_front_matter(root):
    readme = root / "README.md"
    readme.write_text(f"Above\n\n{index.START}\nold\n{index.END}\n\nBelow\n", encoding="utf-8")
    write(root, FRONT.replace("ready", "planned").replace("A lab for tests", "Not yet there"), name="91_other")
    assert build.main(["--no-execute"], root) == 0
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("Above\n")
    assert text.endswith("\n\nBelow\n")
    assert f"| 90 | [পরীক্ষার ল্যাব](notebooks/bn/{NAME}.ipynb) ([Colab](" in unicodedata.normalize("NFC", text)
    assert "| Not yet there | দুই কোরের ল্যাপটপ<br>a laptop with two cores | 5 | আসছে / planned |" in text
    bn, en = nbformat.read(root / "notebooks/index.ipynb", as_version=4).cells
    assert f"[A lab for tests](en/{NAME}.ipynb) | By the end you can double a number. | 5 | ready |" in en.source
    assert "| ৯১ |" in bn.source
    assert not (root / "notebooks/en/91_other.ipynb").exists()


def test_check_passes_what_was_built_and_run(root):
    build.main(["--no-execute"], root)
    run_by_hand(root)
    assert build.main(["--check"], root) == 0


def _edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def _first_code(path, **fields):
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    next(c for c in notebook.cells if c.cell_type == "code").update(fields)
    path.write_text(editions.dumps(notebook), encoding="utf-8")


ERROR = nbformat.v4.new_output("error", ename="E", evalue="no", traceback=[])
LEAK = nbformat.v4.new_output("stream", text="/home/me/labs")
TAMPERED = {
    "an edition": (lambda r: _edit(r / f"notebooks/en/{NAME}.ipynb", "The end.", "An end."), "differs from its source"),
    "the source": (lambda r: _edit(r / f"notebooks/src/{NAME}.md", "The end.", "An end."), "differs from its source"),
    "points": (lambda r: _edit(r / f"notebooks/src/{NAME}.md", "points: 3", "points: 4"), "differs from its source"),
    "repository": (lambda r: _edit(r / "pyproject.toml", "someone", "another"), "differs from its source"),
    "kernel": (lambda r: _edit(r / f"notebooks/en/{NAME}.ipynb", '"python3"', '"mine"'), "metadata differ"),
    "a missing edition": (lambda r: (r / f"notebooks/bn/{NAME}.ipynb").unlink(), "not built"),
    "not JSON": (lambda r: (r / f"notebooks/bn/{NAME}.ipynb").write_text("{"), "not a notebook"),
    "no source": (lambda r: (r / "notebooks/bn/77_x.ipynb").write_text("{}"), "has no source"),
    "never run": (lambda r: _first_code(r / f"notebooks/bn/{NAME}.ipynb", execution_count=None), "was never executed"),
    "an error": (lambda r: _first_code(r / f"notebooks/bn/{NAME}.ipynb", outputs=[ERROR]), "shows an error"),
    "a path": (lambda r: _first_code(r / f"notebooks/bn/{NAME}.ipynb", outputs=[LEAK]), "a path of this machine"),
    "index": (lambda r: _edit(r / "notebooks/index.ipynb", "A lab", "The lab"), "out of date"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_check_finds(root, what, capsys):
    build.main(["--no-execute"], root)
    run_by_hand(root)
    tamper, message = TAMPERED[what]
    tamper(root)
    before = written(root)
    assert build.main(["--check"], root) == 1
    assert message in capsys.readouterr().err
    assert written(root) == before


def test_new_text_keeps_the_outputs_of_the_same_code(root, capsys):
    build.main(["--no-execute"], root)
    run_by_hand(root)
    path, source = root / f"notebooks/en/{NAME}.ipynb", root / f"notebooks/src/{NAME}.md"
    _first_code(path, outputs=[nbformat.v4.new_output("stream", text="12")])
    _edit(source, "The end.", "An end.")
    assert build.main(["--text"], root) == 0
    assert "An end." in path.read_text(encoding="utf-8")
    assert build.main(["--check"], root) == 0
    assert next(c for c in made(root, "en").cells if c.cell_type == "code").outputs[0].text == "12"
    _first_code(path, source="lab = 1", outputs=[])  # another set-up cell: it says nothing, so nothing is untrue now
    assert build.main(["--text"], root) == 0
    assert "import labkit" in next(c for c in made(root, "en").cells if c.cell_type == "code").source
    _edit(source, "```{code-cell}", "```{code-cell}\n# new")
    assert build.main(["--text"], root) == 1
    assert "differs from its source" in capsys.readouterr().err


def test_check_ignores_outputs_and_widgets(root):
    build.main(["--no-execute"], root)
    run_by_hand(root)
    path = root / f"notebooks/bn/{NAME}.ipynb"
    _first_code(path, outputs=[nbformat.v4.new_output("stream", text="12")])
    data = json.loads(path.read_text(encoding="utf-8"))
    data["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {}}
    path.write_text(json.dumps(data), encoding="utf-8")
    assert build.main(["--check"], root) == 0


def output(text="", *, mime=None, name="stdout"):
    if mime:
        return nbformat.v4.new_output("display_data", data={mime: text})
    return nbformat.v4.new_output("stream", text=text, name=name)


@pytest.mark.parametrize(("outputs", "tags", "message"), [
    ([output("in /tmp/x1/y")], [], "a path of this machine: /tmp/x1"),
    ([output("<b>/Users/me/x</b>", mime="text/html")], [], "a path of this machine"),
    ([output("<Graph object at 0x7f00aa1122>")], [], "a memory address"),
    ([output("careful", name="stderr")], [], "writes to stderr"),
    ([output("<svg/>", mime="image/svg+xml")] * 7, [], "7 SVG figures"),
    ([output("x" * 500_000)], [], "500 kB (a 500 kB"),
    ([output("careful", name="stderr")], ["nbval-ignore-output"], "writes to stderr"),
    ([output("https://a.org/home/me and notebooks/tmp/x, 3/4 of /dev/null")], [], ""),
    ([output("<svg/>", mime="image/svg+xml")] * 6, [], ""),
])  # fmt: skip
def test_outputs_that_must_not_be_published(outputs, tags, message):
    cell = nbformat.v4.new_code_cell("1", id="a", outputs=outputs, metadata={"tags": tags})
    notebook = nbformat.v4.new_notebook(cells=[cell])
    found = execute.inspect(notebook, "n", len(editions.dumps(notebook)))
    assert [message in str(problem) for problem in found] == [True] * bool(message)


def test_source_names_must_tell_number_and_topic(root):
    with pytest.raises(source.RefusedError, match="is not NN_topic"):
        source.read(write(root, FRONT + BODY, name="9_x"))


def test_the_repository_has_one_address():
    assert editions.repository(ROOT).startswith("https://github.com/")
