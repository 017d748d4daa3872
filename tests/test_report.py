"""Values between the notebook and its ranks."""

from __future__ import annotations

import json

import pytest

import labkit as lab
from labkit import _report, launch


@pytest.fixture(autouse=True)
def _english():
    lab.use_language("en")


def test_what_travels():
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    sent = {
        "none": None, "yes": True, "whole": 3, "text": "ক্ষ", "pair": (1, [2.5]), "deep": {"a": {"b": torch.tensor(2)}},
        "loss": torch.tensor(0.5, requires_grad=True), "half": torch.ones(2, dtype=torch.bfloat16),
        "row": np.arange(3), "number": np.float32(1.5), "wide": np.float64(2.5), "flag": np.bool_(True),
    }  # fmt: skip
    plain = {name: _report.plain(value, name) for name, value in sent.items()}
    assert json.loads(json.dumps(plain)) == {
        "none": None, "yes": True, "whole": 3, "text": "ক্ষ", "pair": [1, [2.5]], "deep": {"a": {"b": 2}},
        "loss": 0.5, "half": [1.0, 1.0], "row": [0, 1, 2], "number": 1.5, "wide": 2.5, "flag": True,
    }  # fmt: skip


def test_what_does_not_travel():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"net is a Linear.*torch\.save"):
        _report.plain(torch.nn.Linear(1, 1), "net")
    with pytest.raises(TypeError, match="found is a set"):
        _report.plain({"deep": [{1, 2}]}["deep"][0], "found")
    with pytest.raises(TypeError, match="keys that are not text"):
        _report.plain({1: 2}, "counts")
    with pytest.raises(ValueError, match="x has 1000001 numbers"):
        _report.plain(torch.zeros(1_000_001), "x")


def test_outside_a_launch_a_report_is_printed(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    lab.report(loss=0.5)
    assert capsys.readouterr().out == "rank 3 reports {'loss': 0.5}\n"
    assert launch.value("lr", 0.1) == 0.1
    with pytest.raises(KeyError, match="--set lr"):
        launch.value("lr")


@pytest.mark.parametrize(("role", "magic"), [(None, "%%torchrun"), ("worker", "%%mxnet_ps")])
def test_a_value_that_was_not_handed_over_names_the_magic_to_hand_it_with(monkeypatch, role, magic):
    monkeypatch.delenv("DMLC_ROLE", raising=False)
    if role:
        monkeypatch.setenv("DMLC_ROLE", role)
    with pytest.raises(KeyError, match=f"--set rate=.*{magic}"):
        launch.value("rate")
    assert launch.value("rate", 0.1) == 0.1
