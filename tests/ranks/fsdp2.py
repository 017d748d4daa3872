"""FSDP2: every rank keeps only its part of each weight, gradient and optimiser state, and borrows the rest in use."""

import tiny
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import labkit as lab


def local_bytes(tensors) -> int:
    """What these (sharded) tensors really occupy on this rank."""
    return sum(t.to_local().numel() * t.element_size() for t in tensors)


dist.init_process_group(lab.launch.backend())
me, ranks = dist.get_rank(), dist.get_world_size()
model, mesh, losses = tiny.network(), tiny.mesh(), []
for layer in model:
    if isinstance(layer, torch.nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=tiny.RATE)
for x, y in tiny.batches():
    loss = tiny.loss_of(model(x[me::ranks]), y[me::ranks])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach())
    losses.append(loss.item() / ranks)
parameters = list(model.parameters())
lab.report(
    weights={name: p.full_tensor().detach() for name, p in model.named_parameters()},
    losses=losses,
    parameter_bytes=local_bytes(parameters),
    gradient_bytes=local_bytes(p.grad for p in parameters),
    **tiny.where(),
)
dist.barrier()
dist.destroy_process_group()
