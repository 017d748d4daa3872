"""%%torchrun in a real notebook kernel, when all goes well or the cell itself is at fault."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from labkit import _launch_setup
from tests.processes import ROOT, Kernel, launched

pytestmark = pytest.mark.slow

REPORTING = """\
import torch
import torch.distributed as dist
import labkit as lab

dist.init_process_group(lab.launch.backend())
rank = dist.get_rank()
x = torch.full((2,), float(rank + 1))
dist.all_reduce(x)
for step in range(2):
    print("step", step, "sum", x.tolist())
lab.report(rank=rank, x=x, threads=torch.get_num_threads(), world=dist.get_world_size())
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    kernel = Kernel(tmp_path_factory.mktemp("notebook"))
    yield kernel
    kernel.close()


def test_a_cell_runs_in_order_and_hands_its_values_back(kernel):
    runs = [kernel.run(f"%%torchrun -n 2 --save ddp.py --into results\n{REPORTING}") for _ in range(2)]
    assert runs[0].status == "ok"
    assert runs[0].stdout == "".join(
        f"[rank {rank}] step {step} sum [3.0, 3.0]\n" for rank in range(2) for step in range(2)
    )
    assert runs[0].stdout == runs[1].stdout
    assert runs[0].shown == ""  # the live area is empty again
    got = kernel.run("print(results)\nresults.seconds > 0").stdout
    one = {"x": [3.0, 3.0], "threads": max(1, _launch_setup.cores() // 2), "world": 2}
    assert got.strip() == str([{"rank": rank, **one} for rank in range(2)])
    assert not launched(kernel.mark)


def test_without_a_name_the_values_are_the_cells_result(kernel):
    outcome = kernel.run("%%torchrun -n 2\nimport labkit as lab, os\nlab.report(rank=int(os.environ['RANK']))\n")
    assert outcome.result == "[{'rank': 0}, {'rank': 1}]"
    assert kernel.run("print(_)").stdout == "[{'rank': 0}, {'rank': 1}]\n"
    assert kernel.run("%%torchrun -n 2\nprint('only this')\n").result == ""


def test_values_from_the_notebook_reach_the_ranks(kernel):
    kernel.run("lr, names = 0.5, ['ঢাকা', 'খুলনা']")
    cell = (
        "import sys\nimport labkit as lab\n"
        "print(lab.launch.value('lr'), lab.launch.value('names'), lab.launch.value('steps'), sys.argv[1:])\n"
    )
    outcome = kernel.run(f"%%torchrun -n 1 --set lr=2*lr --set names --set steps=20 --args --fast 3\n{cell}")
    assert outcome.stdout == "[rank 0] 1.0 ['ঢাকা', 'খুলনা'] 20 ['--fast', '3']\n"


def test_bad_cells_fail_at_once_and_briefly(kernel):
    kernel.run("rate = 0.5")
    for cell, words in (
        ("%%torchrun -n 2", "nothing to run"),
        ("%%torchrun -n 2\nprint(rate)\n", "Line 2 uses rate"),
        ("%%torchrun -n 2\nimport os\nprint((\n", "Line 3 is not valid Python"),
        ("%%torchrun -n 2000\nprint(1)\n", "2000 ranks"),
        ("%%torchrun -p 2\nprint(1)\n", "written like this"),
    ):
        outcome = kernel.run(cell)
        assert (outcome.status, outcome.error) == ("error", "BadLaunchError")
        assert words in "\n".join(outcome.traceback)
        assert len(outcome.traceback) <= 6
        assert outcome.seconds < 5


def test_output_is_live(kernel):
    cell = "import time\nfor i in range(8):\n    print('tick', i)\n    time.sleep(0.5)\n"
    outcome = kernel.run(f"%%torchrun -n 1\n{cell}")
    partly = [text for text in outcome.seen if "tick 0" in text and "tick 7" not in text]
    assert partly
    assert outcome.stdout.count("tick") == 8


def test_warnings_go_to_the_log(kernel):
    cell = "import sys, warnings\nwarnings.warn('careful now')\nprint('kept')\n"
    outcome = kernel.run(f"%%torchrun -n 1\n{cell}")
    assert outcome.stdout == "[rank 0] kept\n"
    assert "careful now" in kernel.run("print(lab.launch.log())").stdout


def test_every_socket_listens_on_loopback_only(kernel):
    """Of the kernel and the ranks: torch's store, gloo's listeners, everything."""
    cell = REPORTING.replace("dist.barrier()", "print('ready')\nimport time\ntime.sleep(6)\ndist.barrier()")
    waiting = kernel.send(f"%%torchrun -n 2\n{cell}")
    kernel.wait_for_ranks(2)
    processes = [psutil.Process(kernel.manager.provisioner.pid), *launched(kernel.mark)]
    sockets = [s for process in processes for s in process.net_connections() if s.laddr]
    listening = [s for s in sockets if s.status == psutil.CONN_LISTEN]
    store = int(launched(kernel.mark)[0].environ()["MASTER_PORT"])
    assert store in {s.laddr.port for s in listening}
    addresses = {s.laddr.ip.removeprefix("::ffff:") for s in sockets}
    assert addresses == {"127.0.0.1"}
    assert kernel.finish(waiting).status == "ok"
    left = psutil.Process(kernel.manager.provisioner.pid).net_connections()
    assert store not in {s.laddr.port for s in left if s.status == psutil.CONN_LISTEN}


def test_a_saved_cell_runs_unchanged_under_plain_torchrun(kernel, tmp_path):
    kernel.run(f"%%torchrun -n 2 --save saved.py\n{REPORTING}")
    path = Path(kernel.run("import os; print(os.path.abspath('saved.py'))").stdout.strip())
    first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    assert first == "# torchrun --nproc-per-node 2 saved.py"
    assert rest == REPORTING
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "LABKIT_LANG": "en"},
        capture_output=True, text=True, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("reports") == 2


def test_a_cell_may_be_expected_to_fail(kernel):
    outcome = kernel.run("%%torchrun -n 2 --expect-fail --into went\nprint('before')\nraise ValueError('on purpose')\n")
    assert outcome.status == "ok"
    assert "Every rank failed at line 3: ValueError: on purpose" in outcome.stdout
    assert outcome.stdout.index("[rank 1] before") < outcome.stdout.index("Every rank")
    assert kernel.run("print(went.error.line)").stdout == "3\n"
    outcome = kernel.run("%%torchrun -n 2 --expect-fail\nprint('all well')\n")
    assert outcome.status == "error"
    assert "every rank ended well" in "\n".join(outcome.traceback)
