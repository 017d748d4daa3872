"""make gpu on machines without one, and the parts of it that need none."""

from __future__ import annotations

import json

import nbformat
import pytest

from tests import gpu, lanes


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lanes, "has_gpu", lambda: False)
    assert gpu.main(["--folder", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "no CUDA GPU" in said
    assert "make clean" in said
    assert "GPU পাচ্ছে না" in said
    assert not list(tmp_path.iterdir())


def test_the_card_is_written_after_each_part(tmp_path, monkeypatch):
    """A rented machine may be gone before the last part ends."""
    import torch

    monkeypatch.setattr(lanes, "has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA Test-1 (PCIe)")
    monkeypatch.setattr(gpu, "gpu_tests", lambda: {"passed": 2, "ok": True})
    monkeypatch.setattr(gpu, "lessons", lambda: {"lessons": {}, "ok": False})

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
    assert gpu.main(["--folder", str(tmp_path), "--skip", "bench"]) == 1  # a part that is not ok fails the run
    assert gpu.main(["--folder", str(tmp_path), "--skip", "lessons,bench"]) == 0


@pytest.mark.slow
def test_a_lesson_that_fails_is_a_line_on_the_card(tmp_path):
    cells = [nbformat.v4.new_code_cell(code) for code in ("print('\"faster\" holds')", "1 / 0", "print('never')")]
    path = tmp_path / "90_broken.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    result = gpu.run_lesson(path)
    assert not result["ok"]
    assert result["error"] == "ZeroDivisionError: division by zero"
    assert result["claims"] == ['"faster" holds']
