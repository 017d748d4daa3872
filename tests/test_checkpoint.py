"""Checkpoints: what comes back, what is refused, and what a full disk is called."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import subprocess

import pytest

import labkit as lab
from labkit import launch

torch = pytest.importorskip("torch")


def trained(steps: int = 3, seed: int = 0):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        step(model, optimizer)
    return model, optimizer


def step(model, optimizer) -> float:
    loss = model(torch.arange(24.0).reshape(6, 4) / 24).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.fixture(autouse=True)
def _english():
    lab.use_language("en")


def test_training_goes_on_exactly_where_it_stopped(tmp_path):
    model, optimizer = trained()
    path = launch.save_checkpoint(tmp_path, 3, model, optimizer, loss=0.5, seen=[1, 2])
    expected = [step(model, optimizer) for _ in range(3)]
    other, other_optimizer = trained(steps=0, seed=1)
    assert step(*trained(steps=0, seed=1)) != expected[0]
    assert launch.load_checkpoint(path, other, other_optimizer) == {"step": 3, "loss": 0.5, "seen": [1, 2]}
    assert [step(other, other_optimizer) for _ in range(3)] == expected


def test_without_an_optimizer(tmp_path):
    model, _ = trained()
    path = launch.save_checkpoint(tmp_path, 0, model)
    other, _ = trained(seed=1)
    assert launch.load_checkpoint(path, other) == {"step": 0}
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))


def test_only_complete_checkpoints_are_resumed_from(tmp_path):
    assert launch.latest_checkpoint(tmp_path) is None
    assert launch.latest_checkpoint(tmp_path / "nowhere") is None
    model, _ = trained()
    paths = [launch.save_checkpoint(tmp_path, number, model) for number in (9, 10, 11)]
    (tmp_path / "step_notes").mkdir()
    assert launch.latest_checkpoint(tmp_path) == paths[2]
    (paths[2] / ".metadata").unlink()
    assert launch.latest_checkpoint(tmp_path) == paths[1]
    with pytest.raises(FileNotFoundError, match="not a complete checkpoint"):
        launch.load_checkpoint(paths[2], model)


def test_a_rewrite_that_is_cut_short_does_not_look_complete(tmp_path, monkeypatch):
    model, _ = trained()
    path = launch.save_checkpoint(tmp_path, 1, model)
    assert launch.latest_checkpoint(tmp_path) == path

    def cut_short(*args, **kwargs):
        raise ConnectionError("power went")

    monkeypatch.setattr("torch.distributed.checkpoint.save", cut_short)
    with pytest.raises(ConnectionError):
        launch.save_checkpoint(tmp_path, 1, model)
    assert launch.latest_checkpoint(tmp_path) is None


class Trap:
    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def test_loading_runs_no_code_of_the_metadata(tmp_path):
    model, _ = trained()
    path = launch.save_checkpoint(tmp_path, 1, model)
    marker = tmp_path / "sprung"
    (path / ".metadata").write_bytes(pickle.dumps(Trap(marker)))
    with pytest.raises(pickle.UnpicklingError, match=r"posix\.mkdir"):
        launch.load_checkpoint(path, model)
    assert not marker.exists()
    pickle.loads(pickle.dumps(Trap(marker)))  # the trap itself works
    assert marker.exists()


def test_loading_runs_no_code_of_the_values(tmp_path, monkeypatch):
    model, _ = trained()
    marker = tmp_path / "sprung"
    monkeypatch.setattr("labkit._checkpoint.json.dumps", lambda value: Trap(marker))
    path = launch.save_checkpoint(tmp_path, 1, model)
    with pytest.raises(pickle.UnpicklingError, match="mkdir"):
        launch.load_checkpoint(path, model)
    assert not marker.exists()


def test_a_full_disk_is_called_one(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("no small file system (mounting is not allowed here)")
    try:
        model = torch.nn.Linear(300, 300)
        with pytest.raises(OSError, match="no space left on the disk") as caught:
            launch.save_checkpoint(small, 1, model)
        assert caught.value.errno == errno.ENOSPC
        assert launch.latest_checkpoint(small) is None
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.slow
def test_saved_on_two_ranks_loads_on_another_number(tmp_path):
    """The second half of training gives the same losses however many ranks do it."""
    from tests.processes import ROOT

    script = ROOT / "tests" / "ranks" / "resharded.py"

    def half(ranks: int, folder) -> dict:
        return launch.torchrun(script, ranks, values={"folder": str(folder)}, show=False)[0]

    first = half(2, tmp_path / "saved")
    assert first["start"] == 0
    seconds = {}
    for ranks in (1, 2, 3, 4):
        shutil.copytree(tmp_path / "saved", tmp_path / f"on{ranks}")
        seconds[ranks] = half(ranks, tmp_path / f"on{ranks}")
    assert {result["start"] for result in seconds.values()} == {10}
    for ranks in (1, 3, 4):
        assert seconds[ranks]["losses"] == pytest.approx(seconds[2]["losses"], abs=1e-12)
    assert seconds[2]["losses"][-1] < first["losses"][-1] < first["losses"][0]
