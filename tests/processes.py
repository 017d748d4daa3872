"""For tests that launch: a real notebook kernel, and the processes that a launch could leave behind."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty

import psutil

ROOT = Path(__file__).resolve().parent.parent


def launched(mark: str) -> list[psutil.Process]:
    """Processes of labkit launches that are alive now and carry ``mark`` in the environment variable LABKIT_TEST."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            environment = process.environ()
            ours = "LABKIT_RUN_FOLDER" in environment and mark in environment.get("LABKIT_TEST", "")
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def left_after(seconds: float, mark: str) -> list[str]:
    """What is still alive ``seconds`` from now, at the latest: returns as soon as nothing is."""
    until = time.monotonic() + seconds
    while True:
        alive = launched(mark)
        if not alive or time.monotonic() > until:
            return [" ".join(process.cmdline()) for process in alive]
        time.sleep(0.1)


@dataclass
class Outcome:
    """What a cell left in the notebook."""

    status: str = ""
    error: str = ""
    traceback: list[str] = field(default_factory=list)
    stdout: str = ""
    shown: str = ""  # the live area, as it stood last
    seen: list[str] = field(default_factory=list)  # every content of the live area
    result: str = ""
    seconds: float = 0.0


class Kernel:
    """A real ipykernel, marked so that its launches can be told from everybody else's."""

    def __init__(self, folder: Path, language: str = "en"):
        from jupyter_client.manager import KernelManager

        self.mark = f"kernel-{os.getpid()}-{time.monotonic_ns()}"
        # Unix sockets beside the connection file; their paths must be short and absolute.
        self.folder = tempfile.TemporaryDirectory(prefix="k")
        self.manager = KernelManager(
            kernel_name="python3", transport="ipc", connection_file=f"{self.folder.name}/kernel.json"
        )
        self.temporary = Path(self.folder.name) / "tmp"
        self.temporary.mkdir()
        environment = {**os.environ, "LABKIT_TEST": self.mark, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary)}
        self.manager.start_kernel(cwd=str(folder), env=environment)
        self.client = self.manager.client()
        self.client.start_channels()
        try:
            self.client.wait_for_ready(timeout=60)
        except BaseException:
            self.close()
            raise
        self.run(f"import labkit as lab; lab.use_language({language!r})")

    def send(self, code: str) -> str:
        return self.client.execute(code)

    def run(self, code: str, timeout_s: float = 100.0) -> Outcome:
        return self.finish(self.send(code), timeout_s)

    def finish(self, message_id: str, timeout_s: float = 100.0) -> Outcome:
        started, outcome = time.monotonic(), Outcome()
        while True:
            message = self.client.get_iopub_msg(timeout=timeout_s - (time.monotonic() - started))
            if message["parent_header"].get("msg_id") != message_id:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream" and content["name"] == "stdout":
                outcome.stdout += content["text"]
            elif kind in ("display_data", "update_display_data"):
                outcome.shown = content["data"].get("text/plain", "")
                outcome.seen.append(outcome.shown)
            elif kind == "execute_result":
                outcome.result = content["data"]["text/plain"]
            elif kind == "error":
                outcome.error, outcome.traceback = content["ename"], content["traceback"]
            elif kind == "status" and content["execution_state"] == "idle":
                break
        outcome.seconds = time.monotonic() - started
        with contextlib.suppress(Empty):
            while not outcome.status:
                reply = self.client.get_shell_msg(timeout=10)
                if reply["parent_header"].get("msg_id") == message_id:
                    outcome.status = reply["content"]["status"]
        return outcome

    def wait_for_ranks(self, count: int, timeout_s: float = 60.0) -> list[psutil.Process]:
        """Until ``count`` ranks of this kernel run and have said "ready"."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            ready = list(self._ready())
            if len(ready) >= count:
                return ready
            time.sleep(0.1)
        raise AssertionError(f"{count} ranks did not get ready in {timeout_s} s")

    def _ready(self) -> Iterator[psutil.Process]:
        for process in launched(self.mark):
            with contextlib.suppress(psutil.Error, OSError):
                folder = Path(process.environ()["LABKIT_RUN_FOLDER"])
                own = folder / f"rank{process.environ().get('RANK', 'none')}.out"
                if own.exists() and "ready" in own.read_text():
                    yield process

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.folder.cleanup()
