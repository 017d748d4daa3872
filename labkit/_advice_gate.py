"""The correctness gate of `advise`: a candidate must give what eager gives, before anyone asks how fast it is.

Compared on the learner's inputs and on shaken ones: outputs, the inputs afterwards, buffers, and in training the loss
and every gradient. Dropout is off in the copies that are compared; where randomness is left, both draw the same
numbers. How much rounding alone moves a tensor is measured, not guessed: eager runs a few times more with inputs and
weights nudged (see `labkit._rounding`), and what moves by that much, as the gradient of a bias in front of a batch norm
does, is no difference.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass

import torch

from labkit import _rounding
from labkit._agreement import answer, first_difference
from labkit._leaves import arrays, to_numpy
from labkit._recipes import EAGER, Recipe
from labkit._torch_private import same_randomness
from labkit._training_state import seeded
from labkit._trials import Task, Trial, shaken
from labkit.language import t

# Lower precision: relative distance of whole tensors, |a - b| / |b|. Autocast's own kernels set the scale; a compiled
# version may be twice as far from fp32 as eager autocast is, and never further than this.
LOW_PRECISION_LIMIT = {"output": 0.05, "gradient": 0.2}
LOW_PRECISION_FLOOR = 0.01
# A gradient that cancels to nothing carries the rounding of what cancelled: differences below this share of the largest
# gradient of the model are none.
GRADIENT_DUST = 2e-5


@dataclass(frozen=True)
class Ruling:
    """Whether a candidate's results are right; ``error`` is the largest relative distance of any tensor."""

    is_right: bool
    error: float
    reason: str = ""
    first_s: float | None = None  # the first call, which compiles
    trial: Trial | None = None  # the checked copy, where it may be timed as it is


class Gate:
    """Holds what eager gives for a task, and rules on candidates against it."""

    def __init__(self, task: Task):
        self.task = task
        self.cases = [task.inputs]
        self.is_random = self._differs_by_seed()
        self.expected = [self._seen(EAGER, inputs, calm=self.is_random) for inputs in self.cases]
        other = shaken(task.inputs)
        try:
            self.expected.append(self._seen(EAGER, other, calm=self.is_random))
            self.cases.append(other)
        except Exception:  # the model does not take such values (an index out of range, say): one case it is
            self.expected = self.expected[:1]
        self.rounding = self._moved_by_rounding()
        self._autocast: dict[torch.dtype, list[dict]] = {}

    def _differs_by_seed(self) -> bool:
        first, second = (self._seen(EAGER, self.task.inputs, calm=False, seed=seed) for seed in (1, 2))
        return first_difference(answer(first), answer(second)) is not None

    def _moved_by_rounding(self) -> dict[str, float]:
        """Label -> by how much nudges, each another one, have moved it at most, in any of the cases."""
        found: dict[str, float] = {}
        for nudge in range(_rounding.NUDGES):
            case = nudge % len(self.cases)
            moved = self._seen(EAGER, self.cases[case], calm=self.is_random, nudge=nudge)
            for label, off in _largest(self.expected[case], moved).items():
                found[label] = max(off, found.get(label, 0.0))
        return found

    def _seen(self, recipe: Recipe, inputs, *, calm: bool, seed: int = 0, nudge: int | None = None) -> dict:
        with seeded():
            trial = Trial(self.task, recipe, calm=calm)
            trial.put(inputs)
            if nudge is not None:
                _rounding.nudge([*trial.model.parameters(), *(x for _, x in arrays(trial.inputs))], nudge)
            torch.manual_seed(seed)
            return trial.observed()

    def rule(self, recipe: Recipe) -> Ruling:
        """Run ``recipe`` on every case beside eager. What the candidate raises comes through."""
        error, first_s = 0.0, None
        with seeded(), same_randomness() if recipe.compile_mode and self.is_random else contextlib.nullcontext():
            trial = Trial(self.task, recipe, calm=self.is_random)
            for index, inputs in enumerate(self.cases):
                trial.put(inputs)
                torch.manual_seed(0)
                begin = time.perf_counter()
                got = trial.observed()
                first_s = first_s or time.perf_counter() - begin
                distances = _distances(self.expected[index], got)
                error = max([error, *(d for d in distances.values() if d == d)])
                check = self._low_precision if recipe.low_precision else self._same_precision
                reason = check(recipe, index, got, distances)
                if reason:
                    return Ruling(False, error, reason)
        trial.put(self.task.inputs)
        # With randomness this copy has its dropout off, or draws eager's numbers: it is not the one to time.
        return Ruling(True, error, first_s=first_s, trial=None if self.is_random else trial)

    def _same_precision(self, _recipe: Recipe, index: int, got: dict, _distances: dict) -> str:
        expected = self.expected[index]
        off = _largest(expected, got)
        gradients = [_size(value) for label, value in expected.items() if label.startswith("grad:")]
        dust = GRADIENT_DUST * max(gradients, default=0.0)
        for label in sorted(expected.keys() | got.keys()):
            if label not in expected or label not in got:
                return t("{what}: is there in one of the two only", what=_named(label))
            difference = first_difference(answer(expected[label]), answer(got[label]))
            room = max(_rounding.ROOM * self.rounding.get(label, 0.0), dust if label.startswith("grad:") else 0.0)
            if difference and not off.get(label, math.inf) <= room:
                return f"{_named(label)}: {difference.text}"
        return ""

    def _low_precision(self, recipe: Recipe, index: int, _got: dict, distances: dict[str, float]) -> str:
        reference = self._distances_of_autocast(recipe.low_precision, index)
        for label, distance in distances.items():
            kind = "gradient" if label.startswith("grad:") else "output"
            allowed = min(max(2 * reference.get(label, 0.0), LOW_PRECISION_FLOOR), LOW_PRECISION_LIMIT[kind])
            if not distance <= allowed:
                return t("{what} is {distance} away from fp32, where {allowed} is allowed",
                         what=_named(label), distance=f"{distance:.2g}", allowed=f"{allowed:.2g}")  # fmt: skip
        return ""

    def _distances_of_autocast(self, dtype: torch.dtype, index: int) -> dict[str, float]:
        if dtype not in self._autocast:
            plain = Recipe(("bf16" if dtype is torch.bfloat16 else "fp16",))
            self._autocast[dtype] = [
                _distances(expected, self._seen(plain, inputs, calm=self.is_random))
                for inputs, expected in zip(self.cases, self.expected, strict=True)
            ]
        return self._autocast[dtype][index]


