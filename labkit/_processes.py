"""Start processes together, pass on what they print, end them together: on failure, on time-out, on an interrupt.

Knows nothing of torch or MXNet. Each child gets its own session (so that a terminal's or Jupyter's signal to the group
does not reach it), and is expected to call ``_guard.end_with`` so that it dies with this process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.05  # until an end is noticed
_LOOK_S = 0.25  # between looks at what was printed and noted, which cost the ranks processor time
_ORDERLY_S = 5.0  # for a child to end after SIGTERM; torchrun needs some, to stop its ranks


@dataclass(frozen=True)
class Child:
    """``name`` labels it and its log file ``name.log``; the environment is complete, not an addition."""

    name: str
    command: list[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Ending:
    """``reason``: "ended", "timeout" or what ``watch`` said. ``codes``: exit code of each child, negative for a signal,
    None for one that was still running and was ended from here."""

    reason: str
    codes: dict[str, int | None]
    seconds: float


class Tail:
    """Reads what was appended to a file since the last look, in whole lines."""

    def __init__(self, path: Path):
        self._path, self._read, self._rest = path, 0, b""

    def lines(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._read)
            new = file.read(1_000_000)
            self._read += len(new)
            *whole, self._rest = (self._rest + new).split(b"\n")
            return [line.decode("utf-8", "replace") for line in whole]
        return []


def supervise(
    children: Iterable[Child],
    *,
    folder: Path,
    streams: Mapping[str, Path],
    timeout_s: float,
    started: Callable[[], None] = lambda: None,
    show: Callable[[str, str], None] = lambda label, line: None,
    watch: Callable[[float], str | None] = lambda seconds: None,
    strays: Callable[[], Iterable[int]] = lambda: (),
) -> Ending:
    """Run the children until all have ended; return how. Nothing of them is left when this returns or raises.

    ``started()`` is called once, when all have been started. ``streams``: label -> file whose new lines go to
    ``show(label, line)`` while they run. ``watch(seconds)`` is asked at every look, four times a second; a word from it
    ends the run with that reason. One child with a non-zero exit code ends the others (reason "ended"). ``strays``
    names process groups that the children started and that may outlive them.
    """
    began = time.monotonic()
    tails = {label: Tail(path) for label, path in streams.items()}
    running: dict[str, subprocess.Popen] = {}
    reason = "ended"
    try:
        for child in children:
            running[child.name] = _start(child, folder)
        started()
        looked = began
        while any(process.poll() is None for process in running.values()):
            if any(process.poll() for process in running.values()):
                break
            now = time.monotonic()
            if now - looked >= _LOOK_S:
                looked = now
                _pass_on(tails, show)
                said = "timeout" if now - began > timeout_s else watch(now - began)
                if said:
                    reason = said
                    break
            _wait_for_one(running.values())
        codes = {name: process.poll() for name, process in running.items()}
    finally:
        _end_all(running.values(), strays)
    _pass_on(tails, show)
    return Ending(reason, codes, time.monotonic() - began)


def _start(child: Child, folder: Path) -> subprocess.Popen:
    # No preexec_fn: it forks this whole process (slow with much memory, unsafe with threads, CUDA or MXNet's engine).
    with (folder / f"{child.name}.log").open("ab") as log:
        return subprocess.Popen(
            child.command,
            env=dict(child.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _wait_for_one(processes: Iterable[subprocess.Popen]) -> None:
    """Sleep for one poll interval, less when the child that is looked at ends sooner."""
    alive = [process for process in processes if process.poll() is None]
    if alive:
        with contextlib.suppress(subprocess.TimeoutExpired):
            alive[0].wait(_POLL_S)


def _pass_on(tails: Mapping[str, Tail], show: Callable[[str, str], None]) -> None:
    for label, tail in tails.items():
        for line in tail.lines():
            show(label, line)


def _end_all(processes: Iterable[subprocess.Popen], strays: Callable[[], Iterable[int]]) -> None:
    """Ask the living to end, then kill; a second interrupt meanwhile does not stop the tidying up."""
    processes = list(processes)
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            for process in processes:
                if process.poll() is None:
                    process.terminate()
            until = time.monotonic() + _ORDERLY_S
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, until - time.monotonic()))
            for group in {*(process.pid for process in processes), *strays()}:
                kill_group(group)
            for process in processes:
                process.wait()
            return


def kill_group(group: int) -> None:
    """SIGKILL to every process of a group, if there still is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
