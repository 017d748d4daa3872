"""The notebook's kernel is interrupted, restarted or killed while ranks run, or its ranks are: nothing may be left."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from tests.processes import Kernel, left_after

pytestmark = pytest.mark.slow

WITHIN_S = 10.0
WORKING = """\
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print("ready")
while True:
    dist.all_reduce(torch.ones(1000))
"""


@pytest.fixture
def kernel(tmp_path):
    kernel = Kernel(tmp_path)
    yield kernel
    kernel.close()
    assert left_after(10, kernel.mark) == []


def test_the_kernel_is_interrupted(kernel):
    cell = kernel.send(f"%%torchrun -n 2\n{WORKING}")
    kernel.wait_for_ranks(2)
    kernel.manager.interrupt_kernel()
    outcome = kernel.finish(cell, timeout_s=WITHIN_S)
    assert (outcome.status, outcome.error) == ("error", "KeyboardInterrupt")
    assert outcome.traceback == ["Stopped. Every rank has been ended."]
    assert left_after(0, kernel.mark) == []
    assert kernel.run("print(1 + 1)").stdout == "2\n"


@pytest.mark.parametrize("now", [True, False])
def test_the_kernel_is_restarted(kernel, now):
    kernel.send(f"%%torchrun -n 2\n{WORKING}")
    kernel.wait_for_ranks(2)
    kernel.manager.shutdown_wait_time = 2.0
    kernel.manager.restart_kernel(now=now)
    assert left_after(WITHIN_S, kernel.mark) == []
    kernel.client.wait_for_ready(timeout=60)
    assert kernel.run("print(1 + 1)").stdout == "2\n"


def test_the_kernel_is_killed(kernel):
    kernel.send(f"%%torchrun -n 2\n{WORKING}")
    folder = Path(kernel.wait_for_ranks(2)[0].environ()["LABKIT_RUN_FOLDER"])
    psutil.Process(kernel.manager.provisioner.pid).send_signal(signal.SIGKILL)
    assert left_after(WITHIN_S, kernel.mark) == []
    assert folder.parent == kernel.temporary
    assert not any(kernel.temporary.glob("labkit-*"))


@pytest.mark.parametrize("max_restarts", [0, 1])
def test_the_kernel_of_a_program_is_killed(kernel, max_restarts):
    """Without torchrun's agent and with it: neither ranks nor their folder are left."""
    kernel.run(f"%%writefile job.py\n{WORKING}")
    kernel.send(f"lab.launch.torchrun('job.py', 2, max_restarts={max_restarts})")
    ranks = kernel.wait_for_ranks(2)
    assert {rank.ppid() == kernel.manager.provisioner.pid for rank in ranks} == {max_restarts == 0}
    psutil.Process(kernel.manager.provisioner.pid).send_signal(signal.SIGKILL)
    assert left_after(WITHIN_S, kernel.mark) == []
    assert not any(kernel.temporary.glob("labkit-*"))


def test_the_agent_of_the_ranks_is_killed(kernel):
    """It is gone at once, so it can stop nobody; the ranks must notice by themselves."""
    kernel.run(f"%%writefile job.py\n{WORKING}")
    cell = kernel.send("lab.launch.torchrun('job.py', 2, max_restarts=1)")
    agent = kernel.wait_for_ranks(2)[0].parent()
    agent.kill()
    outcome = kernel.finish(cell, timeout_s=WITHIN_S)
    assert (outcome.status, outcome.error) == ("error", "RankError")
    assert "was ended by the signal SIGKILL" in "\n".join(outcome.traceback)
    assert left_after(0, kernel.mark) == []


def test_a_rank_is_killed_from_outside_while_the_notebook_runs(kernel):
    cell = kernel.send(f"%%torchrun -n 2\n{WORKING}")
    next(rank for rank in kernel.wait_for_ranks(2) if rank.environ()["RANK"] == "1").kill()
    outcome = kernel.finish(cell, timeout_s=WITHIN_S)
    assert (outcome.status, outcome.error) == ("error", "RankError")
    assert outcome.traceback[0] == "Rank 1 was ended by the signal SIGKILL."
    assert left_after(0, kernel.mark) == []
