"""One run of MXNet's parameter server: start its processes, watch what MXNet itself does not, end them together."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labkit import _launch_setup, _mxnet_errors, _mxnet_setup, _run_files
from labkit._launched import Launched, RankResults
from labkit._mxnet_setup import LOOPBACK, Process
from labkit._processes import Child, Ending

_FAILED_S = 1.0  # the other workers get this long to note the same error
CLOSING_S = 10.0  # from the end of the last script to the end of every process


@dataclass(frozen=True)
class Place:
    """Where a run's processes live: ``here``, those of this machine (all, unless there are other machines), the
    scheduler first; they listen at ``address``. ``root``: the scheduler's address and port; port 0 takes a free one."""

    here: Sequence[Process]
    address: str = LOOPBACK
    root: tuple[str, int] = (LOOPBACK, 0)
    extra: Mapping[str, str] = field(default_factory=dict)  # environment
    watch: Callable[[], str | None] = lambda: None  # a further reason to end
    knows: Callable[[], Mapping] = dict  # what else an error should say, see _mxnet_errors
    at_failure: Callable[[str], None] = lambda text: None  # who else wants to know


class PsLaunch(Launched):
    """A launch whose workers run the script, beside servers and a scheduler that only serve them."""

    def __init__(self, folder: Path, place: Place, **limits):
        self.place, self.missing = place, None
        self.processes = {process.name: process for process in place.here}
        super().__init__(
            folder,
            [name for name, process in self.processes.items() if process.role == "worker"],
            lambda name: self.processes[name].title,
            failed_s=_FAILED_S,
            beside=[name for name, process in self.processes.items() if process.role != "worker"],
            **limits,
        )

    def error(self, ending: Ending, source: Sequence[str], problem: Mapping):
        notes = self.notes(problem["codes"])
        return _mxnet_errors.explain(ending.reason, notes, seconds=self.timeout_s, source=source, problem=problem)

    def reason_to_stop(self) -> str | None:
        notes, now = self.notes({}), time.monotonic()
        ended = [n for n in notes if n.kind]
        if any(n.kind != "finished" and now - n.state["time"] > self.failed_s for n in ended):
            return "failed"  # its Python ends only after MXNet's farewell, which waits for the others
        if self._scheduler().get("kind") == "silent":
            return "silent"
        self.missing = self._vanished()
        if self.missing:
            return "vanished"
        if len(ended) == len(notes) > 0 and now - max(n.state["time"] for n in ended) > CLOSING_S:
            return "left"
        living = [n for n in notes if not n.kind]
        return "stalled" if self.stall_s and self._stands_still(living, now) else self.place.watch()

    def problem(self, ending: Ending) -> dict:
        states = {name: _run_files.read(self.folder / f"{name}.state", {}) for name in self.processes}
        raised = {name: state for name, state in states.items() if state.get("kind") == "raised"}
        noted = {"missing": self.missing, "silent": self._scheduler(), "raised": raised}
        return {"codes": ending.codes, "processes": self.processes, **noted, **self.place.knows()}

    def _stands_still(self, living: Sequence, now: float) -> bool:
        """Have all workers that still run waited, and all servers idled, for longer than is ever right?"""
        waiting = all(n.where.get("waits") and n.where["idle_s"] >= self.stall_s for n in living)
        return bool(living) and waiting and self._servers_idle_s(now) >= self.stall_s

    def _servers_idle_s(self, now: float) -> float:
        """For how long no server has worked, in seconds."""
        servers = [name for name, process in self.processes.items() if process.role == "server"]
        notes = [_run_files.read(self.folder / f"{name}.where", {}) for name in servers]
        return now - max((note.get("busy", now) for note in notes), default=0.0)

    def _scheduler(self) -> dict:
        return _run_files.read(self.folder / "scheduler.state", {})

    def _vanished(self) -> str | None:
        """A worker whose process is gone though it noted no end. (``supervise`` waits for it, so no zombie is left.)"""
        for name, pid in zip(self.names, self.read("pid", None), strict=True):
            if pid and not _alive(pid) and not _run_files.read(self.folder / f"{name}.state"):
                return name
        return None


def run(
    script: Path,
    place: Place,
    *,
    workers: int,
    servers: int,
    arguments: Sequence[str],
    values: Mapping[str, object],
    threads: int | None,
    import_from: str | os.PathLike | None,
    folder: Path | None,
    expect_fail: bool,
    **limits,
) -> RankResults:
    """Run the script as the workers of ``place``; see ``launch.mxnet`` for the rest."""
    source = script.read_text(encoding="utf-8").splitlines()
    with_scheduler = place.here[0].role == "scheduler"
    with contextlib.ExitStack() as stack:
        folder = folder or stack.enter_context(_run_files.temporary())
        _run_files.hand_over(folder, values)
        first = place.root[1] if with_scheduler else 0
        try:
            reserved = _mxnet_setup.reserved_ports(len(place.here), place.address, first=first)
            ports = stack.enter_context(reserved)
        except OSError as error:
            raise _mxnet_errors.cannot_listen(place.address, first, error) from None
        root = (place.root[0], ports[0]) if with_scheduler else place.root
        sharing = sum(process.role == "worker" for process in place.here)
        imports = import_from or script.resolve().parent  # for the servers too: optimisers travel by name
        base = _launch_setup.environment(max(1, sharing), folder, threads=threads, import_from=imports)
        children = []
        for process, port in zip(place.here, ports, strict=True):
            own = _mxnet_setup.environment(
                base, process, workers=workers, servers=servers, root=root, address=place.address, port=port
            )
            told = ["labkit._rank", str(script.resolve()), *arguments]
            module = told if process.role == "worker" else ["labkit._mxnet_role"]
            whole = own | {_run_files.NAME: process.name, **place.extra}
            children.append(Child(process.name, [sys.executable, "-m", *module], whole))
        launched = PsLaunch(folder, place, **limits)
        return launched.results(children, source, launched.problem, expect_fail)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
