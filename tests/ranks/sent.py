"""What a rank sends over Gloo, by Linux's own count at its sockets: in an all-reduce, a step of DDP, one of FSDP2."""

import os
import socket
import struct

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import labkit as lab
from labkit.lessons.transformer import blocks

WIDTH = 128
SENT = 200  # where tcpi_bytes_sent stands in struct tcp_info of linux/tcp.h; behind it tcpi_bytes_retrans


def sent_by_socket() -> dict[str, int]:
    """Bytes that every TCP connection of this process has sent so far."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{number}")
            if name.startswith("socket:"):
                with socket.socket(fileno=os.dup(int(number))) as connection:
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SENT + 16)
                sent, again = struct.unpack_from("=QQ", info, SENT)
                found[name] = sent - again
        except OSError:  # closed meanwhile, or a socket of another kind
            pass
    return found


def sent_in(work) -> list[int]:
    """Bytes that ``work()`` sends over each connection, the largest first."""
    dist.barrier()
    before = sent_by_socket()
    work()
    dist.barrier()  # nobody passes it before everything of his has arrived
    return sorted((count - before.get(name, 0) for name, count in sent_by_socket().items()), reverse=True)


class Carried(TorchDispatchMode):
    """Bytes of the whole tensors by kind of collective: what all-gathers fill, what reduce-scatters read."""

    def __init__(self):
        super().__init__()
        self.bytes: dict[str, int] = {}

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.namespace == "c10d":
            name = lab.graphs.collective_name(str(operator))
            whole = max((x.nbytes for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)), default=0)
            self.bytes[name] = self.bytes.get(name, 0) + whole
        return operator(*args, **(kwargs or {}))


def step(net) -> None:
    net(torch.ones(1, 8, WIDTH)).square().mean().backward()


def all_reduce() -> dict:
    numbers = torch.ones(dist.get_world_size() * 60_000)
    return {"whole": numbers.nbytes, "sent": sent_in(lambda: dist.all_reduce(numbers))}


def ddp() -> dict:
    from torch.nn.parallel import DistributedDataParallel

    net = DistributedDataParallel(blocks(2, WIDTH, 4))
    step(net)  # the first one arranges the buckets
    return {"sent": sum(sent_in(lambda: step(net)))}


def fsdp() -> dict:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net, mesh = blocks(2, WIDTH, 4), init_device_mesh("cpu", (dist.get_world_size(),))
    weights = sum(p.nbytes for p in net.parameters())
    for block in net:
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)  # else each block is a root and keeps its weights until the backward pass
    step(net)
    with Carried() as carried:
        sent = sum(sent_in(lambda: step(net)))
    return {"weights": weights, "sent": sent, "carried": carried.bytes}


if __name__ == "__main__":
    dist.init_process_group("gloo")
    lab.report(**{name: globals()[name]() for name in lab.launch.value("what")})
    dist.barrier()
    dist.destroy_process_group()
