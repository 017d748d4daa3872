"""Error against parameters and against data, for lesson 10 and ScaleLab: one hidden layer, all seeds trained at once.

    run(digits(), width=64, examples=320) -> Run      errors of several seeds on pictures that no training saw
    fit(runs, "examples") -> PowerLaw                 error = scale * examples ** -exponent, with its uncertainty

Each seed has its own first weights and, where not all examples are used, its own choice of them. The seeds lie side by
side in one tensor, (seeds, rows, width), so six trainings cost little more than one.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from labkit import datasets
from labkit.lessons.vector_loops import one_core

SEEDS, STEPS, BATCH, RATE = 6, 200, 64, 1e-2
LEVELS = ("upazila", "union")
GRAMS = 512  # how many strings of one to three Bengali letters a name is told by


@dataclass(frozen=True)
class Task:
    """Examples to learn from and to judge by: ``x`` (rows, features) float32, ``y`` (rows,) int64."""

    name: str
    x: torch.Tensor
    y: torch.Tensor
    x_test: torch.Tensor
    y_test: torch.Tensor
    classes: int

    def parameters(self, width: int) -> int:
        """Numbers trained in a network with ``width`` hidden units."""
        return (self.x.shape[1] + 1) * width + (width + 1) * self.classes


@functools.cache
def digits() -> Task:
    """Handwritten digits, 64 pixels -> 0 to 9: 1,198 to learn from, 599 to judge by."""
    images, labels = datasets.digits()
    parts = datasets.split(len(labels), val=0, test=1 / 3)
    x, y = torch.tensor(images).reshape(-1, 64).float() / 16, torch.tensor(labels).long()
    return Task("digits", x[parts.train], y[parts.train], x[parts.test], y[parts.test], 10)


@functools.cache
def names() -> Task:
    """The Bengali name of an upazila or union -> its division, 8 of them. Equal names are never in both parts."""
    parts = datasets.split(datasets.places(*LEVELS), val=0, test=0.25, key=lambda place: place.bn)
    divisions = sorted({place.division for place in parts.train})
    counts = collections.Counter(gram for place in parts.train for gram in _grams(place.bn))
    column = {gram: k for k, gram in enumerate(sorted(counts, key=lambda gram: (-counts[gram], gram))[:GRAMS])}

    def tensors(places):
        x = torch.zeros(len(places), len(column))
        for row, place in zip(x, places, strict=True):
            row[[column[gram] for gram in _grams(place.bn) if gram in column]] = 1
        return x, torch.tensor([divisions.index(place.division) for place in places])

    return Task("names", *tensors(parts.train), *tensors(parts.test), len(divisions))


def _grams(name: str) -> set[str]:
    word = f"^{name}$"
    return {word[i : i + n] for n in (1, 2, 3) for i in range(len(word) - n + 1)}


TASKS = {"digits": digits, "names": names}


@dataclass(frozen=True)
class Run:
    """Networks of one size after training: share of wrong answers of each seed, held-out and known examples."""

    task: str
    width: int
    parameters: int
    examples: int
    errors: tuple[float, ...]
    known_errors: tuple[float, ...]

    @property
    def error(self) -> float:
        return float(np.mean(self.errors))

    @property
    def known_error(self) -> float:
        return float(np.mean(self.known_errors))

    @property
    def spread(self) -> tuple[float, float]:
        """Half the distance from the best seed to the worst, below and above the mean: the error bar."""
        return self.error - min(self.errors), max(self.errors) - self.error

    def card(self) -> dict:
        return {"format": 1, "kind": "scaling run", "task": self.task, "width": self.width, "examples": self.examples,
                "parameters": self.parameters, "errors": list(self.errors)}  # fmt: skip


def run(task: Task, *, width: int = 64, examples: int | None = None, seeds: int = SEEDS, steps: int = STEPS,
        first_seed: int = 0) -> Run:
    """Train ``seeds`` networks with ``width`` hidden units on ``examples`` rows each (all unless given); judge them.

    AdamW, ``steps`` steps of 64 examples, learning rate falling to 0, on one core: the work is too small to be divided.
    Raises ValueError for too many examples.
    """
    count = len(task.y) if examples is None else examples
    if not 0 < count <= len(task.y):
        raise ValueError(f"{task.name} has {len(task.y)} examples to learn from, not {count}")
    with one_core():
        held_out, known = _trained(task, width, count, seeds, steps, first_seed)
    return Run(task.name, width, task.parameters(width), count, held_out, known)


def _trained(task: Task, width: int, count: int, seeds: int, steps: int, first_seed: int) -> tuple[tuple, tuple]:
    """The errors of each seed on held-out and on known examples, after training."""
    generator = torch.Generator().manual_seed(first_seed)
    features = task.x.shape[1]
    chosen = torch.stack([torch.randperm(len(task.y), generator=generator)[:count] for _ in range(seeds)])
    hidden = torch.randn(seeds, features, width, generator=generator) * (2 / features) ** 0.5
    out = torch.randn(seeds, width, task.classes, generator=generator) / width**0.5
    weights = [hidden, torch.zeros(seeds, 1, width), out, torch.zeros(seeds, 1, task.classes)]
    weights = [w.requires_grad_() for w in weights]
    optimizer = torch.optim.AdamW(weights, lr=RATE, fused=True)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = RATE * (1 - step / steps)
        picked = torch.randint(count, (seeds, min(BATCH, count)), generator=generator)
        rows = chosen.gather(1, picked)  # (seeds, batch)
        scores = _scores(task.x[rows], weights)  # (seeds, batch, classes)
        loss = F.cross_entropy(scores.flatten(0, 1), task.y[rows].flatten()) * seeds
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        held_out = _errors(_scores(task.x_test.expand(seeds, -1, -1), weights), task.y_test)
        known = _errors(_scores(task.x[chosen], weights), task.y[chosen])
    return held_out, known


def scaling_step(task: Task, width: int, *, rows: int = 512) -> Callable[[], torch.Tensor]:
    """The forward and backward pass of one network on ``rows`` examples, to be timed; returns the loss."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((1, task.x.shape[1], width), (1, 1, width), (1, width, task.classes), (1, 1, task.classes))
    weights = [(0.05 * torch.randn(shape, generator=generator)).requires_grad_() for shape in shapes]
    x, y = task.x[None, :rows], task.y[:rows]

    def step():
        loss = F.cross_entropy(_scores(x, weights)[0], y)
        loss.backward()
        for weight in weights:
            weight.grad = None
        return loss.detach()

    return step


