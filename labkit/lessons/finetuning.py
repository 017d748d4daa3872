"""Fine-tuning as lesson 10 does it: messages as tensors, one training loop for every method, and what each one cost.

    task = messages(start.read)                   token numbers and labels of each part
    few = task.few(12, seed=0)                    12 training messages of each label
    outcome = train(name, model, few, task, …)    trains what requires a gradient; judges on the test part
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from labkit import datasets, hardware
from labkit.lessons.encoder import PADDING

BATCH, TIMED, HEAD_RATE = 16, 4, 1e-2


@dataclass(frozen=True)
class Part:
    """``ids`` (messages, seq) token numbers, or (messages, width) vectors; ``y`` (messages,) label numbers."""

    ids: torch.Tensor
    y: torch.Tensor

    def __len__(self):
        return len(self.y)

    def few(self, each: int, seed: int = 0) -> Part:
        """``each`` messages of every label, drawn by ``seed``."""
        generator = torch.Generator().manual_seed(seed)
        rows = [torch.nonzero(self.y == label)[:, 0] for label in self.y.unique()]
        chosen = torch.cat([r[torch.randperm(len(r), generator=generator)[:each]] for r in rows])
        return Part(self.ids[chosen], self.y[chosen])


@dataclass(frozen=True)
class Messages:
    """The three parts of the messages, and what the label numbers mean."""

    train: Part
    val: Part
    test: Part
    labels: tuple[str, ...]


def messages(read: Callable[[list[str]], torch.Tensor]) -> Messages:
    """All messages, as ``read`` turns texts into numbers."""
    found = datasets.messages()
    labels = sorted({message.label for message in found})
    ids, y = read([m.text for m in found]), torch.tensor([labels.index(m.label) for m in found])
    parts = {name: torch.tensor([m.part == name for m in found]) for name in ("train", "val", "test")}
    device = hardware.device()
    return Messages(*(Part(ids[rows].to(device), y[rows].to(device)) for rows in parts.values()), tuple(labels))


def lengths(ids: torch.Tensor) -> torch.Tensor:
    """Tokens of each text, (messages,); vectors are all alike."""
    return torch.ones(len(ids)) if ids.is_floating_point() else (ids != PADDING).sum(1).cpu()


def short(ids: torch.Tensor) -> torch.Tensor:
    """Token numbers without the columns that are only filling."""
    return ids if ids.is_floating_point() else ids[:, : int(lengths(ids).max())]


def shuffled(ids: torch.Tensor, generator: torch.Generator) -> list[torch.Tensor]:
    """One epoch: every row once, in batches of at most 16, all about as large, that come in random order. Texts of like
    length are together, drawn anew where lengths are equal: less filling to work through than in batches of any texts.
    """
    order = torch.randperm(len(ids), generator=generator)
    batches = order[lengths(ids)[order].argsort(stable=True)].tensor_split(-(-len(ids) // BATCH))
    return [batches[k] for k in torch.randperm(len(batches), generator=generator)]


def in_batches(fn: Callable[[torch.Tensor], torch.Tensor], ids: torch.Tensor, batch: int = 40) -> torch.Tensor:
    """``fn`` over all rows without gradients, texts of like length together: less filling, less work."""
    order = lengths(ids).argsort(stable=True)
    with torch.no_grad():
        out = torch.cat([fn(short(ids[rows])) for rows in order.split(batch)])
    return out[order.argsort()]


def accuracy(model: nn.Module, part: Part) -> float:
    """Share of the messages of ``part`` that the model labels right."""
    return right(in_batches(model, part.ids), part.y)


def right(scores: torch.Tensor, y: torch.Tensor) -> float:
    """Share of rows whose highest score, of (rows, labels), stands at the right label."""
    return (scores.argmax(1) == y).double().mean().item()


def vectors(encoder: nn.Module, part: Part) -> Part:
    """The same messages, each as the vector that ``encoder`` makes of it: worked out once, used in every epoch."""
    return Part(in_batches(encoder, part.ids), part.y)


def trainable(model: nn.Module) -> int:
    """How many numbers training changes."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def optimizer_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of what the optimizer keeps for each parameter, its step counters aside."""
    states = (value for state in optimizer.state.values() for value in state.values())
    return sum(value.nbytes for value in states if torch.is_tensor(value) and value.ndim)


def optimizer_for(model: nn.Module, rate: float, head_rate: float = HEAD_RATE) -> torch.optim.Optimizer:
    """AdamW over what requires a gradient; the new head learns at ``head_rate``, everything else at ``rate``."""
    rates: dict[float, list] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            rates.setdefault(head_rate if name.startswith("head") else rate, []).append(parameter)
    groups = [{"params": found, "lr": one, "peak": one} for one, found in rates.items()]
    return torch.optim.AdamW(groups, weight_decay=0.01, fused=True)


def training_step(model: nn.Module, part: Part) -> Callable[[], torch.Tensor]:
    """One whole step on the first 4 messages of ``part``, to be timed; the rate is 0, so nothing drifts."""
    optimizer = optimizer_for(model.to(part.y.device), 0.0, 0.0)
    ids, y = short(part.ids[:TIMED]), part.y[:TIMED]

    def step():
        loss = F.cross_entropy(model(ids), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@dataclass(frozen=True)
class Outcome:
    """What one way of training cost and reached. ``accuracy`` and ``loss`` are on messages it never saw, ``known`` is
    the accuracy on those it was trained on."""

    name: str
    trainable: int
    optimizer_bytes: int
    seconds: float
    accuracy: float
    loss: float
    known: float


def train(name: str, model: nn.Module, part: Part, test: Part, *, epochs: int, rate: float = HEAD_RATE, seed: int = 0,
          head_rate: float = HEAD_RATE) -> Outcome:
    """Train ``model`` on ``part``, judge it on ``test``.

    Batches of at most 16 texts of like length (``shuffled``); rates rise for a tenth of the steps, then fall to 0.
    """
    optimizer = optimizer_for(model.to(part.y.device), rate, head_rate)
    generator = torch.Generator().manual_seed(seed)
    plan, began = [rows for _ in range(epochs) for rows in shuffled(part.ids, generator)], time.perf_counter()
    for step, rows in enumerate(plan, 1):
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * min(1.0, 10 * step / len(plan)) * (1 - (step - 1) / len(plan))
        loss = F.cross_entropy(model(short(part.ids[rows])), part.y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    hardware.sync()
    seconds = time.perf_counter() - began
    scores = in_batches(model, test.ids)
    return Outcome(name, trainable(model), optimizer_bytes(optimizer), seconds, right(scores, test.y),
                   F.cross_entropy(scores, test.y).item(), accuracy(model, part))  # fmt: skip

