"""The lessons as they run on Colab: older ipywidgets, IPython, ipykernel and matplotlib, NumPy 2, no labkit at first.

The environment is made once a run, from tests/colab.txt. Then the lessons' own set-up cell has to install labkit into
it as it would on Colab, from this checkout, and leave what was there alone. tests/lanes.py names a folder for it in
``LABKIT_COLAB``: the slow tests make it there, two at a time, and the lane colab, in which nothing else runs, uses it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.nbval_run import ROOT, SANITIZE

pytestmark = [pytest.mark.colab, pytest.mark.timeout(1200)]
PINS = ROOT / "tests/colab.txt"
KEPT = ("torch", "numpy", "ipywidgets", "matplotlib", "ipython", "ipykernel", "setuptools")
WHOLE = ("00", "01", "03", "05", "09")  # run to the end; of every lesson the set-up cell is run
LESSONS = sorted((ROOT / "notebooks/bn").glob("*.ipynb"))
SECONDS = 1000
READY = "set-up cells have run"  # a file in the environment

RUN_SETUP_CELL = """
import json, os, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for path in sys.argv[1:]:
    os.chdir(os.path.dirname(path))
    cell = next(c for c in json.load(open(path))["cells"] if c["cell_type"] == "code")
    for _ in range(2):  # it is safe to run again
        shell.run_cell("".join(cell["source"])).raise_error()
    assert shell.find_cell_magic("torchrun"), path
    print("ok", path)
"""


def versions(python: Path) -> dict[str, str]:
    code = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    return json.loads(subprocess.run([python, "-c", code, *KEPT], capture_output=True, text=True, check=True).stdout)


def pip(python: Path, *arguments: str) -> None:
    done = subprocess.run([python, "-m", "pip", "-q", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def bare(folder: Path) -> Path:
    """The Python of a new environment like Colab's, without labkit."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    python = folder / "bin/python"
    torch = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.M)[0]
    pip(python, "install", "--no-compile", "-r", str(PINS), torch)
    return python


@pytest.fixture(scope="module")
def colab(tmp_path_factory) -> Path:
    """Its Python, after the set-up cell of every lesson ran there; what Colab had is what it has still."""
    shared = os.environ.get("LABKIT_COLAB")
    folder = Path(shared) if shared else tmp_path_factory.mktemp("colab")
    if (folder / READY).exists():
        return folder / "bin/python"
    python = bare(folder)
    before = versions(python)
    missing = subprocess.run([python, "-c", "import labkit"], capture_output=True, cwd=python.parent)
    assert missing.returncode, "labkit is there already: the set-up cell would have nothing to do"
    paths = [str(ROOT / "notebooks" / language / path.name) for path in LESSONS for language in ("bn", "en")]
    done = subprocess.run([python, "-c", RUN_SETUP_CELL, *paths], capture_output=True, text=True, timeout=SECONDS,
                          cwd=python.parent, env=environment(python))  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("ok ") == len(paths)
    assert versions(python) == before
    (folder / READY).touch()
    return python


def environment(python: Path) -> dict[str, str]:
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "LABKIT_SKIP_SVG": "1", "COLUMNS": "80"}


@pytest.mark.slow
def test_set_up_cell_installs_labkit_and_leaves_the_rest_alone(colab):
    where = subprocess.run([colab, "-c", "import labkit; print(labkit.__file__)"], capture_output=True, text=True,
                           cwd=colab.parent, check=True).stdout  # fmt: skip
    assert str(colab.parent.parent) in where
    assert subprocess.run([colab, "-m", "pip", "check"], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def with_mxnet(colab: Path) -> Path:
    """MXNet by the very command that the lesson tells Colab's users to run."""
    code = "import labkit as lab; print(lab.mx.install_command())"
    told = subprocess.run([colab, "-c", code], capture_output=True, text=True, check=True, cwd=colab.parent).stdout
    assert told.startswith("%pip install ")
    pip(colab, *shlex.split(told)[1:])
    return colab


@pytest.mark.parametrize("lesson", [path.stem for path in LESSONS if path.stem.startswith(WHOLE)])
def test_lesson_runs_to_the_end(lesson, request):
    python = request.getfixturevalue("with_mxnet" if lesson.startswith("09") else "colab")
    command = [python, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(ROOT), "-p", "no:cacheprovider",
               "--nbval", "--nbval-current-env", f"--nbval-sanitize-with={SANITIZE}", "--nbval-cell-timeout=240",
               str(ROOT / f"notebooks/bn/{lesson}.ipynb")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(python), timeout=SECONDS)
    assert done.returncode == 0, done.stdout[-6000:]
    notebook = nbformat.read(ROOT / f"notebooks/bn/{lesson}.ipynb", as_version=4)
    assert f"{sum(cell.cell_type == 'code' for cell in notebook.cells)} passed" in done.stdout
