"""The stick for a lab without internet, packed and installed for real; only torch is a stub, see test_setup_install."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests import fresh_copy
from tests.test_setup_install import MXNET_COMPUTES, fresh, in_venv, setup

pytestmark = [pytest.mark.slow, pytest.mark.netns, pytest.mark.timeout(1500)]
__all__ = ["fresh", "setup"]


def test_packed_for_a_lab_without_internet(fresh, setup, tmp_path):
    """The stick is packed with a network, and installs in a namespace that has none at all."""
    shutil.copytree(fresh_copy.ROOT / "notebooks", fresh / "notebooks", dirs_exist_ok=True)
    (fresh / "notebooks/bn/ddp_lab").mkdir(exist_ok=True)  # what a learner's run left behind stays here
    stick = tmp_path / "stick" / "labkit"
    done = setup(f"OUT={stick}", goal="offline")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "make lab" in (stick / "START.txt").read_text(encoding="utf-8")
    assert not (stick / ".venv").exists()
    assert not (stick / "notebooks/bn/ddp_lab").exists()
    for carried in ("notebooks/*/*.ipynb", "notebooks/sheets/*/*.html", "labkit/**/*.ttf", "data/*"):
        there = {path.relative_to(stick) for path in stick.glob(carried)}
        assert there >= {path.relative_to(fresh) for path in fresh.glob(carried)} != set(), carried
    again = setup(f"OUT={stick}", goal="offline")
    assert again.returncode == 2
    assert "is not empty" in again.stdout

    cut_off = ["unshare", "--net", shutil.which("make"), "setup"]
    environment = {"PATH": fresh_copy.usual_path(), "HOME": str(tmp_path / "home"), "PIP_NO_CACHE_DIR": "1"}
    done = subprocess.run(cut_off, cwd=stick, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert in_venv(stick, MXNET_COMPUTES).endswith("1.9.1 6.0")
    assert in_venv(stick, "import labkit.datasets as d; print(len(d.digits().labels))") == "1797"
    assert in_venv(stick, "import jupyterlab, ipywidgets; print(jupyterlab.__version__)")
