"""The same with DistributedDataParallel, which does the averaging during backward, in buckets."""

import tiny
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import labkit as lab

dist.init_process_group(lab.launch.backend())
me, ranks = dist.get_rank(), dist.get_world_size()
model, losses = DistributedDataParallel(tiny.network()), []
optimizer = torch.optim.SGD(model.parameters(), lr=tiny.RATE)
for x, y in tiny.batches():
    loss = tiny.loss_of(model(x[me::ranks]), y[me::ranks])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach())
    losses.append(loss.item() / ranks)
lab.report(weights=tiny.weights_of(model), losses=losses, **tiny.where())
dist.barrier()
dist.destroy_process_group()
