"""One run of torch.distributed's ranks on this machine: started as ``torchrun`` starts them, without its agent.

``torchrun`` is a process of its own that imports torch before it starts the first rank, which takes longer than many
lessons' ranks work. Here the launcher starts the ranks itself, with the environment that torchrun gives them, and keeps
the store in which they meet. Only runs that may start failed ranks again have torchrun's own agent, see
``_torchrun_agent``.
"""

from __future__ import annotations

import datetime
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit import _rank_errors, _run_files
from labkit._launch_errors import RankError
from labkit._launched import Launched, RankResults
from labkit._processes import Child

LOOPBACK, RUN_ID = "127.0.0.1", "labkit"
_TIMEOUT = datetime.timedelta(minutes=10)


@dataclass(frozen=True)
class Job:
    """What every rank runs: ``environment`` is what they share, ``port`` that of the store, ``source`` the lines."""

    script: Path
    arguments: Sequence[str]
    environment: Mapping[str, str]
    port: int
    source: Sequence[str]
    expect_fail: bool

    @property
    def command(self) -> list[str]:
        """After ``python -m``, or torchrun's ``-m``."""
        return ["labkit._rank", str(self.script), *self.arguments]


def run(launched: Launched, job: Job) -> RankResults:
    """Run the job as the ranks that ``launched`` names.

    Raises RankError where the port is taken, else as ``launch.torchrun``.
    """
    try:
        listener = listen(job.port)
    except OSError:
        raise RankError(_rank_errors.port_taken(job.port), kind="launcher") from None
    size, port, store = len(launched.names), listener.getsockname()[1], []
    command = [sys.executable, "-m", *job.command]
    environments = [{**job.environment, **rank_environment(rank, size, port)} for rank in range(size)]
    environments[0][_run_files.TIDY] = "1"
    children = [Child(*parts) for parts in zip(launched.names, [command] * size, environments, strict=True)]
    try:
        return launched.results(
            children,
            job.source,
            lambda ending: {"codes": ending.codes},
            job.expect_fail,
            # Afterwards, so that a launcher without torch imports it while the ranks do: the socket listens already.
            started=lambda: store.append(serve(listener)),
        )
    finally:
        store.clear()  # whoever keeps the error's traceback would keep the store
        listener.close()


def rank_environment(rank: int, size: int, port: int) -> dict[str, str]:
    """What ``torchrun`` tells rank ``rank`` of ``size`` on one machine (torch/distributed/run.py, "Environment
    Variables"); the store listens at ``port``."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "ROLE_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "ROLE_WORLD_SIZE": str(size),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": RUN_ID,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }


def listen(port: int) -> socket.socket:
    """A socket that listens at ``port`` of this machine's loopback only; 0 takes a free one. Raises OSError."""
    listener = socket.socket()
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def serve(listener: socket.socket):
    """Torch's store on that socket, which is the store's from now on. It ends when nobody holds it any more."""
    from torch.distributed import TCPStore

    port = listener.getsockname()[1]
    return TCPStore(LOOPBACK, port, None, True, _TIMEOUT, wait_for_workers=False, master_listen_fd=listener.detach())
