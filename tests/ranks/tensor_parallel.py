"""Tensor parallelism by hand: a pair of linear layers, the first cut by rows of its weight, the second by columns."""

import tiny
import torch
import torch.distributed as dist
from torch import nn

import labkit as lab


class IntoRanks(torch.autograd.Function):
    """Forward: the same x for every rank. Backward: the ranks' gradients of it are summed."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(gradient := gradient.contiguous().clone())
        return gradient


class OverRanks(torch.autograd.Function):
    """Forward: the ranks' partial results are summed. Backward: every rank gets the same gradient."""

    @staticmethod
    def forward(ctx, partial):
        dist.all_reduce(whole := partial.clone())
        return whole

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class ColumnLinear(nn.Module):
    """This rank's outputs of a linear layer: (batch, in) @ (in, out / ranks) -> (batch, out / ranks)."""

    def __init__(self, whole: nn.Linear, me: int, ranks: int):
        super().__init__()
        self.weight = nn.Parameter(whole.weight.detach().chunk(ranks, dim=0)[me].clone())  # (out / ranks, in)
        self.bias = nn.Parameter(whole.bias.detach().chunk(ranks)[me].clone())

    def forward(self, x):
        return nn.functional.linear(IntoRanks.apply(x), self.weight, self.bias)


class RowLinear(nn.Module):
    """A linear layer whose inputs are spread over the ranks: (batch, in / ranks) @ (in / ranks, out), then the sum."""

    def __init__(self, whole: nn.Linear, me: int, ranks: int):
        super().__init__()
        self.weight = nn.Parameter(whole.weight.detach().chunk(ranks, dim=1)[me].clone())  # (out, in / ranks)
        self.bias = nn.Parameter(whole.bias.detach().clone())  # on every rank, added once, after the sum

    def forward(self, x):
        return OverRanks.apply(nn.functional.linear(x, self.weight)) + self.bias


def main() -> None:
    dist.init_process_group(lab.launch.backend())
    me, ranks = dist.get_rank(), dist.get_world_size()
    model, losses = tiny.network(), []
    model[0], model[2] = ColumnLinear(model[0], me, ranks), RowLinear(model[2], me, ranks)
    optimizer = torch.optim.SGD(model.parameters(), lr=tiny.RATE)
    for x, y in tiny.batches():  # every rank sees the whole batch
        loss = tiny.loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    lab.report(weights=tiny.weights_of(model), losses=losses, **tiny.where())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