def _scores(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """(seeds, rows, features) -> (seeds, rows, classes): each seed's rows go through its own weights."""
    hidden, hidden_bias, out, out_bias = weights
    return torch.baddbmm(out_bias, torch.relu(torch.baddbmm(hidden_bias, x, hidden)), out)


def _errors(scores: torch.Tensor, y: torch.Tensor) -> tuple[float, ...]:
    return tuple((scores.argmax(2) != y).double().mean(1).tolist())


@dataclass(frozen=True)
class PowerLaw:
    """``error = scale * n ** -exponent``; ``resampled`` holds (log scale, exponent) of fits to resampled seeds."""

    scale: float
    exponent: float
    resampled: np.ndarray  # (fits, 2)
    low: float  # the smallest and the largest n that were fitted
    high: float

    def at(self, n: float) -> tuple[float, float, float]:
        """The law's error at ``n``, and the bounds between which 95 % of the resampled laws lie."""
        laws = np.exp(self.resampled[:, 0] - self.resampled[:, 1] * np.log(n))
        return (self.scale * n**-self.exponent, *np.quantile(laws, [0.025, 0.975]).tolist())

    @property
    def exponents(self) -> tuple[float, float, float]:
        """The exponent and its 95 % interval."""
        return (self.exponent, *np.quantile(self.resampled[:, 1], [0.025, 0.975]).tolist())


def fit(runs: Sequence[Run], by: str = "examples", *, resamples: int = 1000) -> PowerLaw:
    """A straight line through log(error) over log(``by``), ``"examples"`` or ``"parameters"``.

    Its uncertainty comes from drawing the seeds of each run anew, with replacement (bootstrap).
    """
    n = np.log([getattr(one, by) for one in runs])
    errors = np.array([one.errors for one in runs])  # (runs, seeds)
    rng = np.random.default_rng(0)
    drawn = rng.integers(errors.shape[1], size=(resamples, *errors.shape))
    means = np.take_along_axis(errors[None].repeat(resamples, 0), drawn, axis=2).mean(2)  # (resamples, runs)
    # The first column is the data as it is.
    slopes, cuts = np.polyfit(n, np.log(np.vstack([errors.mean(1), means])).T, 1)
    resampled = np.stack([cuts[1:], -slopes[1:]], axis=1)
    low, high = np.exp([n.min(), n.max()]).tolist()
    return PowerLaw(float(np.exp(cuts[0])), float(-slopes[0]), resampled, low, high)
