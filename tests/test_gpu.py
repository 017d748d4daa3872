"""make gpu on machines without one, and the parts of it that need none."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import types

import nbformat
import psutil
import pytest

import labkit as lab
from tests import gpu, lanes


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lanes, "has_gpu", lambda: False)
    assert gpu.main(["--folder", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "no CUDA GPU" in said
    assert "make clean" in said
    assert said.count("make gpu TORCH=installed") == 2
    assert "GPU পাচ্ছে না" in said
    assert not list(tmp_path.iterdir())


def test_the_card_is_written_after_each_part(tmp_path, monkeypatch):
    """A rented machine may be gone before the last part ends."""
    import torch

    monkeypatch.setattr(lanes, "has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA Test-1 (PCIe)")
    monkeypatch.setattr(gpu, "gpu_tests", lambda: {"passed": 2, "ok": True})
    monkeypatch.setattr(gpu, "lessons", lambda: {"lessons": {}, "ok": False})
    seen, cards = [], {"FusionLab": {"kind": "fusion lab"}}

    def labs():
        seen.append(sorted(json.loads(next(tmp_path.iterdir()).read_text())))  # what a power cut would leave
        return {"runs": {"FusionLab": {"n": 4}}, "cards": cards, "errors": {}, "ok": True}

    monkeypatch.setattr(gpu, "labs", labs)

    def power_cut():
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu, "benches", power_cut)
    with pytest.raises(KeyboardInterrupt):
        gpu.main(["--folder", str(tmp_path)])
    [path] = tmp_path.iterdir()
    card = json.loads(path.read_text())
    assert path.name == f"gpu-nvidia-test-1-pcie-{card['machine']['utc'][:10]}.json"
    assert card["machine"]["torch"] == torch.__version__
    assert card["tests"] == {"passed": 2, "ok": True}
    assert "bench" not in card
    assert seen == [["lessons", "machine", "tests"]]
    assert (card["runs"], card["cards"]) == ({"FusionLab": {"n": 4}}, cards)  # as in findings.json
    assert card["labs"] == {"errors": {}, "ok": True}
    assert json.loads((gpu.ROOT / "data/measurements/findings.json").read_text()).keys() <= card.keys()
    assert gpu.main(["--folder", str(tmp_path), "--skip", "bench"]) == 1  # a part that is not ok fails the run
    assert gpu.main(["--folder", str(tmp_path), "--skip", "lessons,bench"]) == 0
    assert not {"lessons", "bench"} & json.loads(path.read_text()).keys()


def test_lessons_of_both_editions_are_run(tmp_path, monkeypatch):
    for edition in ("bn", "en"):
        (tmp_path / "notebooks" / edition).mkdir(parents=True)
        for name in ("01_first.ipynb", "02_second.ipynb", "notes.ipynb"):
            (tmp_path / "notebooks" / edition / name).touch()
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    monkeypatch.setattr(gpu, "run_lesson", lambda path: {"seconds": 1, "ok": path.stem != "02_second", "error": ""})
    found = gpu.lessons()
    assert list(found["lessons"]) == ["bn/01_first", "bn/02_second", "en/01_first", "en/02_second"]
    assert not found["ok"]
    monkeypatch.setattr(gpu, "run_lesson", lambda path: {"seconds": 1, "ok": True, "error": ""})
    assert gpu.lessons()["ok"]
    for path in (tmp_path / "notebooks/bn").iterdir():
        path.unlink()
    assert not gpu.lessons()["ok"]  # an edition without lessons is not a pass


def test_a_lab_that_fails_leaves_the_others(monkeypatch):
    from labkit import widgets

    class Lab:
        def __init__(self):
            self.result = None

        def run(self, **controls):
            if controls["n"] > 9:
                raise RuntimeError("out of memory")
            self.result = types.SimpleNamespace(card=lambda: {"controls": {**controls, "dtype": "float32"}})
            return controls["n"]

        def card(self, value):
            return {"kind": "test", "n": value}

    for name in ("FusionLab", "CompileLab"):
        monkeypatch.setattr(widgets, name, Lab)
    runs = {"CompileLab": {"n": 10}, "FusionLab": {"n": 5}}
    findings = types.SimpleNamespace(RUNS=runs, run=gpu._findings().run)
    monkeypatch.setattr(gpu, "_findings", lambda: findings)
    found = gpu.labs()
    assert found["runs"] == {"FusionLab": {"n": 5, "dtype": "float32"}}
    assert found["cards"] == {"FusionLab": {"kind": "test", "n": 5}}
    assert found["errors"] == {"CompileLab": "RuntimeError: out of memory"}
    assert not found["ok"]
    runs.pop("CompileLab")
    assert gpu.labs()["ok"]


def test_the_labs_are_those_of_the_findings():
    from labkit import widgets

    runs = gpu._findings().RUNS
    assert len(runs) == 3
    for name, controls in runs.items():
        assert set(controls) <= {control.name for control in getattr(widgets, name)().controls()}


@pytest.mark.parametrize("language", ["bn", "en"])
@pytest.mark.parametrize("value", [1.0, 2.0])
def test_a_claim_is_known_by_its_beginning(language, value):
    from labkit._statistics import Ratio
    from labkit.language import speaking

    ratio = Ratio(value, value, value)
    comparison = types.SimpleNamespace(ratio=lambda name: ratio, facts={}, baseline="eager", budget_s=1.0)
    with speaking(language):
        for bound in ({"kind": "faster", "at_least": 1.5}, {"kind": "not faster", "at_most": 1.5}):
            assert lab.claim(comparison, "fused", **bound).text.startswith(gpu.CLAIMS)


@pytest.mark.slow
def test_a_lesson_that_fails_is_a_line_on_the_card(tmp_path):
    codes = ("print('It holds.\\nHolds: a is faster.')", "1 / 0", "print('never')")
    cells = [nbformat.v4.new_code_cell(code) for code in codes]
    path = tmp_path / "90_broken.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    result = gpu.run_lesson(path)
    assert not result["ok"]
    assert result["error"] == "ZeroDivisionError: division by zero"
    assert result["claims"] == ["Holds: a is faster."]


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_ending_it_ends_the_lesson_too_and_starts_no_other(sent, tmp_path):
    for name in ("90_first", "91_second"):
        note = tmp_path / f"{name}.pid"
        code = f"import os, time\nopen({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
        nbformat.write(notebook, tmp_path / f"{name}.ipynb")
    runner = (
        "from pathlib import Path; from tests import gpu\n"
        f"for path in sorted(Path({str(tmp_path)!r}).glob('*.ipynb')):\n"
        "    gpu.run_lesson(path)"
    )
    process = subprocess.Popen([sys.executable, "-c", runner], cwd=gpu.ROOT, stderr=subprocess.PIPE, text=True)
    first, until = tmp_path / "90_first.pid", time.monotonic() + 60
    while not (first.exists() and first.read_text()) and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(sent)
    assert process.wait(30) != 0
    assert "KeyboardInterrupt" in process.stderr.read()
    assert not psutil.pid_exists(int(first.read_text()))
    assert not (tmp_path / "91_second.pid").exists()
