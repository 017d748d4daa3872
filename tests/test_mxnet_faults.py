"""What goes wrong with MXNet's parameter server, for real: killed processes, unequal batches, a kernel that is gone.

MXNet's own processes notice none of it. Every fault must end in an error that names the cause, within 15 seconds of the
fault (or at the stated limit), with no process left. ``fault_at`` is when a worker was about to cause it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

import labkit as lab
from labkit import _mxnet_errors, _mxnet_launch, launch
from labkit._mxnet_setup import Process, processes
from labkit._rank_errors import Notes
from tests.processes import Kernel, launched, left_after
from tests.test_timing import needs_mxnet

WITHIN_S = 15.0
HEAD = """\
# line 1
import os, signal, sys, time
from pathlib import Path
import labkit as lab
mx = lab.mx.load()
kv = mx.kv.create("dist_sync")
me, run, w = kv.rank, Path(os.environ["LABKIT_RUN_FOLDER"]), mx.nd.zeros(2)
kv.init("w", w)
def step(number):
    kv.push("w", mx.nd.ones(2))
    kv.pull("w", out=w)
    w.wait_to_read()
    print("step", number, flush=True)
def send(signal_number, name):
    lab.report(fault_at=time.time())
    os.kill(int((run / f"{name}.pid").read_text()), signal_number)
