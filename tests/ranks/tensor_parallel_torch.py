"""The same pair of layers cut by torch's ``parallelize_module``, with the collectives of one step counted."""

import tiny
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import labkit as lab


def whole(parameter: torch.Tensor) -> torch.Tensor:
    return (parameter.full_tensor() if isinstance(parameter, DTensor) else parameter).detach()


def counted(calls: CommDebugMode) -> dict[str, int]:
    """Name of each collective -> how often; the operators print as c10d_functional.all_reduce and the like."""
    return {str(operator).rpartition(".")[2]: count for operator, count in calls.get_comm_counts().items()}


dist.init_process_group(lab.launch.backend())
model, mesh, losses, counts = tiny.network(), tiny.mesh(), [], []
parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=tiny.RATE, foreach=False)
for x, y in tiny.batches():
    with CommDebugMode() as forward:
        loss = tiny.loss_of(model(x), y)
    optimizer.zero_grad()
    with CommDebugMode() as backward:
        loss.backward()
    optimizer.step()
    losses.append(loss.item())
    counts.append([counted(forward), counted(backward)])
weights = {name: whole(p) for name, p in model.named_parameters()}
lab.report(weights=weights, losses=losses, collectives=counts[-1], **tiny.where())
dist.barrier()
dist.destroy_process_group()
