"""What goes wrong with ranks, for real: signals, a full disk, a taken port, a kernel that is stopped or killed.

Every fault must end in an error that names the cause, within ten seconds of the fault (or at the stated time limit),
with no process left. ``fault_at`` is when the rank itself was about to go wrong.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import labkit as lab
from labkit import launch
from tests.processes import left_after

pytestmark = pytest.mark.slow

WITHIN_S = 10.0
HEAD = """\
# line 1
import os, signal, sys, time
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import labkit as lab
me = int(os.environ["RANK"])
dist.init_process_group("gloo")
dist.barrier()
lab.report(fault_at=time.time())
"""
TAIL = """\
dist.barrier()
dist.destroy_process_group()
"""
FIRST = HEAD.count("\n") + 1  # the line at which a fault's own text begins


@dataclass
class Fault:
    """``body`` goes wrong; the error must be of that ``kind`` (of RankError, or "timeout") and say ``words``."""

    body: str
    kind: str
    words: tuple[str, ...]
    rank: int | None = None
    line: int | None = None
    timeout_s: float = 90.0
    head: str = HEAD


FAULTS = {
    "a rank raises": Fault(
        "if me == 1:\n    raise ValueError('loss is NaN')\ndist.all_reduce(torch.ones(2))\n",
        "raised", ("Rank 1 failed at line 12: ValueError: loss is NaN", "have been stopped"), 1, FIRST + 1,
    ),
    "a rank raises inside a function": Fault(
        "def train():\n    assert me == 0, 'not me'\n    dist.all_reduce(torch.ones(2))\ntrain()\n",
        "raised", ("Rank 1 failed at line 12: AssertionError: not me", "called from line 14: train()"), 1, FIRST + 1,
    ),
    "every rank raises": Fault(
        "torch.ones(2) + torch.ones(3)\n", "raised", ("Every rank failed at line 11: RuntimeError: The size of",), 0, 11
    ),
    "a rank exits with a code": Fault(
        "if me == 1:\n    sys.exit(3)\ndist.all_reduce(torch.ones(2))\n",
        "exited", ("Rank 1 gave up at line 12: exit code 3",), 1, FIRST + 1,
    ),
    "a rank exits 0 early": Fault(
        "if me == 1:\n    sys.exit(0)\ndist.all_reduce(torch.ones(2))\n",
        "left", ("Rank 1 left at line 12", "Rank 0 waited at line 13"), 1, FIRST + 1,
    ),
    "a rank vanishes": Fault(
        "if me == 1:\n    os._exit(0)\ndist.all_reduce(torch.ones(2))\n",
        "lost", ("Rank 0 lost the connection", "os._exit"), 0, FIRST + 2,
    ),
    "a rank is killed": Fault(
        "if me == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\ndist.all_reduce(torch.ones(2))\n",
        "crashed", ("Rank 1 was ended by the signal SIGKILL", "ran out of memory"), 1,
    ),
    "a rank crashes in compiled code": Fault(
        "if me == 0:\n    os.kill(os.getpid(), signal.SIGSEGV)\ndist.all_reduce(torch.ones(2))\n",
        "crashed", ("Rank 0 was ended by the signal SIGSEGV",), 0,
    ),
    "a rank hangs": Fault(
        "if me == 1:\n    time.sleep(1000)\ndist.all_reduce(torch.ones(2))\n",
        "timeout", ("Time is up", "Rank 0 waits at line 13 in all_reduce", "Rank 1 is at line 12: time.sleep(1000)"),
        timeout_s=20,
    ),
    "mismatched collectives": Fault(
        "if me == 0:\n    dist.all_reduce(torch.ones(2))\nelse:\n    dist.barrier()\n    dist.barrier()\n" + TAIL * 2,
        "timeout", ("wait for one another", "Rank 1 waits at line", "in barrier", "same order"),
    ),
    "collectives of different sizes": Fault(
        "dist.all_reduce(torch.ones(2 + me))\n", "timeout", ("Rank 1 waits at line 11 in all_reduce", "same size")
    ),
    "a rank never joins": Fault(
        "if me == 1:\n    sys.exit(0)\ndist.init_process_group('gloo')\n", "timeout",
        ("Rank 0 waits at line 13 in init_process_group", "Rank 1 has already reached its end", "must call dist.init"),
        head=HEAD.replace('dist.init_process_group("gloo")', "").replace("dist.barrier()", ""),
    ),
    "the port is chosen by hand, elsewhere": Fault(
        "os.environ['MASTER_PORT'] = '1'\ndist.init_process_group('gloo')\n", "timeout",
        ("Remove the lines that set MASTER_ADDR or MASTER_PORT",), timeout_s=20,
        head=HEAD.replace('dist.init_process_group("gloo")', "").replace("dist.barrier()", ""),
    ),
}  # fmt: skip


@pytest.fixture
def mark(monkeypatch):
    mark = f"faults-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("LABKIT_TEST", mark)
    lab.use_language("en")
    return mark


def fails(path: Path, mark: str, *, timed: bool = True, **options) -> launch.LaunchError:
    """Launch what must fail: in time, and leaving nothing."""
    with pytest.raises(launch.LaunchError) as caught:
        launch.torchrun(path, 2, show=False, **options)
    now = time.time()
    assert left_after(0, mark) == []
    if timed:
        assert now - max(found["fault_at"] for found in caught.value.results if found) < WITHIN_S
    return caught.value


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name, mark, tmp_path):
    fault = FAULTS[name]
    script = tmp_path / "job.py"
    script.write_text(fault.head + fault.body + TAIL)
    error = fails(script, mark, timed=fault.timeout_s > 60, timeout_s=fault.timeout_s)
    kind = "timeout" if isinstance(error, launch.RankTimeoutError) else error.kind
    text = str(error)
    assert kind == fault.kind, f"{text}\n{error.log}"
    assert [words for words in fault.words if words not in text] == []
    if fault.rank is not None:
        assert error.rank == fault.rank
    if fault.line is not None:
        assert error.line == fault.line
    assert len(text.splitlines()) <= 12
    assert str(tmp_path) not in text  # what the notebook keeps is the same in every folder


def test_the_launchers_port_is_taken(mark, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(HEAD + TAIL)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        started = time.monotonic()
        error = fails(script, mark, timed=False, port=port)
        assert time.monotonic() - started < WITHIN_S
    assert error.kind == "launcher"
    assert f"Port {port}" in str(error)
    assert "Leave out the port" in str(error)


def test_the_scripts_own_port_is_taken(mark, tmp_path):
    script = tmp_path / "job.py"
    body = f"# {'-' * 20}\ndist.init_process_group('gloo', init_method='tcp://127.0.0.1:PORT', rank=me, world_size=2)\n"
    head = HEAD.replace('dist.init_process_group("gloo")', "os.environ.pop('TORCHELASTIC_USE_AGENT_STORE')")
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::", 0))
        taken.listen()
        script.write_text(head.replace("dist.barrier()", "") + body.replace("PORT", str(taken.getsockname()[1])) + TAIL)
        error = fails(script, mark)
    assert "has chosen a free port" in str(error)


@pytest.fixture
def full_disk(tmp_path):
    """A real file system of one megabyte, so that four cannot be written."""
    folder = tmp_path / "small"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("no small file system (mounting is not allowed here)")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_the_disk_is_full_during_a_distributed_checkpoint(mark, tmp_path, full_disk):
    script = tmp_path / "job.py"
    save = "dcp.save({'w': torch.zeros(1_000_000)}, checkpoint_id=lab.launch.value('folder'))\n"
    script.write_text(HEAD + save + TAIL)
    error = fails(script, mark, values={"folder": str(full_disk / "step1")})
    assert "no space left" in str(error)
    assert ".metadata" in str(error)
    assert error.line == FIRST
    assert not (full_disk / "step1" / ".metadata").exists()


def test_worker_processes_of_a_rank_end_with_it(mark, tmp_path):
    """A data loader's workers live in the rank's own process group, which is killed to the last member."""
    script = tmp_path / "job.py"
    script.write_text(
        HEAD + "import multiprocessing\n"
        "multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,)).start()\n"
        "if me == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\ndist.all_reduce(torch.ones(2))\n" + TAIL
    )
    assert fails(script, mark).rank == 1


def test_an_error_reads_well_in_bengali(mark, tmp_path):
    lab.use_language("bn")
    script = tmp_path / "job.py"
    script.write_text(HEAD + "raise ValueError('ভুল')\n")
    with contextlib.suppress(launch.LaunchError):
        launch.torchrun(script, 1, show=False)
        raise AssertionError("nothing was raised")
    assert launch.log()
    with pytest.raises(launch.RankError, match="র‍্যাঙ্ক 0 লাইন 11-এ এসে থেমে গেছে: ValueError: ভুল"):
        launch.torchrun(script, 1, show=False)