def _named(label: str) -> str:
    """An observed thing's label in words."""
    kind, _, name = label.partition(":")
    if kind == "grad":
        return t("gradient of {name}", name=name)
    if kind == "buffer":
        return t("buffer {name}", name=name)
    return {"loss": t("loss"), "input": t("input after the call")}.get(kind, t("output"))


def _size(tensor: torch.Tensor) -> float:
    """Largest magnitude of a gradient; 0 for an empty or non-finite one."""
    largest = tensor.detach().abs().max().item() if tensor.numel() else 0.0
    return largest if math.isfinite(largest) else 0.0


def _largest(expected: dict, got: dict) -> dict[str, float]:
    """Label -> largest absolute difference over all its tensors of floats; labels that do not match are left out."""
    import numpy as np

    found = {}
    for label in expected.keys() & got.keys():
        ours, theirs = dict(arrays(expected[label])), dict(arrays(got[label]))
        numbers = [(to_numpy(ours[path]), to_numpy(theirs[path])) for path in ours if path in theirs]
        if list(ours) == list(theirs) and all(a.shape == b.shape for a, b in numbers):
            offs = [np.abs(a - b).max() for a, b in numbers if a.dtype.kind == "f" and a.size]
            found[label] = float(np.nanmax(offs)) if offs and not np.isnan(offs).all() else 0.0
    return found


def _distances(expected: dict, got: dict) -> dict[str, float]:
    """Label -> |a - b| / |a| of each tensor of numbers; infinite where one side lacks it or has another shape.

    Gradients count together: a bias whose gradient is all rounding would otherwise decide.
    """
    import numpy as np

    found: dict[str, float] = {}
    gradient_off = gradient_size = 0.0
    for label in expected.keys() | got.keys():
        if label not in expected or label not in got:
            found[label] = float("inf")
            continue
        ours, theirs = dict(arrays(expected[label])), dict(arrays(got[label]))
        if list(ours) != list(theirs):
            found[label] = float("inf")
            continue
        for path in ours:
            a, b = to_numpy(ours[path]), to_numpy(theirs[path])
            if a.shape != b.shape:
                found[label + path] = float("inf")
            elif a.dtype.kind in "fc":
                off, size = float(np.linalg.norm((a - b).ravel())), float(np.linalg.norm(a.ravel()))
                if label.startswith("grad:"):
                    gradient_off, gradient_size = gradient_off + off**2, gradient_size + size**2
                else:
                    both_strange = np.array_equal(a, b, equal_nan=True)
                    found[label + path] = 0.0 if both_strange else off / max(size, 1e-12)
            else:
                found[label + path] = 0.0 if np.array_equal(a, b) else float("inf")
    if gradient_size or gradient_off:
        found["grad:all"] = (gradient_off**0.5) / max(gradient_size**0.5, 1e-12)
    return found
