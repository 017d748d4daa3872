"""FSDP2 training in two halves: the second half may run on another number of ranks, from the saved first half."""

import tiny
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import labkit as lab

folder, half = lab.launch.value("folder"), tiny.STEPS // 2
dist.init_process_group(lab.launch.backend())
me, ranks = dist.get_rank(), dist.get_world_size()
model, losses = tiny.network(), []
fully_shard(model, mesh=tiny.mesh())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
newest = lab.launch.latest_checkpoint(folder)
start = lab.launch.load_checkpoint(newest, model, optimizer)["step"] if newest else 0
for x, y in list(tiny.batches())[start : start + half]:
    loss = tiny.loss_of(model(x[me::ranks]), y[me::ranks])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach())
    losses.append(loss.item() / ranks)
lab.launch.save_checkpoint(folder, start + half, model, optimizer)
lab.report(start=start, losses=losses)
dist.barrier()
dist.destroy_process_group()
