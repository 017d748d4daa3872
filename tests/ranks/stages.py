"""The lesson's pipeline on any number of ranks: gradients against one process, bytes kept, spans.

``least_s``: micro-batches grow until a forward and backward of one take at least so long on rank 0.
"""

import time

import torch
import torch.distributed as dist

import labkit as lab
from labkit.lessons.pipeline_stages import Stage, batch, gap, loss_of, micro_batches, network


def seconds(part: torch.nn.Module, rows: int, width: int) -> float:
    x, y = batch(rows, width)
    start = time.perf_counter()
    loss_of(part(x), y).backward()
    lab.sync(lab.launch.rank_device())
    return time.perf_counter() - start


def enough_rows(part: torch.nn.Module, rows: int, width: int, least_s: float) -> int:
    """Rank 0 finds out, everybody follows."""
    found = torch.tensor([rows], device=lab.launch.rank_device())
    if dist.get_rank() == 0 and least_s:
        seconds(part, rows, width)  # the first call pays for what is made only once
        while (took := min(seconds(part, int(found), width) for _ in range(3))) < least_s:
            found.fill_(int(int(found) * min(4.0, 1.2 * least_s / took)) + 1)
    dist.broadcast(found, 0)
    return int(found)


dist.init_process_group(lab.launch.backend())
me, ranks = dist.get_rank(), dist.get_world_size()
value = lab.launch.value
orders, layers, width, turns = value("orders"), value("layers"), value("width"), value("turns")
mine = slice(2 * layers * me, 2 * layers * (me + 1))  # a linear layer and its tanh are two modules
stage, found, gaps = Stage(network(layers * ranks, width)[mine]), {name: [] for name in orders}, {}
rows = enough_rows(stage.part, value("rows"), width, value("least_s", 0.0))
for _turn in range(turns):
    for name, every in orders.items():
        x, y = batch(rows * (len(every[me]) // 2), width)
        stage.part.zero_grad()
        dist.barrier()
        found[name].append(stage.run(every[me], *micro_batches(x, y, len(every[me]) // 2)))
        if _turn == 0:
            whole = network(layers * ranks, width)
            loss_of(whole(x), y).backward()
            gaps[name] = gap(stage.part, whole[mine])
lab.report(runs=found, gaps=gaps, rows=rows, device=str(lab.launch.rank_device()))
dist.barrier()
dist.destroy_process_group()
