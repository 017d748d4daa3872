"""The nbval lane can fail: one changed digit in the counted output of any lesson turns it red.

The digits are changed one by one and nbval's own comparison is asked, without a kernel. Then, for two lessons, the
cells up to the first count are run for good.
"""

from __future__ import annotations

import copy
import re

import nbformat
import pytest

from tests.nbval_run import ROOT, compared_cells, nbval, patterns

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[be]n/*.ipynb"))
TEXTS = ("text/plain", "text/html", "text/markdown", "application/json")
FEWEST = 10  # a lesson that counts less than this tests nothing


def names(path):
    return f"{path.parent.name}-{path.stem}"


def texts(outputs):
    """(holder, key) of every text that nbval compares and a person reads: drawings are not counted output."""
    for output in outputs:
        if output.output_type == "stream":
            yield output, "text"
        for mime in TEXTS:
            if isinstance(output.get("data", {}).get(mime), str):
                yield output["data"], mime


def counted(text):
    """Positions of the digits that are compared: not those of a time or a rate."""
    hidden = {at for regex in patterns() for found in re.finditer(regex, text) for at in range(*found.span())}
    return [found.start() for found in re.finditer("[0-9]", text) if found.start() not in hidden]


def changed(text, at):
    return text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]


def mutants(outputs):
    """Copies of ``outputs``, each with one counted digit changed; every digit of short texts, some of long ones."""
    for index, (holder, key) in enumerate(texts(outputs)):
        positions = counted(holder[key])
        for at in positions[:: max(1, len(positions) // 40)]:
            copied = copy.deepcopy(outputs)
            holder_copy, _ = list(texts(copied))[index]
            holder_copy[key] = changed(holder_copy[key], at)
            yield copied


def test_there_is_something_to_test():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=names)
def test_every_changed_digit_turns_red(path, request):
    tried = 0
    for cell in compared_cells(path, request):
        assert cell.compare_outputs(cell.cell.outputs, copy.deepcopy(cell.cell.outputs)), cell.name
        for mutant in mutants(cell.cell.outputs):
            assert not cell.compare_outputs(cell.cell.outputs, mutant), f"{cell.name}: a changed digit goes unseen"
            tried += 1
    assert tried >= FEWEST, f"only {tried} counted digits"


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in NOTEBOOKS if p.parent.name == "en"][:2], ids=names)
def test_the_lane_turns_red(path, request, tmp_path):
    first = next(c for c in compared_cells(path, request) if any(counted(h[k]) for h, k in texts(c.cell.outputs)))
    notebook = nbformat.read(path, as_version=4)
    code = [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    notebook.cells = notebook.cells[: code[first.cell_num] + 1]
    short = tmp_path / "short.ipynb"
    nbformat.write(notebook, short)
    assert nbval(short)[:2] == (0, [])
    notebook.cells[-1].outputs = next(mutants(notebook.cells[-1].outputs))
    nbformat.write(notebook, short)
    assert nbval(short)[:2] == (1, [f"Cell {first.cell_num}"])


@pytest.mark.parametrize("text", [
    "12.5 ms", "3 s", "0.25 us", "7 ns", "1.5e-3 s", "2 min", "12.5&nbsp;ms", "12.5\u00a0ms", "9 \u00b5s", "9ms,",
    "(4 s)", "44.1 GB/s", "830 MB/s", "5 B/s", "1.5 TFLOP/s", "3 GFLOP/s", "8 it/s", "2 GiB/s",
])  # fmt: skip
def test_times_and_rates_are_hidden(text):
    assert not counted(text)


@pytest.mark.parametrize("text", [
    "8 kernels", "3 samples", "64 MB", "12 bytes", "2 steps", "4 ranks", "1.87", "x3 s1", "fp32 s", "10 %", "7 sum",
    "5 msg", "4 FLOP", "3 s/it", "6 Bytes/step", "v2.1 ms", "2 minutes", "shape (3, 4)", "points 5/5",
])  # fmt: skip
def test_counts_are_compared(text):
    assert len(counted(text)) == len(re.findall("[0-9]", text))


@pytest.mark.parametrize("text", ["১২.৫ ms", "৩ s"])
def test_bengali_digits_are_compared(text):
    """Only what measured values look like is hidden: labkit prints those in Latin digits."""
    assert not any(re.search(regex, text) for regex in patterns())


def test_the_sanitise_file_hides_nothing_else():
    assert list(patterns().values()) == ["TIME", "RATE"]
    for regex in patterns():
        assert regex.startswith(r"(?<![0-9A-Za-z_.])[0-9]+")


def test_drawings_are_compared_unless_told(tmp_path, request, monkeypatch):
    """Another matplotlib draws the same figure otherwise: LABKIT_SKIP_SVG=1 is for that environment alone."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("notebooks_conftest", ROOT / "notebooks/conftest.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    drawing = nbformat.v4.new_output("display_data", data={"image/svg+xml": "<svg>1</svg>", "text/plain": "figure"})
    other = nbformat.v4.new_output("display_data", data={"image/svg+xml": "<svg>2</svg>", "text/plain": "figure"})
    cell = nbformat.v4.new_code_cell("1", execution_count=1, outputs=[drawing])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "n.ipynb")
    [item] = compared_cells(tmp_path / "n.ipynb", request)
    for setting, same in (("0", False), ("1", True)):
        monkeypatch.setenv("LABKIT_SKIP_SVG", setting)
        hook.pytest_collection_modifyitems([item])
        assert item.compare_outputs([other], item.cell.outputs) is same
