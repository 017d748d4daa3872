"""What ``advise()`` is worth: six families in training, eager fp32 against the advised choice and against everything.

Each family is advised first, as a learner would do it. Then *every* candidate whose results are right is built once
more and timed in one interleaved run: the exhaustive sweep that shows whether the advice was the best to be had. Lower
precision counts only where training still learns: after 100 steps its loss must be close to eager's.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch

import labkit as lab
from labkit import advisor, models
from labkit._advice_gate import Gate
from labkit._recipes import EAGER, Recipe, recipes_for
from labkit._torch_private import roomy_dynamo
from labkit._trials import Task, Trial, untouched
from tests.bench import Case, Outcome
from tests.bench._machine import Others

GOAL, LEAST, BEHIND = 1.8, 0.97, 1.05
STEPS, LOSS_TOLERANCE = 100, 0.10  # the loss after STEPS steps may be this share of its fall away from eager's
ADVICE_S, SWEEP_S = 240.0, 20.0


@dataclass(frozen=True)
class Found:
    """One family: the advised candidate, and the ratio eager / candidate of everything in the sweep."""

    family: str
    advised: str
    ratios: dict
    still_learns: bool
    others: str

    def best(self, names) -> str:
        return max(names, key=lambda name: self.ratios[name].value)

    @property
    def fp32(self) -> list[str]:
        return [name for name in self.ratios if not {"bf16", "fp16"} & set(name.split(" + "))]

    @property
    def compiled(self) -> float:
        return self.ratios["compiled"].value if "compiled" in self.ratios else math.nan


@functools.cache
def _found(name: str) -> Found:
    family = models.FAMILIES[name]()
    advice = lab.advise(family.model, family.inputs, loss=family.loss, budget_s=ADVICE_S, progress=None)
    task = Task(family.model, family.inputs, family.loss, advisor.adamw, lab.device())
    with Others() as others, untouched(family.model), roomy_dynamo():
        gate = Gate(task)
        wanted = recipes_for(family.model, task.device, is_training=True, kernels={})
        recipes = {recipe.name: recipe for recipe in wanted}
        trials = {"eager": Trial(task, EAGER)}
        for recipe in recipes.values():
            if _is_right(gate, recipe):
                trials[recipe.name] = Trial(task, recipe)
        run = lab.compare({name: trial.step for name, trial in trials.items()}, budget_s=SWEEP_S,
                          check=lambda _expected, _got: True)  # fmt: skip
        ratios = {name: run.ratio(name) for name in trials}
        chosen = recipes.get(advice.best.name, EAGER)
        still_learns = chosen.low_precision is None or _learns(task, chosen)
    return Found(name, advice.best.name, ratios, still_learns, others.text)


def _is_right(gate: Gate, recipe: Recipe) -> bool:
    try:
        return gate.rule(recipe).is_right
    except Exception:  # what cannot run here is no candidate; `advise` says so in a row
        return False


def _learns(task: Task, recipe: Recipe) -> bool:
    """Whether ``recipe``'s loss after STEPS steps lies within LOSS_TOLERANCE of eager's fall."""
    losses = {}
    for one in (EAGER, recipe):
        torch.manual_seed(0)
        fast = Task(task.model, task.inputs, task.loss, _adamw, task.device)
        trial = Trial(fast, one)
        losses[one.name] = [float(trial.step()) for _ in range(STEPS)]
    eager, other = losses[EAGER.name], losses[recipe.name]
    return abs(other[-1] - eager[-1]) <= LOSS_TOLERANCE * abs(eager[0] - eager[-1])


def _adamw(parameters, *, fused: bool):
    return torch.optim.AdamW(parameters, lr=models.LEARNING_RATE, fused=fused)


def _family(name: str, quick: bool) -> Outcome:
    found = _found(name)
    advised, best = found.ratios[found.advised], found.best(found.ratios)
    fp32 = found.best(found.fp32)
    text = (
        f"{found.advised} {advised.value:.2f}x [{advised.low:.2f}, {advised.high:.2f}]; best of {len(found.ratios)}: "
        f"{best} {found.ratios[best].value:.2f}x; fp32 only {found.ratios[fp32].value:.2f}x ({fp32}); "
        f"compiled only {found.compiled:.2f}x; {found.others}"
    )
    near = found.ratios[best].value <= BEHIND * advised.value
    return Outcome(text, advised.low >= LEAST and near and found.still_learns)


def _mean(values) -> float:
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def _all(quick: bool) -> Outcome:
    found = [_found(name) for name in models.FAMILIES]
    advised = _mean(one.ratios[one.advised].value for one in found)
    fp32 = _mean(one.ratios[one.best(one.fp32)].value for one in found)
    compiled = _mean(one.compiled for one in found)
    native = lab.hardware.bf16_native()
    text = f"advised {advised:.2f}x, fp32 only {fp32:.2f}x, compiled only {compiled:.2f}x" + (
        "" if native else "; no native bf16 here, so this machine sets no goal")
    return Outcome(text, advised >= GOAL if native else None)


def cases() -> list[Case]:
    goal = f"lower end >= {LEAST}, within 5 % of the best of a full sweep"
    found = [Case(name, goal, functools.partial(_family, name)) for name in models.FAMILIES]
    return [*found, Case("geometric mean of six", f">= {GOAL}x where bf16 is native", _all)]
