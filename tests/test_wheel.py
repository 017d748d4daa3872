"""The package as others get it: built by ``python -m build``, installed from the wheel into an empty environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """The Python of an environment with nothing but pip."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """(wheel, sdist, what was said while they were built); the wheel is made from the sdist."""
    folder = tmp_path_factory.mktemp("built")
    project = folder / "project"
    # Without .gitignore's folders: build skips them, but copying an environment takes long.
    skipped = shutil.ignore_patterns(".git", ".venv", ".cache", ".*_cache", "__pycache__", "dist", "solved", "course")
    shutil.copytree(ROOT, project, ignore=skipped)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = str(folder / "venv/bin/python")
    subprocess.run([python, "-m", "pip", "install", "-q", "build"], check=True, capture_output=True)
    done = subprocess.run([python, "-m", "build", "--outdir", str(folder / "dist"), str(project)],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel], [sdist] = folder.glob("dist/*.whl"), folder.glob("dist/*.tar.gz")
    return wheel, sdist, done.stdout + done.stderr


def names_in(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_nothing_is_warned_about(built):
    said = [line for line in built[2].splitlines() if "warn" in line.lower() or "deprecat" in line.lower()]
    # What pip says about a package index in a folder is no word about this package.
    assert [line for line in said if not ("Location" in line and "is ignored" in line)] == []


def test_the_wheel_holds_all_that_the_package_reads(built):
    names = names_in(built[0])
    data = {f"labkit/data/{line.split()[1]}" for line in (ROOT / "data/SHA256SUMS").read_text().splitlines()}
    data |= {f"labkit/data/measurements/{path.name}" for path in (ROOT / "data/measurements").glob("*.json")}
    wanted = data | {"labkit/data/SHA256SUMS", "labkit/locale/bn.po", "labkit/fonts/NotoSansBengali-Regular.ttf",
                     "labkit/fonts/NotoSansBengali-Bold.ttf", "labkit/fonts/LICENSE_FONT"}  # fmt: skip
    assert wanted <= names
    code = {path.relative_to(ROOT).as_posix() for path in (ROOT / "labkit").rglob("*.py")}
    assert code <= names
    assert {name.split("/")[0] for name in names} == {"labkit", f"{built[0].name.rsplit('-', 3)[0]}.dist-info"}
    assert not [name for name in names if name.endswith((".pyc", ".ipynb"))]


def test_the_sdist_is_the_project(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "Makefile", "README.md", "LICENSE", "CHANGELOG.md", "notebooks/build.py",
            "notebooks/src/01_measuring.md", "tests/test_wheel.py", "data/SHA256SUMS"} <= names  # fmt: skip
    assert not [name for name in names if name.startswith((".venv", ".cache", "dist", ".git/"))]


BARE = """
import sys, labkit as lab
from labkit import _recorded, datasets, units
assert "site-packages" in lab.__file__, lab.__file__
lab.use_language("en")
print(len(lab.datasets.places("division")), units.seconds(0.0123), lab.language.t("{n} runs", n=3))
print(len(_recorded.recordings("FusionLab", ["n"])) > 0)
print(sorted({"torch", "numpy", "babel", "matplotlib"} & set(sys.modules)))
"""
WITH_THE_REST = """
import labkit as lab
assert lab.__file__.startswith(PREFIX), lab.__file__
lab.use_language("bn")
machine = lab.machine()
print(machine.facts["states"]["bengali"], len(machine.lessons) > 9, "মেমোরি" in str(machine))
print(len(lab.datasets.digits().labels), lab.measure(sum, range(1000), budget_s=0.02).n > 2)
lab.check("01-1", None)
"""


def test_it_works_in_an_empty_environment(built, empty, tmp_path):
    subprocess.run([empty, "-m", "pip", "install", "-q", "--no-deps", "--no-index", built[0]], check=True,
                   capture_output=True)  # fmt: skip
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([empty, "-c", BARE], cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["8 12.3 ms 3 runs", "True", "[]"], done.stderr
    # Its requirements come from this environment's folder; that this labkit is editable does not matter there.
    rest = alone | {"PYTHONPATH": sysconfig.get_paths()["purelib"], "MPLBACKEND": "agg", "PYTHONUTF8": "1"}
    prefix = repr(str(empty.parent.parent))
    code = "import sys; sys.path.sort(key=lambda path: path == sys.argv[1])\n"  # there, and last
    command = [empty, "-c", code + WITH_THE_REST.replace("PREFIX", prefix), rest["PYTHONPATH"]]
    done = subprocess.run(command, cwd=tmp_path, env=rest, capture_output=True, text=True)
    assert done.stdout.splitlines()[:2] == ["good True True", "1797 True"], done.stdout + done.stderr
    assert "অনুশীলনী 1.1" in done.stdout.splitlines()[2]
