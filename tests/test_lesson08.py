"""Lesson 08: counts agree with what is measured, schedules with the formula, and the checks know right from wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import labkit as lab
from labkit import launch
from labkit.lessons import activations, l08, model_memory, pipeline_view, resnet, schedules, tensor_cuts, transformer
from labkit.lessons.activations import Kept, alive_bytes
from labkit.lessons.model_memory import NETWORKS, rank_memory

pytestmark = pytest.mark.usefixtures("english")
SEEDS = range(5)
STAGES = Path(__file__).parent / "ranks" / "stages.py"
SENT = Path(__file__).parent / "ranks" / "sent.py"
BOTH = list(schedules.SCHEDULES.items())


# --- schedules ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "schedule"), BOTH)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("micro", [1, 2, 5, 8])
@pytest.mark.parametrize("backward", [1, 2])
def test_a_plan_has_the_formulas_bubble(name, schedule, ranks, micro, backward):
    it = schedules.plan(schedule, ranks, micro, backward=backward)
    assert it.idle_share == pytest.approx(schedules.bubble(ranks, micro))
    assert it.length == (1 + backward) * (micro + ranks - 1)
    assert it.waiting == ([micro] * ranks if name == "GPipe" else [min(ranks - me, micro) for me in range(ranks)])


def test_a_plan_keeps_to_what_is_possible():
    for _, schedule in BOTH:
        rows = schedules.plan(schedule, 4, 6).rows
        ends = {(span.kind, span.micro, rank): span for rank, row in enumerate(rows) for span in row}
        for (kind, i, rank), span in ends.items():
            before = ("F", i, rank - 1) if kind == "F" else ("B", i, rank + 1)
            assert before not in ends or ends[before].end <= span.start
        assert all(a.end <= b.start for row in rows for a, b in zip(row, row[1:], strict=False))


def test_an_order_in_which_all_wait_is_found():
    with pytest.raises(schedules.StuckError, match="Rank 0 wants to do B0"):
        schedules.plan(lambda me, ranks, micro: [("B", 0), ("F", 0)] if me == 0 else [("F", 0), ("B", 0)], 2, 1)


def test_a_plan_shows_itself():
    assert str(schedules.plan(schedules.gpipe, 2, 1)) == "rank 0  F0 .  .  B0\nrank 1  .  F0 B0 ."


def test_orders_travel_as_json():
    sent = json.loads(json.dumps(schedules.orders(schedules.one_f_one_b, 2, 3)))
    assert [tuple(work) for work in sent[0]] == schedules.one_f_one_b(0, 2, 3)


# --- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "seq", "width", "heads"), [(2, 16, 32, 4), (1, 48, 24, 2), (5, 8, 64, 8)])
def test_activations_on_paper_are_those_measured(batch, seq, width, heads):
    net, x = transformer.blocks(3, width, heads), torch.randn(batch, seq, width)
    on_paper = 4 * 3 * activations.activation_numbers(batch, seq, width, heads)
    with Kept(net.parameters()) as kept:
        loss = net(x).sum()
    scalars = kept.now - on_paper  # the number that scales the scores: eight bytes a block
    assert 0 <= scalars <= 3 * 8
    loss.backward()
    assert (kept.now, kept.most) == (0, on_paper + scalars)
    assert alive_bytes(lambda: net(x.clone()).sum()) == pytest.approx(on_paper, abs=100)
    assert alive_bytes(lambda: net(x.clone())) > on_paper + x.nbytes - 100  # its result stays as well


def test_kept_counts_a_storage_once_and_parameters_never():
    weight, x = nn.Parameter(torch.randn(8, 8)), torch.randn(4, 8)
    with Kept([weight]) as kept:
        first = x @ weight
        second = x.view(2, 16).view(4, 8) @ weight
    assert kept.now == x.nbytes
    with Kept() as both:
        third = x.requires_grad_() @ weight
    assert both.now == x.nbytes + weight.nbytes
    del first, second, third
    assert (kept.now, both.now) == (0, 0)


@pytest.mark.parametrize(("depths", "image"), [((1, 2, 1, 1), 96), ((2, 1), 64)])
def test_resnets_activations_on_paper_are_those_measured(depths, image):
    net, x = resnet.ResNet(depths), torch.randn(2, 3, image, image)
    channels = sum(m.num_features for m in net.modules() if isinstance(m, nn.BatchNorm2d))
    with Kept(net.parameters()) as kept:
        loss = net(x).sum()
    on_paper = 4 * resnet.activation_numbers(2, image, depths)
    running = 2 * 4 * channels  # batch-norm also names its running means and deviations
    assert on_paper <= kept.now <= on_paper + 2 * running + 3 * 4 * 2048
    del loss


def test_the_borders_are_the_inputs_of_the_blocks():
    net, seen = resnet.ResNet((1, 2, 1, 1)), []
    for block in net.stages:
        block.register_forward_pre_hook(lambda block, inputs: seen.append(inputs[0].numel()))
    net(torch.randn(2, 3, 64, 64))
    assert resnet.border_numbers(2, 64, (1, 2, 1, 1)) == sum(seen)


def test_parameters_on_paper_are_those_of_the_models():
    with torch.device("meta"):
        count = sum(p.numel() for p in resnet.ResNet().parameters())
        block = sum(p.numel() for p in transformer.Block(64, 4).parameters())
    assert count == NETWORKS["ResNet-152"].parameters
    assert model_memory.transformer(1, 64, 4, 8).parameters == block
    assert NETWORKS["BERT-base"].parameters == 109_482_240  # as the published checkpoint counts them
    assert round(NETWORKS["GPT-3"].parameters / 1e9) == 175


def test_memory_of_a_rank():
    gpt3 = NETWORKS["GPT-3"]
    alone = rank_memory(gpt3)
    assert alone.weights == alone.gradients == alone.states / 2 == 4 * gpt3.parameters
    mixed = [rank_memory(gpt3, ranks=8, stage=stage, precision="mixed") for stage in range(4)]
    held = [(m.weights + m.gradients + m.states) / gpt3.parameters for m in mixed]
    assert held == pytest.approx([16, 4 + 12 / 8, 2 + 14 / 8, 16 / 8])
    assert rank_memory(gpt3, optimizer="SGD").states == 0
    assert rank_memory(gpt3, batch=3).activations == 3 * alone.activations
    for network in NETWORKS.values():
        small, large = (rank_memory(network, batch=4, checkpointing=on) for on in (True, False))
        assert 0 < small.activations < large.activations / 2
        assert small.states == large.states
    assert alone.cards == -(-alone.total // 80e9)


def test_the_table_refuses_a_wrong_count():
    right = {name: network.parameters for name, network in NETWORKS.items()}
    text = str(model_memory.training_table(right))
    assert [line.split()[0] for line in text.splitlines()] == ["model", "BERT-base", "GPT-3", "ResNet-152"]
    assert "174,604,259,328" in text
    with pytest.raises(ValueError, match="Is a layer missing"):
        model_memory.training_table({"BERT-base": 12})


def test_ranks_that_fit(monkeypatch):
    assert l08.ranks_that_fit(4) in (2, 4)
    monkeypatch.setattr(l08, "RANK_BYTES", 1e18)
    assert l08.ranks_that_fit(4) == 2


# --- in ranks -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_pipeline_computes_what_one_process_does(ranks):
    orders = {f"{name} {m}": schedules.orders(schedule, ranks, m) for name, schedule in BOTH for m in (2, 6)}
    values = {"orders": orders, "layers": 2, "width": 16, "rows": 4, "turns": 2}
    results = launch.torchrun(STAGES, ranks, values=values, show=False)
    one = 5 * 4 * 16 * 4  # the input and the two results of a micro-batch in a stage …
    for me, result in enumerate(results):
        assert max(result["gaps"].values()) < 1e-4
        for name, turns in result["runs"].items():
            schedule, micro = name.split(" ")
            waiting = int(micro) if schedule == "GPipe" else min(ranks - me, int(micro))
            each = turns[0]["kept_bytes"] / waiting
            assert 3 * 4 * 16 * 4 <= each <= one  # … and in the last one the loss's own
            assert turns[0]["kept_bytes"] == turns[1]["kept_bytes"]
    it = pipeline_view.measured(results, "GPipe 6", 1)
    assert 0 < it.idle_share < 1
    assert it.waiting == [6] * ranks


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the bytes at a socket")
def test_fsdp_carries_the_weights_three_times_and_gloo_sends_twice_what_ddp_does():
    for result in launch.torchrun(SENT, 2, values={"what": ["ddp", "fsdp"]}, show=False):
        weights, carried = result["fsdp"]["weights"], result["fsdp"]["carried"]
        assert (carried["all_gather"], carried["reduce_scatter"]) == (2 * weights, weights)
        # In an all-gather each of two ranks sends half of the weights, in an all-reduce twice that; and of a
        # reduce-scatter Gloo makes an all-reduce.
        assert result["ddp"]["sent"] == pytest.approx(weights, rel=0.02)
        assert result["fsdp"]["sent"] == pytest.approx((2 / 2 + 1) * weights, rel=0.02)


def test_collectives_have_one_name_each():
    class Mode:
        def get_comm_counts(self):
            return {"c10d.allreduce_": 2, "c10d_functional.all_reduce": 1, "c10d._allgather_base_": 4, "x.other": 1}

    assert tensor_cuts.counted(Mode()) == {"all_gather": 4, "all_reduce": 3, "other": 1}


def runs_of(**spans):
    """What the ranks report, from spans by name and rank; a first turn to be left out stands before."""
    strange = [["F", 0, 0.0, 9.0]]
    return [{"runs": {name: [{"spans": strange, "kept_bytes": 1}, {"spans": rows[me], "kept_bytes": 8000 * (me + 1)}]
                      for name, rows in spans.items()}} for me in range(2)]


def test_idle_share_and_tables_of_reported_spans():
    rows = [[["F", 0, 10.0, 11.0], ["B", 0, 13.0, 14.0]], [["F", 0, 11.0, 12.0], ["B", 0, 12.0, 13.0]]]
    results = runs_of(**{"GPipe 1": rows})
    assert pipeline_view.idle_shares(results) == {"GPipe 1": 0.5}
    assert str(pipeline_view.shares_table(results)).splitlines()[1].split() == [
        "GPipe", "1", "2000", "ms", "0.50", "0.50"]
    assert str(pipeline_view.kept_table(results)).splitlines()[1].split()[2:] == ["8.00", "kB", "16.0", "kB"]
    figure = l08.gantt({"GPipe 1": l08.typical(results, "GPipe 1")}, seconds=True)
    assert "GPipe 1: 50% idle" in figure.alt
    assert len(figure.svg()) < 60_000


# --- labs ---------------------------------------------------------------------------------------------------------


def test_pipeline_lab_without_widgets():
    it = lab.widgets.PipelineLab()
    value = it.run(ranks=4, micro=8, schedule="1F1B", guess=30)
    assert value is it.value
    assert value.chosen.idle_share == pytest.approx(3 / 11)
    assert (value.plans["GPipe"].waiting[0], value.chosen.waiting[0]) == (8, 4)
    text = str(it)
    assert "27% of the time is idle" in text
    assert "8 micro-batches wait at the same time with GPipe and 4 with 1F1B" in text
    assert it.result.card()["result"]["idle"]["GPipe"] == pytest.approx(3 / 11)
    it.result.prepare()
    with pytest.raises(ValueError, match="micro"):
        it.run(micro=99)


def test_memory_lab_without_widgets():
    it = lab.widgets.MemoryLab()
    value = it.run(model="BERT-base", ranks=1, stage=0, precision="fp32", batch=1, card_gb=2.0)
    assert value.memory == rank_memory(NETWORKS["BERT-base"])
    assert not value.fits
    assert "does not fit into a GPU of 2.00 GB" in str(it)
    shared = it.run(model="BERT-base", ranks=8, stage=3, precision="fp32", card_gb=2.0, guess=1)
    assert shared.fits
    assert shared.memory.states == value.memory.states / 8
    it.result.prepare()
    lab.use_language("bn")
    assert "এঁটে যায়" in it.verdict(shared)


# --- exercises ----------------------------------------------------------------------------------------------------


def rank_bytes(parameters, ranks, stage):
    held = [(2, 3), (2, 2), (12, 1)]  # bytes, and the stage from which they are divided
    return sum(parameters * each / (ranks if stage >= least else 1) for each, least in held)


def my_part(x, up, down, me, ranks):
    return F.gelu(x @ up.chunk(ranks, 1)[me]) @ down.chunk(ranks, 0)[me]


@pytest.mark.parametrize("seed", SEEDS)
def test_right_answers_earn_full_marks(seed):
    assert lab.check("08-1", rank_bytes, seed=seed).points == 5
    assert lab.check("08-2", schedules.one_f_one_b, seed=seed).points == 8
    assert lab.check("08-3", my_part, seed=seed).points == 6


@pytest.mark.parametrize("exercise", ["08-1", "08-2", "08-3"])
def test_stubs_earn_nothing(exercise):
    result = lab.check(exercise, lambda *arguments: None)
    assert (result.status, result.points) == ("todo", 0)


@pytest.mark.parametrize(("answer", "points", "said"), [
    (lambda p, r, s: 16 * p / r, 1, "Nothing is divided"),
    (lambda p, r, s: 16 * p / (r if s else 1), 2, "You divided everything"),
    (lambda p, r, s: 16 * p, 2, "Stage 1 divides the 12 bytes"),
    (lambda p, r, s: 12 * p, 0, "its copy of the weights"),
    (lambda p, r, s: 8 * p, 0, "three numbers of 4 bytes"),
    (lambda p, r, s: p * [16, 4 + 12 / r, 14 + 2 / r, 14 + 2 / r][s], 2, "The stages add up"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_08_1(answer, points, said, seed):
    result = lab.check("08-1", answer, seed=seed)
    assert said in str(result)
    assert result.points <= points


@pytest.mark.parametrize(("answer", "points", "said"), [
    (schedules.gpipe, 6, "That is GPipe"),
    (lambda me, ranks, micro: [w for i in range(micro) for w in (("F", i), ("B", i))], 6, "could do a forward"),
    (lambda me, ranks, micro: [("F", i) for i in range(micro)], 0, "once with F and once with B"),
    (lambda me, ranks, micro: schedules.gpipe(me, ranks, micro)[::-1], 0, "stands before"),
    (lambda me, ranks, micro: list(range(micro)), 0, "list of pairs"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_08_2(answer, points, said, seed):
    result = lab.check("08-2", answer, seed=seed)
    assert said in str(result)
    assert result.points <= points


def test_an_order_that_gets_stuck():
    def answer(me, ranks, micro):
        order = schedules.gpipe(me, ranks, micro)
        return order if me else [order[1], order[0], *order[2:]]  # rank 0 sends F1 first, rank 1 waits for F0: runs

    assert lab.check("08-2", answer, seed=1).points >= 2

    def stuck(me, ranks, micro):
        order = schedules.gpipe(me, ranks, micro)
        return [("F", 0), ("B", 0), *(w for w in order if w[1])] if me == 0 else order

    result = lab.check("08-2", stuck, seed=1)
    assert "its input never comes" in str(result)
    assert result.points == 2


@pytest.mark.parametrize(("answer", "points", "said"), [
    (lambda x, up, down, me, ranks: F.gelu(x @ up) @ down, 1, "times too large"),
    (lambda x, up, down, me, ranks: F.gelu(x @ up) @ down / ranks, 4, "an equal share"),
    (lambda x, up, down, me, ranks: x @ up.chunk(ranks, 1)[me] @ down.chunk(ranks, 0)[me], 1, "GELU is missing"),
    (lambda x, up, down, me, ranks: F.gelu(x.chunk(ranks, 1)[me] @ up.chunk(ranks, 0)[me]) @ down, 1, "by rows"),
    (lambda x, up, down, me, ranks: my_part(x, up, down, 0, ranks), 1, "do not add up"),
    (lambda x, up, down, me, ranks: F.gelu(x @ up.chunk(ranks, 1)[me]), 0, "Wanted shape"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_08_3(answer, points, said, seed):
    result = lab.check("08-3", answer, seed=seed)
    assert said in str(result)
    assert result.points == points
