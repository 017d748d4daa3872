"""What MXNet's scheduler, servers and workers find around them: their roles, their ports, loopback."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from labkit import _launch_setup
from labkit._launch_errors import BadLaunchError
from labkit.language import t

LOOPBACK = "127.0.0.1"
# What a run in other surroundings may have left: it would send the roles elsewhere.
_FOREIGN = ("DMLC_", "PS_")


@dataclass(frozen=True)
class Process:
    """One of the run's processes: ``role`` "scheduler", "server" or "worker", ``index`` among those of its role on one
    machine, whose ``address`` matters where there are several."""

    role: str
    index: int = 0
    address: str = ""

    @property
    def name(self) -> str:
        return self.role if self.role == "scheduler" else f"{self.role}{self.index}"

    @property
    def title(self) -> str:
        if self.address:
            return t("{label} at {address}", label=self._title, address=self.address)
        return self._title

    @property
    def _title(self) -> str:
        if self.role == "scheduler":
            return t("The scheduler")
        if self.role == "server":
            return t("Server {number}", number=self.index)
        return t("Worker {number}", number=self.index)


def processes(workers: int, servers: int) -> list[Process]:
    """Scheduler, servers and workers, in the order in which they are started."""
    return [
        Process("scheduler"),
        *(Process("server", index) for index in range(servers)),
        *(Process("worker", index) for index in range(workers)),
    ]


def check_numbers(workers: int, servers: int, *, all_here: bool = True) -> None:
    """Refuse numbers of workers and servers that cannot be, or make no sense when they are ``all_here``."""
    for number in (workers, servers):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise BadLaunchError(
                t("The numbers of workers and servers must be whole numbers from 1 upwards, not {number}.",
                  number=repr(number))
            )
    most = _launch_setup.most_processes()
    if all_here and workers + servers > most:
        raise BadLaunchError(
            t("{workers} workers and {servers} servers are more than this machine can usefully run: it has {cores}"
              " cores, and each process is a whole Python with its own MXNet. Take at most {most} in all.",
              workers=workers, servers=servers, cores=_launch_setup.cores(), most=most)
        )


def environment(
    base: Mapping[str, str], process: Process, *, workers: int, servers: int, root: tuple[str, int], address: str,
    port: int
) -> dict[str, str]:
    """The whole environment of one process. ``root``: the scheduler's address and port; ``address``, ``port``: its
    own, on which it listens for the others."""
    whole = {name: value for name, value in base.items() if not name.startswith(_FOREIGN)}
    whole |= {
        "DMLC_ROLE": process.role,
        "DMLC_PS_ROOT_URI": root[0],
        "DMLC_PS_ROOT_PORT": str(root[1]),
        "DMLC_NUM_WORKER": str(workers),
        "DMLC_NUM_SERVER": str(servers),
        "DMLC_NODE_HOST": address,
        "PORT": str(port),  # ps-lite numbers the workers of one address by their ports
    }
    return whole


@contextlib.contextmanager
def reserved_ports(count: int, address: str = LOOPBACK, *, first: int = 0) -> Iterator[list[int]]:
    """``count`` free ports in rising order, but the first one is ``first`` unless that is 0.

    On Linux they stay reserved for us: a socket that is bound but does not listen keeps strangers away, and lets in
    those who ask for the same address with SO_REUSEADDR, as ZeroMQ does. Raises OSError when ``first`` is taken.
    """
    with contextlib.ExitStack() as stack:
        ports = []
        for port in [first, *[0] * (count - 1)]:
            holder = stack.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind((address, port))
            ports.append(holder.getsockname()[1])
        if not sys.platform.startswith("linux"):
            stack.close()
        yield [first, *sorted(ports[1:])] if first else sorted(ports)
