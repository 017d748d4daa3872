"""Data parallelism without DDP: each rank takes its part of the batch, and the gradients are averaged by all_reduce."""

import tiny
import torch
import torch.distributed as dist

import labkit as lab

dist.init_process_group(lab.launch.backend())
me, ranks = dist.get_rank(), dist.get_world_size()
model, losses = tiny.network(), []
optimizer = torch.optim.SGD(model.parameters(), lr=tiny.RATE)
for x, y in tiny.batches():
    loss = tiny.loss_of(model(x[me::ranks]), y[me::ranks])  # (batch / ranks, 8)
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= ranks  # the mean over ranks of equal parts is the mean over the whole batch
    optimizer.step()
    dist.all_reduce(loss.detach())
    losses.append(loss.item() / ranks)
lab.report(weights=tiny.weights_of(model), losses=losses, **tiny.where())
dist.barrier()
dist.destroy_process_group()
