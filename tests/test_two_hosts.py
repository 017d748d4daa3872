"""Two hosts made of network namespaces: the notebook's file unchanged on both, and training that outlives a kill."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import labkit as lab
from labkit import _magics, launch
from tests.processes import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.netns]

RANKS = ROOT / "tests" / "ranks"
CELL = """\
import torch
import torch.distributed as dist
import labkit as lab

dist.init_process_group(lab.launch.backend())
torch.manual_seed(dist.get_rank())
x = torch.rand(4)
dist.all_reduce(x)
lab.report(world=dist.get_world_size(), x=x)
dist.barrier()
dist.destroy_process_group()
"""


class Host:
    """A network namespace with one address; processes inside see no other network."""

    def __init__(self, name: str, address: str):
        self.name, self.address, self.started = name, address, []

    def start(self, command: list[str], log: Path, **settings: str) -> subprocess.Popen:
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
            "GLOO_SOCKET_IFNAME": self.name, "LABKIT_LANG": "en", **settings,
        }  # fmt: skip
        with log.open("ab") as out:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.name, sys.executable, "-m", "torch.distributed.run", *command],
                env=environment, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def processes(self) -> list[psutil.Process]:
        """All processes of this host. ``ip netns exec`` becomes the command itself."""
        found = []
        listed = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True).stdout
        for pid in listed.split():
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(int(pid)))
        return found

    def ranks(self, script: str) -> list[psutil.Process]:
        """The processes that run the script (torchrun, which has its name among its arguments, has other children)."""
        agents = {process.pid for process in self.started}
        return [p for p in self.processes() if p.pid not in agents and script in " ".join(p.cmdline())]


@pytest.fixture
def hosts():
    """Two hosts joined by a cable: 10.77.0.1 and 10.77.0.2."""
    number = os.getpid() % 100_000
    pair = [Host(f"lk{number}{letter}", f"10.77.0.{k}") for k, letter in ((1, "a"), (2, "b"))]

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

    try:
        for host in pair:
            ip("netns", "add", host.name)
        ip("link", "add", pair[0].name, "netns", pair[0].name, "type", "veth", "peer", "name", pair[1].name,
           "netns", pair[1].name)  # fmt: skip
        for host in pair:
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", host.name)
            ip("-n", host.name, "link", "set", host.name, "up")
            ip("-n", host.name, "link", "set", "lo", "up")
        yield pair
    finally:
        for host in pair:
            with contextlib.suppress(subprocess.CalledProcessError):
                for process in host.processes():
                    process.kill()
            for process in host.started:
                process.wait()
            subprocess.run(["ip", "netns", "delete", host.name], capture_output=True)


def finished(processes: list[subprocess.Popen], timeout_s: float, logs: list[Path], code: int = 0) -> None:
    """Wait until all of them ended with ``code``; what they printed is in the error."""
    until = time.monotonic() + timeout_s
    codes = []
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            codes.append(process.wait(max(0.1, until - time.monotonic())))
    assert codes == [code] * len(processes), "\n\n".join(f"{log.name}:\n{log.read_text()}" for log in logs)


def test_the_saved_cell_runs_unchanged_on_two_hosts(hosts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lab.use_language("en")
    namespace = {}
    _magics.torchrun("-n 2 --save job.py --into results", CELL, namespace)
    before = (tmp_path / "job.py").read_bytes()
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    started = [
        host.start(
            ["--nnodes", "2", "--node-rank", str(k), "--master-addr", hosts[0].address, "--master-port", "29500",
             "--nproc-per-node", "1", "job.py"], log,
        )
        for k, (host, log) in enumerate(zip(hosts, logs, strict=True))
    ]  # fmt: skip
    finished(started, 90, logs)
    expected = namespace["results"][0]
    assert expected["world"] == 2
    for rank, log in enumerate(logs):
        assert f"rank {rank} reports {expected}" in log.read_text()
    assert (tmp_path / "job.py").read_bytes() == before


def elastic(host: Host, first: bool, meet: str, folder: Path, log: Path) -> subprocess.Popen:
    return host.start(
        ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{meet}:29500",
         "--rdzv-id", "labkit", "--rdzv-conf", f"is_host={int(first)}", "--local-addr", host.address,
         "--max-restarts", "8", "--monitor-interval", "0.1", str(RANKS / "elastic.py"), str(folder), "0.15"], log,
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",  # else restarted ranks may wait for the addresses of dead ones
    )  # fmt: skip


def text_until(log: Path, words: str, timeout_s: float) -> str:
    until = time.monotonic() + timeout_s
    while True:
        text = log.read_text() if log.exists() else ""
        if words in text:
            return text
        assert time.monotonic() < until, f"{words!r} did not come in {timeout_s} s:\n{text}"
        time.sleep(0.05)


@pytest.mark.timing  # the 30 s hold for this machine alone: every restart imports torch again
def test_training_outlives_a_killed_rank(hosts, tmp_path):
    """One host's rank is killed in mid-training; within 30 s both hosts have ended with the undisturbed loss."""
    undisturbed = launch.torchrun(RANKS / "elastic.py", 2, arguments=[str(tmp_path / "calm")], show=False)
    logs, folder = [tmp_path / "a.log", tmp_path / "b.log"], tmp_path / "checkpoints"
    started = [elastic(host, k == 0, hosts[0].address, folder, logs[k]) for k, host in enumerate(hosts)]
    text_until(logs[1], "did step 10", 90)
    victims = hosts[1].ranks("elastic.py")
    assert len(victims) == 1
    victims[0].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    finished(started, 60, logs)
    recovery_s = time.monotonic() - killed
    print(f"from the kill to the end of training: {recovery_s:.1f} s")
    assert recovery_s < 30
    text = logs[0].read_text() + logs[1].read_text()
    assert re.search(r"starts at step (8|12)\n", text), text  # and not at the beginning again
    assert "refused" not in text, text  # nobody called at the address of a rank that is no more
    losses = set(re.findall(r"final loss ([0-9.]+)", text))
    assert losses == {f"{undisturbed[0]['loss']:.9f}"}
    assert [p for host in hosts for p in host.processes()] == []