step(0)
lab.report(fault_at=time.time())
"""
LINE = HEAD.count("\n") + 1  # at which a fault's own text begins
MANY = "for number in range(1, 1000):\n    step(number)\n    time.sleep(0.01)\n"


@dataclass
class Fault:
    """``body`` goes wrong; the error must be of that ``kind`` (of RankError, or "timeout") and say ``words``."""

    body: str
    kind: str
    words: tuple[str, ...]
    role: str = "worker"
    rank: int = 0
    line: int | None = None
    head: str = HEAD
    limits: dict = field(default_factory=dict)


FAULTS = {
    "a worker is killed": Fault(
        "if me == 1:\n    send(signal.SIGKILL, 'worker1')\n" + MANY, "crashed",
        ("Worker 1 was ended by the signal SIGKILL", "ran out of memory", "do not notice"), rank=1,
    ),
    "a server is killed": Fault(
        "if me == 1:\n    send(signal.SIGKILL, 'server0')\n" + MANY, "crashed",
        ("Server 0 was ended by the signal SIGKILL", "do not notice"), role="server",
    ),
    "the scheduler is killed": Fault(
        "if me == 1:\n    send(signal.SIGKILL, 'scheduler')\n" + MANY, "crashed",
        ("The scheduler was ended by the signal SIGKILL", "do not notice"), role="scheduler",
    ),
    "a worker raises": Fault(
        "if me == 1:\n    raise ValueError('loss is NaN')\n" + MANY, "raised",
        (f"Worker 1 failed at line {LINE + 1}: ValueError: loss is NaN", "do not notice"), rank=1, line=LINE + 1,
    ),
    "a worker gives up": Fault(
        "if me == 1:\n    sys.exit(3)\n" + MANY, "exited",
        (f"Worker 1 gave up at line {LINE + 1}: exit code 3",), rank=1, line=LINE + 1,
    ),
    "a worker vanishes": Fault(
        "if me == 1:\n    os._exit(0)\n" + MANY, "lost", ("Worker 1 ended in the middle", "os._exit"), rank=1,
    ),
    "a server cannot load the optimizer": Fault(
        "class Mine(mx.optimizer.SGD):\n    pass\nkv.set_optimizer(Mine())\n" + MANY, "raised",
        ("Server 0 failed: AttributeError: Can't get attribute 'Mine'", "%%writefile"), role="server",
    ),
    "a server stands still": Fault(
        "if me == 1:\n    send(signal.SIGSTOP, 'server0')\n" + MANY, "timeout",
        ("wait for one another", f"Worker 0 waits at line {HEAD.splitlines().index('    w.wait_to_read()') + 1}"),
        limits={"stall_s": 3.0},
    ),
    "unequal numbers of batches": Fault(
        "for number in range(2 + me):\n    step(number)\n", "timeout",
        ("wait for one another", "Worker 0 has already reached its end", "Worker 1 waits at line",
         "unequal numbers of batches"), limits={"stall_s": 3.0},
    ),
    "unequal numbers of batches, until the time is up": Fault(
        "for number in range(2 + me):\n    step(number)\n", "timeout",
        ("not finished after 20 s", "Worker 0 has already reached its end", "Worker 1 waits at line",
         "unequal numbers of batches"), limits={"stall_s": None, "timeout_s": 20.0},
    ),
    "a worker never joins": Fault(
        "if os.environ['LABKIT_RUN_NAME'] == 'worker1':\n    sys.exit(0)\nmx.kv.create('dist_sync')\n", "timeout",
        ("Worker 0 waits at line 5 in create", "Worker 1 has already reached its end", "must create the kvstore"),
        head="import os, sys\nimport labkit as lab; mx = lab.mx.load()\n", limits={"stall_s": 3.0},
    ),
    "no worker ever joins": Fault(
        "print('alone')\n", "left", ("without ever joining", "must create the kvstore"), head="",
    ),
}  # fmt: skip


@pytest.fixture
def mark(monkeypatch, english):
    mark = f"ps-faults-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("LABKIT_TEST", mark)
    return mark


@needs_mxnet
@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_fault(name, mark, tmp_path, monkeypatch):
    monkeypatch.setattr(_mxnet_launch, "CLOSING_S", 2.0)
    fault, script = FAULTS[name], tmp_path / "job.py"
    script.write_text(fault.head + fault.body)
    with pytest.raises(launch.LaunchError) as caught:
        launch.mxnet(script, 2, 1, show=False, **fault.limits)
    now, error, text = time.time(), caught.value, str(caught.value)
    assert left_after(0, mark) == []
    kind = "timeout" if isinstance(error, launch.RankTimeoutError) else error.kind
    assert kind == fault.kind, f"{text}\n{error.log}"
    assert [words for words in fault.words if words not in text] == []
    if kind != "timeout":
        assert (error.role, error.rank if kind != "left" else 0) == (fault.role, fault.rank)
    if fault.line is not None:
        assert error.line == fault.line
    if "timeout_s" not in fault.limits:
        assert now - max((found["fault_at"] for found in error.results if found), default=now) < WITHIN_S
    assert len(text.splitlines()) <= 12
    assert str(tmp_path) not in text


def test_the_schedulers_port_is_taken(mark, tmp_path):
    script = tmp_path / "job.py"
    script.write_text("print(1)\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(launch.RankError, match=f"Port {port}.*Leave out the port") as caught:
            launch.mxnet(script, port=port, show=False)
    assert (caught.value.kind, caught.value.role) == ("launcher", "scheduler")


WORKING = """\
import labkit as lab
mx = lab.mx.load()
kv = mx.kv.create("dist_sync")
w = mx.nd.zeros(2)
kv.init("w", w)
print("ready", flush=True)
while True:
    kv.push("w", w + 1)
    kv.pull("w", out=w)
    w.wait_to_read()
"""


def working(kernel: Kernel, timeout_s: float = 90.0) -> tuple[str, Path]:
    """The cell's id and the run's folder, once both workers of the kernel's cell work."""
    cell, until = kernel.send(f"%%mxnet_ps -w 2\n{WORKING}"), time.monotonic() + timeout_s
    while time.monotonic() < until:
        for process in launched(kernel.mark):
            with contextlib.suppress(psutil.Error, OSError):
                folder = Path(process.environ()["LABKIT_RUN_FOLDER"])
                if all("ready" in (folder / f"worker{k}.out").read_text() for k in range(2)):
                    return cell, folder
        time.sleep(0.1)
    raise AssertionError(f"the workers did not get ready in {timeout_s} s")


