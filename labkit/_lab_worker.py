"""One measurement at a time, in a thread, that can be stopped: what stands behind a lab's Run and Stop.

Two threads a job. The supervisor waits for its turn, watches the clock and the Stop button, and reports; nothing ever
interrupts it. The runner calls the function. To stop it, an exception is raised inside the runner, again and again
until it is gone. Code that cannot be interrupted (a call into C, or a stretch marked ``uninterrupted()``, such as a
compile) is abandoned: its result will be thrown away, and the next job waits until it has let go of the machine, but
not for ever.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import gc
import threading
import time
from collections.abc import Callable, Iterator

from labkit import _turns

TICK_S = 0.05
STOP_S = 1.0  # what an interrupted function gets to clean up before it is abandoned
LET_GO_S = 30.0  # how long the next job waits for an abandoned one, or for another notebook

_current: contextvars.ContextVar[Job | None] = contextvars.ContextVar("labkit_job", default=None)
_turn = threading.Condition()
_line: list[Job] = []  # who holds the machine stands first; the others wait in the order they came


class StoppedError(SystemExit):
    """Raised inside a measurement that should end.

    ``except Exception`` lets a SystemExit through, and a thread that ends by one prints nothing.
    """


def step(text: str, share: float | None = None) -> None:
    """Say what a measurement does now, and how much of it is done (0 to 1); a place where it can be stopped.

    Does nothing outside a lab, so a lab's function can be called as it is.
    """
    job = _current.get()
    if job is not None:
        job.note(text, share)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Raise nothing inside: a compiler that is torn out of its work would leave broken state behind."""
    job = _current.get()
    if job is None:
        yield
        return
    job.enter_shelter()
    try:
        yield
    finally:
        job.leave_shelter()
    job.note(None, None)


class Job:
    """One call of ``work()`` in a thread.

    ``report(event, text, share)`` is called from these threads: event ``"waiting"`` or ``"held up"`` (by an abandoned
    job) with the name of that job as text, ``"elsewhere"`` (another notebook measures), ``"running"``, ``"step"``,
    ``"stopping"``. ``done(outcome, value)`` comes once, at the end: ``"done"`` and the value, ``"failed"`` and the
    exception, ``"stopped"`` or ``"late"`` and whether the function really ended (False: abandoned).
    """

    def __init__(self, name: str, work: Callable, *, limit_s: float, report: Callable, done: Callable,
                 clock=time.monotonic):  # fmt: skip
        self.name, self.limit_s = name, limit_s
        self.took_s = 0.0
        self.beside = ""  # the name of an abandoned job that was still running when this one began
        self._work, self._report, self._done, self._clock = work, report, done, clock
        self._stop, self._over = threading.Event(), threading.Event()
        self._box: dict = {}
        self._gate, self._sheltered = threading.Lock(), 0
        self._given_up_s: float | None = None
        self._runner: threading.Thread | None = None

    def start(self) -> None:
        with _turn:
            _line.append(self)
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._supervise,), daemon=True, name="labkit-lab").start()

    def stop(self) -> None:
        """Ask it to end; returns at once."""
        self._stop.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until ``done`` has been called."""
        return self._over.wait(timeout_s)

    def note(self, text: str | None, share: float | None) -> None:
        if self._stop.is_set() or self._given_up_s is not None:
            raise StoppedError
        if text is not None:
            self._report("step", text, share)

    def enter_shelter(self) -> None:
        with self._gate:
            self._sheltered += 1

    def leave_shelter(self) -> None:
        with self._gate:
            self._sheltered -= 1

    def _supervise(self) -> None:
        try:
            if not self._wait_for_turn():
                self._done("stopped", True)
                return
            with self._machine():
                self._measure()
        finally:
            if self._given_up_s is None:
                self._leave_line()
            self._over.set()

    def _machine(self):
        """The turn among the notebooks of this machine."""
        return _turns.turn(wait_s=LET_GO_S, say=lambda: self._report("elsewhere", "", None), give_up=self._stop.is_set)

    def _measure(self) -> None:
        if self._stop.is_set():
            self._done("stopped", True)
            return
        self._report("running", "", None)
        begin = self._clock()
        context = contextvars.copy_context()
        self._runner = threading.Thread(target=context.run, args=(self._run,), daemon=True, name="labkit-run")
        was_collecting = gc.isenabled()
        self._runner.start()
        ended_by = self._watch(begin)
        self.took_s = self._clock() - begin
        if ended_by is None:
            self._leave_line()
            self._done("failed" if "error" in self._box else "done", self._box.get("error", self._box.get("value")))
            return
        self._report("stopping", "", None)
        has_ended = self._interrupt()
        if has_ended:
            if was_collecting and not gc.isenabled():  # torn out of the stretch that holds the collector back
                gc.unfreeze()
                gc.enable()
            self._leave_line()
        else:
            self._given_up_s = self._clock()
        self._done(ended_by, has_ended)

    def _run(self) -> None:
        _current.set(self)
        try:
            self._box["value"] = self._work()
        except BaseException as error:
            self._box["error"] = error

    def _watch(self, begin: float) -> str | None:
        """Why it has to be stopped; None when it ended by itself."""
        while self._runner.is_alive():
            self._runner.join(TICK_S)
            if not self._runner.is_alive():
                break
            if self._stop.is_set():
                return "stopped"
            if self._clock() - begin > self.limit_s:
                self._stop.set()
                return "late"
        return "stopped" if isinstance(self._box.get("error"), StoppedError) else None

    def _interrupt(self) -> bool:
        """Raise StoppedError in the runner until it has ended; False when it does not."""
        end = time.monotonic() + STOP_S
        while self._runner.is_alive() and time.monotonic() < end:
            with self._gate:
                if not self._sheltered:
                    # Again each time: a bare "except:" in a learner's loop may have swallowed the one before.
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(self._runner.ident), ctypes.py_object(StoppedError)
                    )
            self._runner.join(TICK_S)
        return not self._runner.is_alive()

    def _wait_for_turn(self) -> bool:
        """Whether the turn came before Stop did."""
        said = None
        with _turn:
            while True:
                if self._stop.is_set():
                    return False
                ahead = _line[0]
                if ahead is self:
                    return True
                if ahead.has_let_go():
                    if ahead._runner.is_alive():
                        self.beside = ahead.name
                    _line.remove(ahead)
                    continue
                event = "waiting" if ahead._given_up_s is None else "held up"
                if said != (event, ahead.name):
                    said = (event, ahead.name)
                    self._report(event, ahead.name, None)
                _turn.wait(TICK_S)

    def has_let_go(self) -> bool:
        """Whether an abandoned job has ended at last, or has been waited for long enough."""
        if self._given_up_s is None:
            return False
        return not self._runner.is_alive() or self._clock() - self._given_up_s > LET_GO_S

    def _leave_line(self) -> None:
        with _turn:
            if self in _line:
                _line.remove(self)
            _turn.notify_all()


def in_turn(name: str, work: Callable):
    """``work()`` here and now, when its turn has come: the headless way, which an interrupt of the cell ends."""
    if _current.get() is not None:  # a lab that uses another lab: it is its turn already
        return work()
    job = Job(name, work, limit_s=0, report=lambda *_: None, done=lambda *_: None)
    with _turn:
        _line.append(job)
    try:
        job._wait_for_turn()
        with job._machine():
            return work()
    finally:
        job._leave_line()
