"""The ladder of lesson 11: ways to train the same GPT on the same batches, from the first one written to the last.

    Training(NAIVE, SIZES["short"])      a model, its optimiser and one way to do a step
    train(final(), SIZES["short"], …)    a whole training, with its validation losses and seconds

`labkit.lessons.climbing` tries the rungs of the ladder one after the other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch.utils.checkpoint import checkpoint

from labkit import hardware
from labkit.lessons import name_batches as batches
from labkit.lessons.name_gpt import NameGPT, Size, names, network


@dataclass(frozen=True)
class Way:
    """How one training runs. The default is the way people first write it; the changes are one field each."""

    data: str = "loader"  # "tensors": batches cut from one tensor; "packed": several names to a row
    waits: bool = True  # whether each step's loss is fetched to be shown
    fused: bool = False
    bf16: bool = False
    attention: str = "written out"
    fused_gelu: bool = False  # torch's kernel in place of the formula, one operation after another
    recompute: bool = False  # activation checkpointing
    compiled: bool = False

    def but(self, **changes) -> Way:
        return dataclasses.replace(self, **changes)


NAIVE = Way()
PACKED = Way("packed", waits=False, fused=True)  # all that needs no compiler


def together() -> dict:
    """Changes that need each other, for this machine.

    In eager mode the conversions of bf16 are kernels of their own; the compiler joins them with their neighbours. And
    on a CPU it does better with attention that is written out: a row's scores are 32 x 32, so there is nothing to gain
    by not storing them, and mask and softmax become one kernel, which they cannot inside torch's own attention. bf16
    only where the machine has it in hardware.
    """
    attention = "written out" if hardware.device().type == "cpu" else "sdpa"
    return {"attention": attention, "bf16": hardware.bf16_native(), "compiled": True}


# Each rung of the ladder: what changes against the rung before it that was kept.
RUNGS = {
    "tensor batches": {"data": "tensors", "waits": False},
    "fused optimizer": {"fused": True},
    "packed names": {"data": "packed"},
    "fused gelu": {"fused_gelu": True},
    "sdpa": {"attention": "sdpa"},
    "bf16": {"bf16": True},
    "recompute": {"recompute": True},
    "compiled": {"compiled": True},
    "together": together,
}


def final() -> Way:
    """The last rung with what pays by design."""
    return PACKED.but(fused_gelu=True, **together())


class Training:
    """A model, its optimiser and one way to do a step. ``device``: where the labs compute, unless given."""

    def __init__(self, way: Way, size: Size, *, seed: int = 0, device=None):
        self.way, self.size, self.seed = way, size, seed
        self.device = hardware.device() if device is None else torch.device(device)
        self.model = network(size, seed=seed, attention=way.attention, fused_gelu=way.fused_gelu,
                             device=self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=size.rate, fused=way.fused or None)
        if way.recompute:
            for block in self.model.blocks:
                _recompute(block)
        if way.compiled:
            self.model.compile_blocks()

    def batch(self, numbers: Sequence[int], part: str = "train") -> batches.Batch:
        """These names as this way hands them to the model."""
        if self.way.data == "packed":
            return batches.packed(numbers, part).to(self.device)
        if self.way.data == "tensors":
            return batches.padded(numbers, part).to(self.device)
        dataset = batches.NameDataset(getattr(names(), part), names())
        return batches.Batch(*torch.utils.data.default_collate([dataset[i] for i in numbers])).to(self.device)

    def stream(self, *, start: int = 0) -> Iterator[batches.Batch]:
        """The batches of the training from step ``start`` on, the same names in the same order for every way."""
        if self.way.data == "loader" and start == 0:
            return (batch.to(self.device) for batch in batches.loaded(self.size.batch, self.seed))
        return map(self.batch, batches.plan(self.size.batch, self.seed, start=start))

    def precision(self):
        return torch.autocast(self.device.type, torch.bfloat16) if self.way.bf16 else contextlib.nullcontext()

    def step(self, batch: batches.Batch):
        """Forward, loss, backward, optimiser. Returns the loss before the update: a number where the way waits."""
        self.optimizer.zero_grad()
        with self.precision():
            loss = self.model(*batch)
        loss.backward()
        self.optimizer.step()
        return loss.item() if self.way.waits else loss.detach()

    @torch.no_grad()
    def validation_loss(self) -> float:
        """Mean loss per token over all validation names, in eager fp32, batched the way the training is."""
        with self.model.eagerly():
            return float(self.model(*self.batch(range(len(names().val)), "val")))


def _recompute(block) -> None:
    """Let ``block`` keep nothing for its backward pass but its input, and compute the rest again."""
    plain = block.forward
    block.forward = lambda x, allowed: checkpoint(plain, x, allowed, use_reentrant=False)


@dataclass
class Run:
    """One training: validation losses on the way, and where the time went."""

    way: Way
    training: Training
    step_s: list[float] = field(default_factory=list)  # seconds per step, one mean for each stretch between losses
    history: list[tuple[int, float, float]] = field(default_factory=list)  # step, seconds since the start, loss

    @property
    def model(self) -> NameGPT:
        return self.training.model

    @property
    def loss(self) -> float:
        """The last validation loss."""
        return self.history[-1][2]

    @property
    def total_s(self) -> float:
        return self.history[-1][1]

    @property
    def median_step_s(self) -> float:
        """Of all stretches but the first, which holds compiling and warming up, where there is more than one."""
        return statistics.median(self.step_s[1:] or self.step_s)

    def seconds_to(self, loss: float) -> float:
        """Seconds from the start until the validation loss was at most ``loss``; infinite when it never was."""
        return next((after_s for _, after_s, found in self.history if found <= loss), float("inf"))


def train(
    way: Way,
    size: Size,
    *,
    steps: int | None = None,
    target: float | None = None,
    every: int = 50,
    seed: int = 0,
    least_s: float = float("inf"),
    most_s: float = float("inf"),
    told=None,
) -> Run:
    """Train until ``steps`` steps are done, or the validation loss is at most ``target``, or ``most_s`` is over.

    With ``least_s`` it also ends with the first validation loss after so many seconds that is lower than all before
    it: one that this way needed all its time for. The clock starts before the model is built, so compiling and all else
    is in it. The validation loss is taken every ``every`` steps, and at the end; ``told`` is called with the run each
    time.
    """
    begin = time.perf_counter()
    training = Training(way, size, seed=seed)
    run = Run(way, training)
    since, since_number = time.perf_counter(), 0
    for number, batch in enumerate(training.stream(), 1):
        training.step(batch)
        done = number == steps or time.perf_counter() - begin >= most_s
        if done or number % every == 0:
            hardware.sync(training.device)
            now = time.perf_counter()
            run.step_s.append((now - since) / (number - since_number))
            loss = training.validation_loss()
            since, since_number = time.perf_counter(), number
            is_lowest = all(loss < before for _, _, before in run.history)
            run.history.append((number, since - begin, loss))
            if told:
                told(run)
            if done or (target is not None and loss <= target) or (since - begin >= least_s and is_lowest):
                return run
    raise AssertionError("the stream of batches has no end")
