"""The small task of lesson 07, the same in the notebook and in every rank: read a handwritten digit, 64 pixels -> 0-9.

``network()`` and ``batches()`` are equal in every process, so that several ranks can be held against one process; in
double precision a difference is a mistake, not a rounding.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from labkit import datasets

WIDTH, CLASSES, PIXELS = 32, 10, 64


def network(width: int = WIDTH, *, dtype=torch.float64, seed: int = 0) -> nn.Sequential:
    """Three linear layers with ReLU between them: (batch, 64) -> (batch, 10), the same weights for the same seed."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        layers = [nn.Linear(PIXELS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)]
    return nn.Sequential(*layers).to(dtype)


def digits(part: str = "train", *, dtype=torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels (rows, 64) between 0 and 1 and labels (rows,) of the "train", "val" or "test" part."""
    images, labels = datasets.digits()
    rows = getattr(datasets.split(len(labels)), part)
    return torch.tensor(images[rows]).reshape(-1, PIXELS).to(dtype) / 16, torch.tensor(labels[rows]).long()


def batches(steps: int = 20, batch: int = 64, *, device="cpu") -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The whole batch of each step, x (batch, 64) and y (batch,), drawn from the training part by a fixed seed."""
    x, y = digits()
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        rows = torch.randperm(len(y), generator=generator)[:batch]
        yield x[rows].to(device), y[rows].to(device)


def loss_of(scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross-entropy, the mean over the rows: scores (rows, 10), y (rows,)."""
    return nn.functional.cross_entropy(scores, y)


def weights(model: nn.Module) -> list[float]:
    """All parameters in one list of numbers, to report from a rank."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).tolist()


def gradients(model: nn.Module) -> torch.Tensor:
    """All gradients in one row: (parameters,)."""
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def gap(one, other) -> float:
    """The largest difference between two lists of numbers of the same length."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def accuracy(model: nn.Module, part: str = "test") -> float:
    """Share of the digits of a part that the model reads right."""
    parameter = next(model.parameters())
    x, y = digits(part, dtype=parameter.dtype)
    with torch.no_grad():
        return (model(x.to(parameter.device)).argmax(1).cpu() == y).double().mean().item()


def train(batch: int, rate: float, *, epochs: int = 30, warm_up: int = 0, seed: int = 0) -> tuple[float, int]:
    """Train in one process with SGD; return the test accuracy and the number of steps.

    One process with a batch of ``batch`` does what N ranks with ``batch / N`` each do. The learning rate climbs to
    ``rate`` over the first ``warm_up`` epochs; the last batch of an epoch may be smaller.
    """
    x, y = digits(dtype=torch.float32)
    model = network(dtype=torch.float32, seed=seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    climb = warm_up * -(-len(y) // batch)
    step = 0
    for _ in range(epochs):
        for rows in torch.randperm(len(y), generator=generator).split(batch):
            step += 1
            optimizer.param_groups[0]["lr"] = rate * min(1.0, step / climb) if climb else rate
            loss = loss_of(model(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return accuracy(model), step
