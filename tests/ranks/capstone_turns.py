"""A step of lesson 11 in one process with all threads, as first written and at last, and by all ranks together."""

import torch
from torch.nn.parallel import DistributedDataParallel

import labkit as lab
from labkit.lessons import l11
from labkit.lessons.name_gpt import SIZES

size, rounds = SIZES[lab.launch.value("size")], lab.launch.value("rounds")
with l11.group() as (rank, ranks, device):
    numbers = next(l11.plan(size.batch, seed=0))
    mine = numbers[rank::ranks]
    together = l11.Training(l11.final(), size, device=device)
    ddp = DistributedDataParallel(together.model)

    def alone(way):
        training = l11.Training(way, size, device=device)

        def step():
            if rank == 0:  # the others wait without using their core
                torch.set_num_threads(ranks)
                training.step(training.batch(numbers))
                torch.set_num_threads(1)

        return step

    def step_together():
        share = ranks * l11.tokens_in(mine) / l11.tokens_in(numbers)
        together.optimizer.zero_grad()
        with together.precision():
            loss = ddp(*together.batch(mine)) * share
        loss.backward()
        together.optimizer.step()

    ways = {"naive": alone(l11.NAIVE), "final": alone(l11.final()), "two ranks": step_together}
    lab.report(**l11.take_turns(ways, rounds=rounds))
