"""Lesson 11's last way on all ranks: train until the validation loss is at most ``target``; rank 0 takes it down.

``begin``: the wall clock when the launcher was called, so that starting the ranks and compiling are in the seconds.
"""

import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import labkit as lab
from labkit.lessons import l11
from labkit.lessons.name_gpt import SIZES

value = lab.launch.value
size, every, target, begin = SIZES[value("size")], value("every"), value("target"), value("begin")
with l11.group() as (rank, ranks, device):
    training = l11.Training(l11.final(), size, seed=value("seed"), device=device)
    ddp = DistributedDataParallel(training.model)
    history, step_s, since = [], [], time.perf_counter()
    for done, numbers in enumerate(l11.steps(until=value("steps"), batch=size.batch, seed=value("seed")), 1):
        mine = numbers[rank::ranks]
        training.optimizer.zero_grad()
        with training.precision():
            loss = ddp(*training.batch(mine)) * ranks * l11.tokens_in(mine) / l11.tokens_in(numbers)
        loss.backward()
        training.optimizer.step()
        if done % every == 0:
            step_s.append((time.perf_counter() - since) / every)
            found = torch.tensor([training.validation_loss() if rank == 0 else 0.0], device=device)
            dist.broadcast(found, 0)
            history.append((done, time.time() - begin, found.item()))
            since = time.perf_counter()
            if found.item() <= target:
                break
    lab.report(history=history, step_s=statistics.median(step_s[1:] or step_s))
