"""Real installs into a folder of their own, in which only torch is a stub: its CUDA build has several gigabytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from setup_env import pythons
from tests import fresh_copy
from tests.test_setup import environment_with_torch, pins, tiny_disk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
TORCH = pins((fresh_copy.ROOT / "constraints.txt").read_text(), "3.11")["torch"]
__all__ = ["MXNET_COMPUTES", "fresh", "in_venv", "setup", "tiny_disk"]


def python(version):
    """A Python of this minor version that can make an environment."""
    for name in [f"python{version}", *pythons.candidates()]:
        found = pythons.probe(name)
        if found and f"{found[0][0]}.{found[0][1]}" == version and found[2]:
            return found[1]
    return pytest.skip(f"no Python {version}")


@pytest.fixture
def fresh(tmp_path):
    return fresh_copy.copy(tmp_path / "project folder")


@pytest.fixture
def setup(fresh, tmp_path):
    """Run ``make setup`` in the fresh copy; the arguments are make's."""
    index = fresh_copy.stub_torch(tmp_path / "index", TORCH)

    def run(*arguments, goal="setup", **environment):
        return fresh_copy.make(
            fresh,
            goal,
            f"TORCH_INDEX={index}",
            *arguments,
            path=fresh_copy.usual_path(),
            home=tmp_path,
            PIP_CACHE_DIR=os.path.expanduser("~/.cache/pip"),
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")} | environment,
        )

    return run


def in_venv(fresh, code):
    done = subprocess.run([fresh / ".venv/bin/python", "-c", code], cwd=fresh, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


MXNET_COMPUTES = """
import numpy, labkit.mx
mx = labkit.mx.load()
print(numpy.__version__, mx.__version__, mx.nd.ones((2, 3)).sum().asscalar())
"""


def interrupt_half_way(fresh, command):
    """Start, and kill everything as a power cut would, once pip has begun to write packages."""
    with subprocess.Popen(command, cwd=fresh, start_new_session=True, stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 600
        while not any((fresh / ".venv").glob("lib/python3*/site-packages/matplotlib*")):
            assert process.poll() is None, "it ended before it could be interrupted"
            assert time.monotonic() < until
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)


def test_python_313_interrupted_repaired_and_repeated(fresh, setup, tmp_path):
    chosen = f"PYTHON={python('3.13')}"
    index = f"TORCH_INDEX={(tmp_path / 'index').as_uri()}"
    interrupt_half_way(fresh, ["make", "setup", chosen, index, "EXTRAS=mxnet"])

    done = setup(chosen, "EXTRAS=mxnet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the last installation stopped half-way" in done.stdout
    assert in_venv(fresh, MXNET_COMPUTES) == "2.1.3 1.9.1 6.0"
    check = subprocess.run([fresh / ".venv/bin/python", "-m", "pip", "check"], capture_output=True, text=True)
    assert [line.split(" has requirement ")[0] for line in check.stdout.splitlines()] == ["mxnet 1.9.1"]

    # Nothing to do: quick, and nothing is touched.
    before = {path: path.stat().st_mtime_ns for path in (fresh / ".venv").rglob("*") if "__pycache__" not in str(path)}
    began = time.monotonic()
    again = setup("EXTRAS=mxnet")
    assert again.returncode == 0
    assert "up to date" in again.stdout
    assert time.monotonic() - began < 5
    after = {path: path.stat().st_mtime_ns for path in (fresh / ".venv").rglob("*") if "__pycache__" not in str(path)}
    assert after == before

    # A moved project cannot keep its environment.
    (fresh / ".venv/labkit-setup.json").write_text(
        json.dumps(json.loads((fresh / ".venv/labkit-setup.json").read_text()) | {"root": "/elsewhere"})
    )
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1"}
    offline = setup("EXTRAS=mxnet", **nowhere)
    assert offline.returncode == 2
    assert "the project's folder has moved" in offline.stdout
    assert "the network does not answer" in offline.stdout
    assert "নেটওয়ার্কে সমস্যা" in offline.stdout
    assert not (fresh / ".venv/labkit-setup-unfinished").exists()  # the next run need not start afresh


def test_no_mxnet_for_this_machine(fresh, setup):
    """pip finds no MXNet, as on Apple silicon: all the rest is installed, and it is said."""
    done = setup("EXTRAS=mxnet", PIP_NO_BINARY="mxnet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MXNet has no package for this machine" in done.stdout
    assert "মেশিনের" in done.stdout
    assert in_venv(fresh, "import labkit, importlib.util; print(importlib.util.find_spec('mxnet'))") == "None"


def test_the_torch_of_the_machine_stays(fresh, setup, tmp_path):
    """In an environment of its own, as on a rented GPU; the index offers the tested release too."""
    own = environment_with_torch(tmp_path / "image", "2.9.1+own")
    done = setup("TORCH=installed", f"PYTHON={own}", "EXTRAS=")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Using this machine's own PyTorch 2.9.1+own ({own})" in done.stdout
    where = "import torch, importlib.metadata as m; print(torch.__version__, m.version('torch'), torch.__file__)"
    version, known, path = in_venv(fresh, where).split(maxsplit=2)
    assert (version, known) == ("2.9.1+own", "2.9.1+own")
    assert path.startswith(str(tmp_path / "image"))
    assert not list((fresh / ".venv").glob("lib/python3*/site-packages/torch*"))
    again = setup("EXTRAS=")
    assert again.returncode == 0
    assert "up to date" in again.stdout


def test_disk_fills_up_in_the_middle(tiny_disk, tmp_path):
    """The disk looked large enough, then was not: the set-up says so, and the next one starts afresh."""
    project = fresh_copy.copy(tiny_disk / "project")
    code = "from setup_env import packages, __main__ as m; packages.NEEDED_GB = 0; raise SystemExit(m.main(['setup']))"
    done = subprocess.run(
        [pythons.probe("python3")[1], "-c", code, "--torch-index", "x"],
        cwd=project,
        env=os.environ | {"PIP_EXTRA_INDEX_URL": fresh_copy.stub_torch(tmp_path / "index", TORCH)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "The disk is full" in done.stdout
    assert "No space left" in done.stderr


def test_an_installed_wheel_carries_its_data(fresh, tmp_path):
    """As Colab installs it: no repository beside the package."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path / "site"), str(fresh)]
    subprocess.run(pip, check=True)
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import labkit
from labkit import datasets, language
assert labkit.__file__.startswith(sys.argv[1])
print(len(datasets.places()), len(datasets.digits().labels), len(language._bengali()) > 50)
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(tmp_path / "site")], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.split() == ["6126", "1797", "True"], done.stderr
    assert {path.suffix for path in (tmp_path / "site/labkit/fonts").iterdir()} >= {".ttf"}
