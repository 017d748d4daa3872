"""One training step of data parallelism in four ways, for timing: alone, with DDP, without its communication, or with
all of the communication after the backward pass. Runs in ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from labkit import launch


class Steps:
    """Training steps of ``layers`` linear layers, ``width`` wide; ``batch`` rows on each rank that takes part."""

    def __init__(self, width: int, layers: int, batch: int):
        torch.manual_seed(0)
        device = launch.rank_device()
        parts = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
        self.model = nn.Sequential(*parts[:-1]).to(device)
        self.ddp = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.x, self.y = torch.randn(2, batch, width, device=device).unbind()  # (batch, width)
        self.bytes = sum(p.numel() * p.element_size() for p in self.model.parameters())

    def _step(self, model: nn.Module) -> None:
        loss = nn.functional.mse_loss(model(self.x), self.y)
        self.optimizer.zero_grad()
        loss.backward()

    def one_rank(self) -> None:
        """Rank 0 alone, the bare model; the other ranks wait."""
        if dist.get_rank() == 0:
            self._step(self.model)
            self.optimizer.step()

    def all_ranks(self) -> None:
        """DDP: a bucket is on its way as soon as it is full, while the backward pass goes on."""
        self._step(self.ddp)
        self.optimizer.step()

    def without_communication(self) -> None:
        """The same work on every rank, but nobody hears of the others: no training, only a yardstick."""
        with self.ddp.no_sync():
            self._step(self.ddp)
        self.optimizer.step()

    def communication_afterwards(self) -> None:
        """First the whole backward pass, then all gradients in one piece: nothing overlaps."""
        with self.ddp.no_sync():
            self._step(self.ddp)
        flat = torch.cat([p.grad.view(-1) for p in self.model.parameters()])  # (parameters,)
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        parts = flat.split([p.numel() for p in self.model.parameters()])
        for parameter, part in zip(self.model.parameters(), parts, strict=True):
            parameter.grad.copy_(part.view_as(parameter))
        self.optimizer.step()
