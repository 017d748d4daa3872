"""Run a learner's code without being hurt by it: a time limit, captured output, errors told kindly.

Nothing here is a sandbox: the code runs in this process with the learner's own rights. It only keeps one bad answer
from stopping a notebook. Instructors who run strangers' code do that in a process of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import logging
import os
import signal
import sys
import tempfile
import threading
import traceback
from pathlib import Path


class TimeUpError(BaseException):
    """The code did not end in time. A BaseException, so that a learner's ``except Exception`` cannot swallow it."""


def run_limited(fn, limit_s: float):
    """``fn()``, or TimeUpError after ``limit_s`` seconds. What ``fn`` raises comes through unchanged.

    In the main thread a timer signal interrupts the call, so torch's and MXNet's thread-local settings still hold.
    Elsewhere (widget callbacks, Windows) the call runs in a thread of its own, which is told to stop when time is up.
    """
    if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
        return _by_signal(fn, limit_s)
    return _by_thread(fn, limit_s)


def _by_signal(fn, limit_s):
    rings = 0

    def ring(_number, frame):
        nonlocal rings
        rings += 1
        if rings == 1:
            raise TimeUpError
        # A bare "except:" in the learner's loop swallowed it: raise again, each time some lines further on, so that one
        # falls outside the try block.
        _raise_after(frame, rings % 8)

    old_handler, old_trace = signal.signal(signal.SIGALRM, ring), sys.gettrace()
    old_timer = signal.setitimer(signal.ITIMER_REAL, limit_s, 0.1)
    try:
        return fn()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.settrace(old_trace)
        signal.signal(signal.SIGALRM, old_handler)
        signal.setitimer(signal.ITIMER_REAL, *old_timer)


def _raise_after(frame, lines):
    def trace(_frame, event, _argument):
        nonlocal lines
        lines -= event == "line"
        if lines < 0:
            raise TimeUpError
        return trace

    frame.f_trace = trace
    sys.settrace(trace)


def _by_thread(fn, limit_s):
    box = {}

    def work():
        try:
            box["value"] = fn()
        except BaseException as error:
            box["error"] = error

    thread = threading.Thread(target=work, daemon=True, name="labkit-check")
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(TimeUpError))
        thread.join(1.0)
        raise TimeUpError
    if "error" in box:
        raise box["error"]
    return box["value"]


@contextlib.contextmanager
def captured():
    """Collect what is printed inside the block; yields a function that returns the text so far.

    Standard error is caught at the file descriptor as well (C++ libraries and child processes write there) and logging
    is silenced, because one line on stderr makes nbgrader score a test cell 0.
    """
    printed = io.StringIO()
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with _descriptor_2_to_file(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield printed.getvalue
    finally:
        logging.disable(level)


@contextlib.contextmanager
def _descriptor_2_to_file():
    with contextlib.suppress(Exception):
        sys.stderr.flush()
    try:
        saved = os.dup(2)
    except OSError:  # no standard error at all, as in some windowed launchers
        yield
        return
    try:
        with tempfile.TemporaryFile() as sink:
            os.dup2(sink.fileno(), 2)
            yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def place_of(error: BaseException, answer) -> tuple[int, str] | None:
    """Line number and text of the learner's own line in which ``error`` arose; None when it cannot be told."""
    code = getattr(answer, "__code__", None)
    if code is None:
        return None
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == code.co_filename]
    if not lines or Path(code.co_filename).parent == Path(__file__).parent:
        return None
    return lines[-1].lineno, (lines[-1].line or "").strip()
