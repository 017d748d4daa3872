"""The frame of every rank's program, and what DDP sends and when: written down bucket by bucket."""

import contextlib

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from labkit import launch


@contextlib.contextmanager
def group():
    """Join the other ranks; yields (rank, ranks, device). At the end everybody waits for everybody, then they part.

    After an error nobody waits: the others would do so in vain.
    """
    dist.init_process_group(launch.backend())
    yield dist.get_rank(), dist.get_world_size(), launch.rank_device()
    dist.barrier()
    dist.destroy_process_group()


def watch(ddp):
    """A list that fills while ``ddp`` trains: a parameter's name when its gradient is ready, the bytes of a bucket when
    it goes off."""
    log = []

    def on_bucket(state, bucket):
        log.append(bucket.buffer().nbytes)
        return allreduce_hook(None, bucket)

    ddp.register_comm_hook(None, on_bucket)
    for name, parameter in ddp.module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: log.append(name))
    return log
