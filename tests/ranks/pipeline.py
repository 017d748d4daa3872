"""Pipeline parallelism by hand: rank k holds the k-th stage; micro-batches flow forward, gradients flow back.

A schedule is only an order of work for one rank, a list of ("F", i) and ("B", i) for micro-batch i. GPipe does all
forwards first; 1F1B begins with a backward as soon as it can, so that fewer activations wait at the same time.
"""

import time

import tiny
import torch
import torch.distributed as dist
from torch import nn

import labkit as lab


def gpipe(me: int, ranks: int, micro: int) -> list[tuple[str, int]]:
    return [("F", i) for i in range(micro)] + [("B", i) for i in range(micro)]


def one_f_one_b(me: int, ranks: int, micro: int) -> list[tuple[str, int]]:
    ahead = min(ranks - 1 - me, micro)  # forwards to do before the first gradient can come back
    steady = [work for i in range(micro - ahead) for work in (("F", ahead + i), ("B", i))]
    return [("F", i) for i in range(ahead)] + steady + [("B", i) for i in range(micro - ahead, micro)]


class Stage:
    """One rank's part of the network and its talk with the neighbours. ``width``: features that cross a border."""

    def __init__(self, part: nn.Module, width: int):
        self.part, self.width = part, width
        self.me, self.last = dist.get_rank(), dist.get_rank() == dist.get_world_size() - 1
        self.waiting, self.sending, self.losses, self.spans, self.most = {}, [], [], [], 0

    def forward(self, i: int, x: torch.Tensor, y: torch.Tensor, micro: int) -> None:
        """Micro-batch i: x (rows, features) from the rank before (or the data), the result to the rank after."""
        if self.me > 0:
            x = torch.empty(len(x), self.width, dtype=x.dtype, device=x.device)
            dist.recv(x, self.me - 1)
            x.requires_grad_()
        start = time.monotonic()
        out = self.part(x)  # (rows, width), or (rows, classes) in the last stage
        if self.last:
            out = tiny.loss_of(out, y) / micro  # so that the micro-batches' gradients add up to the batch's
            self.losses.append(out.item())
        self.spans.append(("F", i, start, time.monotonic()))
        if not self.last:
            self.sending.append(dist.isend(out.detach(), self.me + 1))
        self.waiting[i] = (x, out)
        self.most = max(self.most, len(self.waiting))

    def backward(self, i: int) -> None:
        """The gradient of what went forward comes back, that of x goes on to the rank before."""
        x, out = self.waiting.pop(i)
        gradient = None
        if not self.last:
            gradient = torch.empty_like(out)
            dist.recv(gradient, self.me + 1)
        start = time.monotonic()
        out.backward(gradient)
        self.spans.append(("B", i, start, time.monotonic()))
        if self.me > 0:
            self.sending.append(dist.isend(x.grad, self.me - 1))

    def step(self, schedule, x: torch.Tensor, y: torch.Tensor, micro: int) -> float:
        """One batch in ``micro`` micro-batches; returns its loss (in the last stage, else 0)."""
        self.losses = []
        rows, labels = x.chunk(micro), y.chunk(micro)
        for kind, i in schedule(self.me, dist.get_world_size(), micro):
            self.forward(i, rows[i], labels[i], micro) if kind == "F" else self.backward(i)
        for request in self.sending:  # sends must not be waited for earlier: two ranks could wait for each other
            request.wait()
        self.sending.clear()
        return sum(self.losses)


def main() -> None:
    dist.init_process_group(lab.launch.backend())
    me, ranks = dist.get_rank(), dist.get_world_size()
    schedule = {"gpipe": gpipe, "1f1b": one_f_one_b}[lab.launch.value("schedule", "1f1b")]
    cuts = [0, 2, 5] if ranks == 2 else [0, 2, 4, 5]
    stage = Stage(tiny.network()[cuts[me] : cuts[me + 1]], tiny.WIDTH)
    optimizer, losses = torch.optim.SGD(stage.part.parameters(), lr=tiny.RATE), []
    for x, y in tiny.batches():
        optimizer.zero_grad()
        losses.append(stage.step(schedule, x, y, micro=4))
        optimizer.step()
    lab.report(weights=tiny.weights_of(stage.part), losses=losses, most_waiting=stage.most, spans=stage.spans[-8:],
               **tiny.where())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
