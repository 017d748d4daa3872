"""Inside a rank: what a product cut over ranks needs beside the product itself, and what the cut is held to."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F

from labkit import launch
from labkit.lessons.transformer import blocks

# What CommDebugMode calls the collectives of torch.distributed and those of DTensor.
_NAMES = {
    "allreduce_": "all_reduce", "_allgather_base_": "all_gather", "all_gather_into_tensor": "all_gather",
    "allgather_": "all_gather", "_reduce_scatter_base_": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter",
}


class IntoRanks(torch.autograd.Function):
    """Forward: every rank uses the same x. Backward: each has only its part of x's gradient, so the parts are summed.
    f in Shoeybi et al. 2019, arXiv 1909.08053."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient)
        return gradient


class OverRanks(torch.autograd.Function):
    """Forward: the ranks' partial sums are summed. Backward: the gradient of a sum is the same for every addend. g of
    the same paper."""

    @staticmethod
    def forward(ctx, partial):
        whole = partial.clone()
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def mlp_data(batch: int, width: int) -> list[torch.Tensor]:
    """x (batch, width), up (width, 4 width), down (4 width, width), float64, the same in every process."""
    random = torch.Generator().manual_seed(0)
    shapes = ((batch, width), (width, 4 * width), (4 * width, width))
    made = [torch.randn(shape, generator=random, dtype=torch.double).to(launch.rank_device()) for shape in shapes]
    return [tensor.requires_grad_() for tensor in made]


def gaps(y: torch.Tensor, x: torch.Tensor, up: torch.Tensor) -> dict[str, bool]:
    """Whether the result and the gradients of ``x`` and (this rank's columns of) ``up`` are those of the whole MLP."""
    me, ranks = dist.get_rank(), dist.get_world_size()
    whole_x, whole_up, whole_down = mlp_data(*x.shape)
    whole = F.gelu(whole_x @ whole_up) @ whole_down
    whole.square().sum().backward()
    columns = whole_up.grad.chunk(ranks, dim=1)[me]
    return {"result": torch.allclose(y, whole), "gradient of x": torch.allclose(x.grad, whole_x.grad),
            "gradient of up": torch.allclose(up.grad, columns)}


def two_blocks():
    """Two transformer blocks with equal weights and an input (2, 16, 64) that wants a gradient."""
    device = launch.rank_device()
    x = torch.randn(2, 16, 64, generator=torch.Generator().manual_seed(2)).to(device).requires_grad_()
    return blocks(1, 64, 4)[0].to(device), blocks(1, 64, 4)[0].to(device), x


def same(block, whole, x: torch.Tensor, y: torch.Tensor) -> dict[str, bool]:
    """Whether a cut block gave the result and the gradients of a whole one: of the input and of every weight."""
    of_x = x.grad.clone()
    x.grad = None
    expected = whole(x)
    expected.square().sum().backward()
    got = torch.cat([_whole(p.grad).flatten() for p in block.parameters()])
    wanted = torch.cat([p.grad.flatten() for p in whole.parameters()])
    return {"result": _close(y, expected), "gradient of x": _close(of_x, x.grad),
            "gradients of weights": _close(got, wanted)}


def _close(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Equal but for float32 rounding, judged by the largest value: some gradients are nothing but rounding, such as
    that of the keys' bias, which softmax does not notice."""
    return bool((got - expected).abs().max() <= 1e-4 * expected.abs().max())


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def block_cuts() -> dict:
    """Where ``parallelize_module`` cuts a transformer block: heads and the wide side of the MLP."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    columns = {name: ColwiseParallel() for name in ("query", "key", "value", "up")}
    return columns | {name: RowwiseParallel() for name in ("mix", "down")}


def four_blocks():
    """A model of four blocks and an input (8, 16, 64), the same in every process."""
    device = launch.rank_device()
    x = torch.randn(8, 16, 64, generator=torch.Generator().manual_seed(3)).to(device)
    return blocks(4, 64, 4).to(device), x


def counted(mode) -> dict[str, int]:
    """Collectives that a ``CommDebugMode`` saw: plain name -> how often."""
    found: dict[str, int] = {}
    for operator, count in mode.get_comm_counts().items():
        name = str(operator).rpartition(".")[2]
        name = _NAMES.get(name, name)
        found[name] = found.get(name, 0) + count
    return dict(sorted(found.items()))


def local_bytes(tensors) -> int:
    """What tensors really occupy on this rank; of a sharded one, its own piece."""
    return sum((x.to_local() if hasattr(x, "to_local") else x).nbytes for x in tensors)


def training_bytes(model, optimizer) -> dict[str, int]:
    """What weights, gradients and Adam's two means occupy on this rank; its step counts, a few bytes, are left out."""
    states = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
    parameters = list(model.parameters())
    return {"weights": local_bytes(parameters), "gradients": local_bytes(p.grad for p in parameters),
            "states": local_bytes(states)}
