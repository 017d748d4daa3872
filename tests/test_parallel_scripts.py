"""The distributed algorithms of the lessons, as scripts on real ranks, against one process that does the same alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from labkit import launch

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
RANKS = Path(__file__).parent / "ranks"


def module(name: str):
    spec = importlib.util.spec_from_file_location(name, RANKS / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


tiny = module("tiny")


@pytest.fixture(scope="module")
def truth():
    weights, losses = tiny.alone()
    start = tiny.weights_of(tiny.network())
    assert max_gap(weights, start) > 0.1  # training did change something
    return weights, losses


def flat(value) -> list[float]:
    return [number for item in value for number in flat(item)] if isinstance(value, list) else [value]


def max_gap(one: dict[str, list], other: dict[str, list]) -> float:
    assert one.keys() == other.keys()
    return max(abs(a - b) for name in one for a, b in zip(flat(one[name]), flat(other[name]), strict=True))


def run(name: str, ranks: int = 2, **options) -> list[dict]:
    return launch.torchrun(RANKS / f"{name}.py", ranks, show=False, **options)


@pytest.mark.parametrize("name", ["averaged", "ddp", "fsdp2"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_data_parallel_training_equals_one_process(name, ranks, truth):
    weights, losses = truth
    results = run(name, ranks)
    assert len(results) == ranks
    for result in results:
        assert max_gap(result["weights"], weights) < 1e-12
        assert result["losses"] == pytest.approx(losses, abs=1e-12)
    whole = sum(len(flat(value)) for value in weights.values()) * 8
    if name == "fsdp2" and ranks == 2:  # every first dimension divides by two
        assert [(r["parameter_bytes"], r["gradient_bytes"]) for r in results] == [(whole // 2, whole // 2)] * 2


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_ring_sums_and_sends_what_the_formula_says(ranks):
    results = run("ring", ranks)
    assert all(result["equal"] for result in results)
    assert sum(result["sent"] for result in results) == 2 * (ranks - 1) * 10
    assert len({tuple(result["x"]) for result in results}) == 1


@pytest.mark.parametrize("name", ["tensor_parallel", "tensor_parallel_torch"])
def test_tensor_parallel_training_equals_one_process(name, truth):
    weights, losses = truth
    results = run(name)
    for result in results:
        assert result["losses"] == pytest.approx(losses, abs=1e-12)
    if name == "tensor_parallel":
        joined = dict(results[0]["weights"])
        first, second = results[0]["weights"], results[1]["weights"]
        for name in ("0.weight", "0.bias"):
            joined[name] = first[name] + second[name]  # rows, one below the other
        joined["2.weight"] = [a + b for a, b in zip(first["2.weight"], second["2.weight"], strict=True)]
        assert max_gap(joined, weights) < 1e-12
    else:
        assert max_gap(results[0]["weights"], weights) < 1e-12
        forward, backward = results[0]["collectives"]
        assert forward == {"all_reduce": 1}
        assert backward == {}  # the input of the first layer needs no gradient


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_pipeline_training_equals_one_process(schedule, ranks, truth):
    weights, losses = truth
    results = run("pipeline", ranks, values={"schedule": schedule})
    joined = {name: value for result in results for name, value in result["weights"].items()}
    assert max_gap(joined, weights) < 1e-12
    assert results[-1]["losses"] == pytest.approx(losses, abs=1e-12)
    # GPipe keeps every micro-batch's activations; 1F1B no more than there are stages from here on.
    assert [r["most_waiting"] for r in results] == ([4] * ranks if schedule == "gpipe" else list(range(ranks, 0, -1)))


def test_schedules_do_everything_once_and_in_a_possible_order():
    pipeline = module_without_ranks("pipeline")
    for ranks in (1, 2, 3, 4):
        for micro in (1, 2, 4, 7):
            for schedule in (pipeline.gpipe, pipeline.one_f_one_b):
                for me in range(ranks):
                    order = schedule(me, ranks, micro)
                    assert sorted(order) == sorted((kind, i) for kind in "FB" for i in range(micro))
                    assert all(order.index(("F", i)) < order.index(("B", i)) for i in range(micro))
    assert pipeline.one_f_one_b(0, 2, 3) == [("F", 0), ("F", 1), ("B", 0), ("F", 2), ("B", 1), ("B", 2)]


def module_without_ranks(name: str):
    import sys

    sys.modules["tiny"] = tiny
    try:
        return module(name)
    finally:
        del sys.modules["tiny"]
