"""All-reduce by hand: every rank talks only to its neighbours in a ring, and all end with the sum."""

import torch
import torch.distributed as dist

import labkit as lab


def exchange(out: torch.Tensor, shape_like: torch.Tensor) -> torch.Tensor:
    """Send ``out`` to the right neighbour while a tensor like ``shape_like`` comes from the left one."""
    me, ranks = dist.get_rank(), dist.get_world_size()
    incoming = torch.empty_like(shape_like)
    both = [dist.P2POp(dist.isend, out, (me + 1) % ranks), dist.P2POp(dist.irecv, incoming, (me - 1) % ranks)]
    for request in dist.batch_isend_irecv(both):  # NCCL: two ranks that both send first would wait for each other
        request.wait()
    return incoming


def ring_all_reduce(x: torch.Tensor) -> int:
    """Sum the contiguous tensor ``x`` over all ranks, in place; return the numbers sent: 2 (n - 1) / n of them."""
    me, ranks = dist.get_rank(), dist.get_world_size()
    part = list(x.view(-1).tensor_split(ranks))  # views: n parts of about numel / n
    sent = 0
    for step in range(ranks - 1):  # reduce-scatter: each part collects one more addend at every hop
        out, into = part[(me - step) % ranks], part[(me - step - 1) % ranks]
        into += exchange(out, into)
        sent += out.numel()
    for step in range(ranks - 1):  # all-gather: each finished part travels once around
        out, into = part[(me - step + 1) % ranks], part[(me - step) % ranks]
        into.copy_(exchange(out, into))
        sent += out.numel()
    return sent


if __name__ == "__main__":
    dist.init_process_group(lab.launch.backend())
    device = lab.launch.rank_device()
    x = torch.arange(10.0, device=device) + 100 * dist.get_rank()
    expected = x.clone()
    dist.all_reduce(expected)
    sent = ring_all_reduce(x)
    lab.report(equal=torch.equal(x, expected), sent=sent, x=x, device=str(device), backend=dist.get_backend())
    dist.barrier()
    dist.destroy_process_group()
