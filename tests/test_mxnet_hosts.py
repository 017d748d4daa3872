"""Two hosts made of network namespaces run one parameter server: the notebook's file unchanged, faults told to both.

MXNet's workers never notice a dead peer: the scheduler's count of heartbeats and the two launchers do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labkit import _magics
from tests.processes import ROOT
from tests.test_timing import needs_mxnet
from tests.test_two_hosts import Host, finished, hosts, text_until

pytestmark = [pytest.mark.slow, pytest.mark.netns, needs_mxnet, pytest.mark.usefixtures("english")]
__all__ = ["hosts"]

WITHIN_S = 15.0
CELL = """\
import os
from pathlib import Path
import labkit as lab
from tests.sockets import addresses

mx = lab.mx.load()
kv = mx.kv.create("dist_sync")
net = mx.gluon.nn.Dense(1, in_units=3)
net.initialize(mx.init.One())
trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kv)
x = mx.nd.arange(6).reshape((2, 3))[kv.rank : kv.rank + 1] / 6
for step in range(lab.launch.value("steps", int(os.environ.get("STEPS", 3)))):
    with mx.autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    trainer.step(2)
    if step % 100 == 0:
        print("step", step, loss.asscalar(), flush=True)
pids = Path(os.environ["LABKIT_RUN_FOLDER"]).glob("*.pid")
seen = set().union(*(addresses(int(pid.read_text()), listening=True) for pid in pids))
lab.report(workers=kv.num_workers, rank=kv.rank, weights=net.weight.data(), seen=sorted(seen))
"""


def start(host: Host, root: Host, here: str, script: str, log: Path, **environment: str) -> subprocess.Popen:
    """One host's part, as the documentation says to type it."""
    command = [
        sys.executable, "-m", "labkit.launch", "mxnet", "-w", "2", "-s", "1", "--root", f"{root.address}:9091",
        "--address", host.address, "--here", here, "--timeout", "60", script,
    ]  # fmt: skip
    whole = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "LABKIT_LANG": "en", **environment}
    with log.open("ab") as out:
        process = subprocess.Popen(
            ["ip", "netns", "exec", host.name, *command], env=whole, stdout=out, stderr=out, start_new_session=True,
            cwd=ROOT,
        )  # fmt: skip
    host.started.append(process)
    return process


@pytest.fixture
def both(hosts, tmp_path):
    """Starts both hosts' parts with endless work, and waits until both do it; gives their logs."""

    def begin(here: tuple[str, str]) -> tuple[list[subprocess.Popen], list[Path]]:
        script, logs = tmp_path / "job.py", [tmp_path / "a.log", tmp_path / "b.log"]
        script.write_text(CELL)
        started = [start(host, hosts[0], part, str(script), log, STEPS="1000000")
                   for host, part, log in zip(hosts, here, logs, strict=True)]  # fmt: skip
        for log in logs:
            text_until(log, "step 100", 60)
        return started, logs

    return begin


def test_the_saved_cell_runs_unchanged_on_two_hosts(hosts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    namespace = {}
    _magics.mxnet_ps("-w 2 -s 1 --save job.py --into results --set steps=3", CELL, namespace)
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    parts = ("scheduler,server,worker", "worker")
    started = [start(host, hosts[0], part, str(tmp_path / "job.py"), log)
               for host, part, log in zip(hosts, parts, logs, strict=True)]  # fmt: skip
    finished(started, 60, logs)
    texts = [log.read_text() for log in logs]
    weights = namespace["results"][0]["weights"]
    assert all("worker 0 reports {'workers': 2, 'rank': " in text for text in texts)
    assert all(f"'weights': {weights}" in text for text in texts)
    assert {rank for rank in (0, 1) for text in texts if f"'rank': {rank}" in text} == {0, 1}
    for host, text in zip(hosts, texts, strict=True):
        assert f"'seen': ['{host.address}']" in text


def test_a_worker_dies_on_the_other_host(hosts, both):
    """The scheduler's host learns it from the silence, by the worker's rank."""
    started, logs = both(("scheduler,server,worker", "worker"))
    [victim] = hosts[1].ranks("labkit._rank")
    victim.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    finished(started, 60, logs, code=1)
    assert time.monotonic() - killed < WITHIN_S
    assert f"Worker 0 at {hosts[1].address} was ended by the signal SIGKILL" in logs[1].read_text()
    text = logs[0].read_text()
    assert "has sent no sign of life for 5 s" in text
    # ps-lite counts workers by their addresses, the last one first: the other host's worker is number 0.
    assert "Worker 0 (kv.rank 0)" in text
    assert "(kv.rank 1)" not in text
    assert [p for host in hosts for p in host.processes()] == []


def test_a_server_dies_on_the_schedulers_host(hosts, both):
    """The other host asks at the scheduler's address and is told."""
    started, logs = both(("scheduler,server,worker", "worker"))
    [victim] = [p for p in hosts[0].ranks("labkit._mxnet_role") if p.environ()["LABKIT_RUN_NAME"] == "server0"]
    victim.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    finished(started, 60, logs, code=1)
    assert time.monotonic() - killed < WITHIN_S
    said = f"Server 0 at {hosts[0].address} was ended by the signal SIGKILL"
    assert said in logs[0].read_text()
    assert f"The scheduler's machine has ended the run. It says:\n\n{said}" in logs[1].read_text()
    assert [p for host in hosts for p in host.processes()] == []