@needs_mxnet
@pytest.mark.slow
def test_the_kernel_is_interrupted_restarted_and_killed(tmp_path):
    kernel = Kernel(tmp_path)
    try:
        cell, _ = working(kernel)
        kernel.manager.interrupt_kernel()
        outcome = kernel.finish(cell, timeout_s=WITHIN_S)
        assert (outcome.status, outcome.error) == ("error", "KeyboardInterrupt")
        assert outcome.traceback == ["Stopped. The scheduler, the servers and the workers have been ended."]
        assert left_after(0, kernel.mark) == []

        working(kernel)
        kernel.manager.restart_kernel(now=True)
        assert left_after(WITHIN_S, kernel.mark) == []
        kernel.client.wait_for_ready(timeout=60)

        kernel.run("import labkit as lab; lab.use_language('en')")
        _, folder = working(kernel)
        psutil.Process(kernel.manager.provisioner.pid).send_signal(signal.SIGKILL)
        assert left_after(WITHIN_S, kernel.mark) == []
        assert folder.parent == kernel.temporary
        assert not any(kernel.temporary.glob("labkit-*"))
    finally:
        kernel.close()


def explained(reason, workers=(), **problem):
    known = {process.name: process for process in processes(2, 1)}
    whole = {"processes": known, "codes": {}, "raised": {}, "missing": None, "silent": {}} | problem
    return _mxnet_errors.explain(reason, workers, seconds=30, source=["a", "b"], problem=whole)


def test_the_root_cause_is_the_scripts_own_error(english):
    """Not the exit codes that follow from it, and not the later error of another worker."""
    notes = [
        Notes("Worker 0", 0, {"kind": "raised", "type": "OSError", "message": "late", "frames": [[2, "f", "b"]],
                              "time": 2.0}),
        Notes("Worker 1", 1, {"kind": "raised", "type": "ValueError", "message": "early", "frames": [[1, "f", "a"]],
                              "time": 1.0}),
    ]  # fmt: skip
    error = explained("ended", notes, codes={"worker0": 1, "server0": -6, "worker1": 1})
    assert str(error).startswith("Worker 1 failed at line 1: ValueError: early")
    notes[0].state |= {"type": "ValueError", "message": "early too", "frames": [[1, "f", "a"]]}
    error = explained("failed", notes)
    assert str(error).startswith("Every worker failed at line 1: ValueError: early too")
    assert error.rank == 0


def test_who_is_silent_on_another_machine_is_named(english):
    error = explained("silent", silent={"nodes": [["server", 0], ["worker", 1]], "seconds": 5})
    assert "Server 0 (kv.rank 0) has sent no sign of life for 5 s" in str(error)
    assert "Worker 1 (kv.rank 1)" in str(error)
    assert (error.kind, error.role, error.rank) == ("lost", "server", 0)


def test_what_another_machine_learns(english):
    there = {"root": "10.0.0.1:9091", "met": True, "news": ""}
    assert "scheduler at 10.0.0.1:9091 no longer answers" in str(explained("unreachable", **there))
    told = str(explained("unreachable", **there | {"news": "Worker 0 at 10.0.0.1 was ended."}))
    assert told.endswith("It says:\n\nWorker 0 at 10.0.0.1 was ended.")
    assert "Nobody answers at 10.0.0.1:9091" in str(explained("timeout", **there | {"met": False}))


def test_time_that_is_up_while_everybody_works(english):
    working = Notes("Worker 0", 0, {}, {"line": 2, "waits": False})
    text = str(explained("timeout", [working]))
    assert "Worker 0 is at line 2: b" in text
    assert "--timeout 60" in text
    assert "unequal" not in text


def test_an_error_reads_well_in_bengali():
    lab.use_language("bn")
    error = explained("ended", codes={"server0": -9})
    assert str(error).startswith("সার্ভার 0 বন্ধ হয়েছে SIGKILL সিগন্যাল পেয়ে।")
    assert Process("worker", 1, "10.0.0.2").title == "10.0.0.2 ঠিকানার ওয়ার্কার 1"
