"""Training that survives the loss of a rank: torchrun starts everybody again, and they go on from the last checkpoint.

    torchrun … elastic.py CHECKPOINT-FOLDER [SECONDS-A-STEP]
"""

import sys
import time

import tiny
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import labkit as lab

folder, pace_s = sys.argv[1], float((sys.argv + ["0"])[2])
dist.init_process_group(lab.launch.backend())
me, ranks = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(tiny.network())
optimizer = torch.optim.SGD(model.parameters(), lr=tiny.RATE, momentum=0.9)
newest = lab.launch.latest_checkpoint(folder)
start = lab.launch.load_checkpoint(newest, model, optimizer)["step"] if newest else 0
print(f"rank {me} of {ranks} starts at step {start}")
for step, (x, y) in enumerate(tiny.batches(), start=1):
    if step <= start:
        continue
    loss = tiny.loss_of(model(x[me::ranks]), y[me::ranks])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(pace_s)
    print(f"rank {me} did step {step}")
    if step % 4 == 0:
        lab.launch.save_checkpoint(folder, step, model, optimizer)
dist.all_reduce(loss.detach())
print(f"final loss {loss.item() / ranks:.9f}")
lab.report(loss=loss.item() / ranks, steps=tiny.STEPS - start)
dist.barrier()
dist.destroy_process_group()
