"""One launch under way: the notes its processes leave, and what is made of them when it ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from labkit import _rank_errors, _run_files
from labkit._launch_errors import LaunchError
from labkit._live_output import LiveOutput, ordered
from labkit._processes import Child, Ending, supervise
from labkit.language import t

FAILED_S = 3.0  # a process whose script has failed but that does not end is not waited for longer than this
_last_log = [""]


class RankResults(list):
    """One dict a rank, as handed back by ``report()``. Beside the list: ``output`` (what the ranks printed, in order),
    ``log`` (their warnings too), ``seconds`` (wall time of the launch), ``error`` (the failure that was expected)."""

    output, log, seconds, error = "", "", 0.0, None


def last_log() -> str:
    return _last_log[0]


class Launched:
    """``names`` of the processes that run the script and leave notes under that name in ``folder``, in the order in
    which they are shown; ``beside`` them, those that only print. ``title(name)`` is how an error calls one. Limits in
    seconds; ``stall_s`` None: no limit."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        title: Callable[[str], str],
        *,
        show: bool,
        timeout_s: float,
        stall_s: float | None,
        failed_s: float = FAILED_S,
        beside: Sequence[str] = (),
    ):
        self.folder, self.names, self.title, self.live = folder, names, title, LiveOutput() if show else None
        self.printing = [*names, *beside]
        self.timeout_s, self.stall_s, self.failed_s = timeout_s, stall_s, failed_s

    def results(
        self,
        children: Sequence[Child],
        source: Sequence[str],
        problem: Callable[[Ending], Mapping],
        expect_fail: bool,
        *,
        started: Callable[[], None] = lambda: None,
    ) -> RankResults:
        """Run the children to their end. ``started`` is called when all have been started; ``problem`` says what the
        launcher itself saw of a bad end: exit codes by name ("codes"), a "port" that was taken, the "signal" that ended
        the launcher of the ranks."""
        streams = {_label(name): self.folder / f"{name}.out" for name in self.printing}
        try:
            ending = supervise(
                children,
                folder=self.folder,
                streams=streams,
                timeout_s=self.timeout_s,
                started=started,
                show=self.live.add if self.live else lambda label, line: None,
                watch=lambda seconds: self.reason_to_stop(),
                strays=lambda: [pid for pid in self.read("pid", None) if pid],
            )
        finally:
            output = ordered((label, _run_files.text(path)) for label, path in streams.items())
            _last_log[0] = self.everything(children)
            if self.live:
                self.live.finish(output)
        found = RankResults(self.read("report", {}))
        found.output, found.log, found.seconds = output, last_log(), ending.seconds
        if ending.reason != "ended" or any(ending.codes.values()):
            found.error = self.error(ending, source, problem(ending))
            found.error.results, found.error.log = list(found), last_log()
            if not expect_fail:
                raise found.error
            if self.live:
                print(found.error, flush=True)
        elif expect_fail:
            raise LaunchError(
                t(
                    "This was expected to fail, but every rank ended well. Remove --expect-fail, or look for the line"
                    " that was meant to go wrong."
                )
            )
        return found

    def error(self, ending: Ending, source: Sequence[str], problem: Mapping) -> LaunchError:
        notes = self.notes(problem.get("codes", {}))
        return _rank_errors.explain(ending.reason, notes, seconds=self.timeout_s, source=source, problem=problem)

    def reason_to_stop(self) -> str | None:
        """Is there a reason not to wait for the launcher's own end?"""
        notes = self.notes({})
        if any(n.kind == "raised" and time.monotonic() - n.state["time"] > self.failed_s for n in notes):
            return "failed"
        living = [n for n in notes if not n.kind]
        if self.stall_s and living and all(n.where.get("waits") and n.where["idle_s"] >= self.stall_s for n in living):
            return "stalled"
        return None

    def notes(self, codes: Mapping[str, int]) -> list[_rank_errors.Notes]:
        rows = zip(self.names, self.read("state", {}), self.read("where", {}), strict=True)
        return [
            _rank_errors.Notes(self.title(name), index, state, where, codes.get(name))
            for index, (name, state, where) in enumerate(rows)
        ]

    def read(self, kind: str, default) -> list:
        return [_run_files.read(self.folder / f"{name}.{kind}", default) for name in self.names]

    def everything(self, children: Sequence[Child]) -> str:
        """All that was printed, by process: what the launcher itself said, then each one's stdout and stderr."""
        files = {f"{child.name}.log": child.name for child in children}
        files |= {f"{name}.{kind}": f"{_label(name)} std{kind}" for name in self.printing for kind in ("out", "err")}
        texts = {title: _run_files.text(self.folder / file).rstrip() for file, title in files.items()}
        return "\n".join(f"--- {title}\n{text}" for title, text in texts.items() if text)


def _label(name: str) -> str:
    """ "rank 0" for "rank0"."""
    word = name.rstrip("0123456789")
    return f"{word} {name.removeprefix(word)}".rstrip()


def signal_name(code: int | None) -> str | None:
    """ "SIGKILL" for exit code -9, None for a code that is no signal."""
    return signal.Signals(-code).name if code is not None and code < 0 else None
