"""Runs the project's trainings for whoever makes a card, and holds the watch: a fresh process for each, no walls."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from labkit.language import t

READY_S = 300.0  # importing torch on a slow disk


class Host:
    """Trainings one after the other, each in a process that nothing ran in before: for one's own code, on any system.

    On Linux one process imports torch and is copied for each training; elsewhere a new one is started each time.
    """

    def __init__(self):
        self._process: subprocess.Popen | None = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._end()

    def run(self, job: dict, limit_s: float) -> dict:
        """The answer to a job and ``seconds``, from handing it over to having the answer; or ``error``, or
        ``timeout``, which is the limit."""
        seconds, answer = 0.0, ""
        try:
            with self._limit(READY_S):
                if not self._is_ready():
                    return {"error": t("The process for the training could not start.")}
            line = json.dumps(job) + "\n"
            with self._limit(limit_s):
                begin = time.perf_counter()
                self._process.stdin.write(line)
                self._process.stdin.flush()
                answer = self._process.stdout.readline()
                seconds = time.perf_counter() - begin
        except BrokenPipeError:
            pass
        if answer.startswith("{"):
            return {**json.loads(answer), "seconds": seconds}
        self._end()
        return {"timeout": limit_s} if seconds >= limit_s else {"error": t("The process ended before it gave a model.")}

    def _is_ready(self) -> bool:
        if self._process is not None and self._process.stdout.readline().strip() == "ready":
            return True
        self._end()
        self._process = _started()
        return self._process.stdout.readline().strip() == "ready"

    @contextlib.contextmanager
    def _limit(self, seconds: float):
        timer = threading.Timer(seconds, lambda: _kill(self._process))
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end(self) -> None:
        if self._process is not None:
            _kill(self._process)
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None


def _started() -> subprocess.Popen:
    clone = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join([clone, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "labkit._project_run"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
        encoding="utf-8", start_new_session=True)  # fmt: skip


def _kill(process) -> None:
    """Also what it started, where the system has process groups."""
    with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
