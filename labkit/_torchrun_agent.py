"""torchrun with every socket on this machine's loopback: ``python -m labkit._torchrun_agent PORT TORCHRUN-ARGUMENT…``.

Runs that start failed ranks again go through it (``launch``); the others need no agent, see ``_torch_launch``.
``torchrun --standalone`` opens two stores that listen on all interfaces (``[::]``), so that anybody on the network may
talk to them. Here a rendezvous handler of our own, made the documented way, hands torch's store a socket that is
already bound to 127.0.0.1; everything else is ``torch.distributed.run``. PORT 0 picks a free port.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import traceback
from pathlib import Path

from labkit import _guard, _run_files
from labkit._launched import Launched, RankResults, signal_name
from labkit._processes import Child, Ending
from labkit._torch_launch import LOOPBACK, RUN_ID, Job, listen, serve

BACKEND = "labkit-loopback"
_ALWAYS = [
    "--nnodes", "1", "--rdzv-backend", BACKEND, "--rdzv-endpoint", LOOPBACK, "--local-addr", LOOPBACK,
    "--rdzv-id", RUN_ID, "--monitor-interval", "0.05",
]  # fmt: skip


def launch(launched: Launched, job: Job, max_restarts: int) -> RankResults:
    """As ``_torch_launch.run``, with torchrun's agent, which starts all ranks again up to ``max_restarts`` times."""
    size, folder = str(len(launched.names)), launched.folder
    options = ["--nproc-per-node", size, "--max-restarts", str(max_restarts), "--log-dir", str(folder)]
    agent = [sys.executable, "-m", "labkit._torchrun_agent", str(job.port), *options, "-m", *job.command]

    def problem(ending: Ending) -> dict:
        noted = _run_files.read(folder / "agent.state", {})
        killed_by = signal_name(ending.codes["agent"])
        return noted | ({"signal": killed_by} if killed_by else {})

    return launched.results([Child("agent", agent, job.environment)], job.source, problem, job.expect_fail)


def main() -> int:
    parent = int(os.environ[_run_files.PARENT])
    _guard.end_with(parent, signal.SIGTERM)
    folder = Path(os.environ[_run_files.FOLDER])
    os.environ[_run_files.PARENT] = str(os.getpid())  # from here on, for the ranks
    try:
        listener = listen(int(sys.argv[1]))
    except OSError as error:
        _run_files.write(folder / "agent.state", {"port": int(sys.argv[1]), "message": str(error)})
        return 1
    try:
        return _run(listener, sys.argv[2:], folder)
    finally:
        if os.getppid() != parent:  # nobody is left to tidy up
            shutil.rmtree(folder, ignore_errors=True)


def _run(listener: socket.socket, arguments: list[str], folder: Path) -> int:
    from torch.distributed import PrefixStore, run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import (
        RendezvousHandler,
        RendezvousInfo,
        RendezvousStoreInfo,
        rendezvous_handler_registry,
    )

    class Loopback(RendezvousHandler):
        """One machine, so no meeting is needed: node 0 of 1, with a fresh store for every (re)start of the ranks."""

        use_agent_store = True
        listener_of_next_round = listener

        def get_backend(self):
            return BACKEND

        def next_rendezvous(self):
            own, self.listener_of_next_round = self.listener_of_next_round or listen(0), None
            port = own.getsockname()[1]
            self.server = serve(own)
            return RendezvousInfo(PrefixStore("agent", self.server), 0, 1, RendezvousStoreInfo(LOOPBACK, port))

        def is_closed(self):
            return False

        def set_closed(self):
            pass

        def num_nodes_waiting(self):
            return 0

        def get_run_id(self):
            return RUN_ID

        def shutdown(self):
            return True

    rendezvous_handler_registry.register(BACKEND, lambda parameters: Loopback())
    try:
        run.run(run.parse_args([*_ALWAYS, *arguments]))
    except ChildFailedError as error:
        codes = {f"rank{rank}": failure.exitcode for rank, failure in error.failures.items()}
        _run_files.write(folder / "agent.state", {"codes": codes})
        return 1
    except SignalException as stop:
        return 128 + stop.sigval
    return 0


if __name__ == "__main__":
    exit_code = 1
    try:
        exit_code = main()
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(exit_code)  # taking torch apart module by module would take the seconds that a learner waits for
