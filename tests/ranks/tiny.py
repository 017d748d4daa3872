"""The small network and data that the scripts of this folder train, so that all of them can be compared."""

import torch
from torch import nn

import labkit as lab

STEPS, BATCH, WIDTH, CLASSES, RATE = 20, 24, 32, 4, 0.2


def network(device: torch.device | str | None = None) -> nn.Sequential:
    """The same weights in every process; double precision, so that only a wrong sum shows, not its order.

    ``device``: in a rank its own, ``lab.launch.rank_device()``, unless given."""
    torch.manual_seed(0)
    layers = [nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)]
    return nn.Sequential(*layers).double().to(device or lab.launch.rank_device())


def batches(device: torch.device | str | None = None):
    """The whole batch of every step: x (24, 8), y (24,)."""
    device = device or lab.launch.rank_device()
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        x = torch.randn(BATCH, 8, generator=generator, dtype=torch.double)
        yield x.to(device), ((x.sum(1) > 0).long() + 2 * (x[:, 0] > 0).long()).to(device)


def loss_of(scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(scores, y)


def weights_of(model: nn.Module) -> dict[str, list]:
    return {name.removeprefix("module."): p.detach().tolist() for name, p in model.named_parameters()}


def mesh():
    """All ranks in a row. torch's own choice would be the GPU, where there is one, also for ranks that use the CPU."""
    return torch.distributed.init_device_mesh(
        lab.launch.rank_device().type, (torch.distributed.get_world_size(),)
    )


def where() -> dict[str, str]:
    """What a rank computed on, and how it talked to the others."""
    return {"device": str(lab.launch.rank_device()), "backend": torch.distributed.get_backend()}


def alone() -> tuple[dict[str, list], list[float]]:
    """One process on the CPU, the whole batch: the truth that the parallel versions are held to."""
    model, losses = network("cpu"), []
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for x, y in batches("cpu"):
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return weights_of(model), losses
