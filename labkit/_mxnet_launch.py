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
_CLOSING_S = 10.0  # from the end of the last script to the end of every process


@dataclass(frozen=True)
class Place:
    """Where a run's processes live: ``here``, those of this machine (all, unless there are other machines), which
    listen at ``address``; the scheduler at ``root``. ``signs`` of life are exchanged between machines."""

    here: Sequence[Process]
    address: str = LOOPBACK
    root: tuple[str, int] | None = None  # None: here, on a free port
    signs: Mapping[str, str] = field(default_factory=dict)  # environment
    watch: Callable[[], str | None] = lambda: None  # a further reason to end


class PsLaunch(Launched):
    """A launch whose workers run the script, beside servers and a scheduler that only serve them."""

    def __init__(self, folder: Path, place: Place, **limits):
        self.place = place
        self.workers = [process for process in place.here if process.role == "worker"]
        titles = {process.name: process.title for process in place.here}
        super().__init__(
            folder,
            [process.name for process in self.workers],
            titles.__getitem__,
            failed_s=_FAILED_S,
            beside=[process.name for process in place.here if process.role != "worker"],
            **limits,
        )
        self.missing = None

    def error(self, ending: Ending, source: Sequence[str], problem: Mapping):
        notes = self.notes(problem.get("codes", {}))
        return _mxnet_errors.explain(ending.reason, notes, seconds=self.timeout_s, source=source, problem=problem)

    def reason_to_stop(self) -> str | None:
        notes, now = self.notes({}), time.time()
        ended = [n for n in notes if n.kind]
        if any(n.kind != "finished" and now - n.state["time"] > self.failed_s for n in ended):
            return "failed"  # its Python ends only after MXNet's farewell, which waits for the others
        if self._scheduler().get("kind") == "silent":
            return "silent"
        self.missing = self._vanished()
        if self.missing:
            return "vanished"
        if len(ended) == len(notes) > 0 and now - max(n.state["time"] for n in ended) > _CLOSING_S:
            return "left"
        return "stalled" if self.stall_s and self._stands_still(now) else self.place.watch()

    def _stands_still(self, now: float) -> bool:
        """Have all workers that still run waited, and all servers idled, for longer than is ever right?"""
        living = [n for n in self.notes({}) if not n.kind]
        waiting = all(n.where.get("waits") and n.where["idle_s"] >= self.stall_s for n in living)
        return bool(living) and waiting and self._servers_idle_s(now) >= self.stall_s

    def problem(self, ending: Ending) -> dict:
        scheduler = self._scheduler()
        return {"codes": ending.codes, "joined": bool(scheduler), "missing": self.missing, "silent": scheduler}

    def _scheduler(self) -> dict:
        return _run_files.read(self.folder / "scheduler.state", {})

    def _vanished(self) -> str | None:
        """A worker whose process is gone though it noted no end. (Gone for good: the launcher has waited for it.)"""
        pids = dict(zip(self.names, self.read("pid", None), strict=True))
        for name, pid in pids.items():
            if pid and not _alive(pid) and not _run_files.read(self.folder / f"{name}.state", {}):
                return name
        return None

    def _servers_idle_s(self, now: float) -> float:
        """For how long no server has worked, in seconds."""
        notes = [_run_files.read(self.folder / f"{process.name}.where", {})
                 for process in self.place.here if process.role == "server"]
        return now - max([note.get("busy", now) for note in notes], default=0.0)


def run(
    script: Path,
    place: Place,
    *,
    workers: int,
    servers: int,
    arguments: Sequence[str],
    values: Mapping[str, object],
    threads: int | None,
    port: int,
    import_from: str | os.PathLike | None,
    folder: Path | None,
    expect_fail: bool,
    **limits,
) -> RankResults:
    """Run the script as the workers of ``place``; see ``launch.mxnet`` for the rest."""
    source = script.read_text(encoding="utf-8").splitlines()
    with contextlib.ExitStack() as stack:
        folder = folder or stack.enter_context(_run_files.temporary())
        _run_files.write(folder / "values", values)
        with_root = place.root is None or any(process.role == "scheduler" for process in place.here)
        others = [process for process in place.here if process.role != "scheduler"]
        try:
            own = _mxnet_setup.reserved_ports(
                len(others) + 1, place.address, first=place.root[1] if place.root and with_root else port
            )
            ports = stack.enter_context(own)
        except OSError:
            raise _mxnet_errors.taken(place.root[1] if place.root else port) from None
        root = place.root or (place.address, ports[0])
        base = _launch_setup.environment(
            sum(process.role == "worker" for process in place.here), folder, threads=threads, import_from=import_from
        )
        children = []
        for process, own_port in zip([p for p in place.here if p.role == "scheduler"] + others,
                                     ports if with_root else ports[1:], strict=True):
            command = ["labkit._mxnet_role"] if process.role != "worker" else ["labkit._rank", str(script.resolve()),
                                                                                *arguments]
            environment = _mxnet_setup.environment(
                base, process, workers=workers, servers=servers, root=root, address=place.address, port=own_port
            )
            environment |= {_run_files.NAME: process.name, **place.signs}
            children.append(Child(process.name, [sys.executable, "-m", *command], environment))
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
