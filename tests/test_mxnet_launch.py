"""MXNet's parameter server, when all goes well: numbers, ports, results in order, the same weights as one process."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading

import numpy as np
import pytest

from labkit import _magics, _mxnet_hosts, _mxnet_setup, launch
from labkit._mxnet_setup import Process
from tests.processes import ROOT, Kernel, launched
from tests.sockets import addresses
from tests.test_timing import needs_mxnet

pytestmark = pytest.mark.usefixtures("english")
SYNC = ROOT / "tests" / "ranks" / "ps_sync.py"


@pytest.mark.parametrize("numbers", [(0, 1), (2, 0), (1.5, 1), (True, 1), ("2", 1)])
def test_impossible_numbers(numbers):
    with pytest.raises(launch.BadLaunchError, match="whole numbers"):
        launch.mxnet(SYNC, *numbers)


def test_more_processes_than_sense(monkeypatch):
    monkeypatch.setattr("labkit._launch_setup.cores", lambda: 2)
    _mxnet_setup.check_numbers(6, 2)
    with pytest.raises(launch.BadLaunchError, match="7 workers and 2 servers.*at most 8"):
        _mxnet_setup.check_numbers(7, 2)
    _mxnet_setup.check_numbers(7, 2, all_here=False)


@pytest.mark.parametrize(("system", "processor", "words"), [("Linux", "x86_64", "%pip install"),
                                                           ("Darwin", "arm64", "Colab")])
def test_without_mxnet_nothing_is_started(system, processor, words, monkeypatch):
    from labkit import mx

    monkeypatch.setattr(mx, "is_available", lambda: False)
    monkeypatch.setattr(mx.platform, "system", lambda: system)
    monkeypatch.setattr(mx.platform, "machine", lambda: processor)
    with pytest.raises(launch.BadLaunchError, match=words):
        launch.mxnet(SYNC)


def test_what_a_process_finds_around_it():
    base = {"PATH": "/bin", "DMLC_ROLE": "scheduler", "DMLC_INTERFACE": "eth0", "PS_VERBOSE": "2", "PORT": "8080"}
    own = _mxnet_setup.environment(base, Process("worker", 1), workers=2, servers=3, root=("127.0.0.1", 9),
                                   address="127.0.0.1", port=11)  # fmt: skip
    assert own == {
        "PATH": "/bin", "DMLC_ROLE": "worker", "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "9",
        "DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "3", "DMLC_NODE_HOST": "127.0.0.1", "PORT": "11",
    }  # fmt: skip


def test_processes_and_their_names():
    assert [p.name for p in _mxnet_setup.processes(2, 1)] == ["scheduler", "server0", "worker0", "worker1"]
    assert [p.title for p in _mxnet_setup.processes(1, 1)] == ["The scheduler", "Server 0", "Worker 0"]
    assert Process("worker", 1, "10.0.0.2").title == "Worker 1 at 10.0.0.2"


def listener(port, *, again):
    strange = socket.socket()
    strange.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(again))
    strange.bind(("127.0.0.1", port))
    strange.listen()
    return strange


def test_ports_are_free_rising_and_reserved():
    with _mxnet_setup.reserved_ports(5) as ports:
        assert ports == sorted(set(ports))
        if sys.platform.startswith("linux"):
            with pytest.raises(OSError, match="in use"):
                listener(ports[1], again=False)
        listener(ports[1], again=True).close()  # as ZeroMQ does
    listener(ports[1], again=False).close()


def test_a_chosen_port_comes_first_unless_it_is_taken():
    with listener(0, again=False) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use") as raised, _mxnet_setup.reserved_ports(2, first=port):
            pass
    assert raised.value.errno == errno.EADDRINUSE
    with _mxnet_setup.reserved_ports(3, first=port) as ports:
        assert ports[0] == port


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-w two", "invalid int value"),
        ("-n 2", "unrecognized arguments"),
        ("-w 2 -s 0", "whole numbers"),
        ("-w 2 --save nowhere/at/all.py", "does not exist"),
    ],
)
def test_a_first_line_that_makes_no_sense(line, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(launch.BadLaunchError, match=words):
        _magics.mxnet_ps(line, "print(1)\n", {})


def test_sockets_are_seen_where_they_are():
    with socket.create_server(("127.0.0.1", 0)), socket.create_server(("0.0.0.0", 0)):
        assert {"127.0.0.1", "0.0.0.0"} <= addresses(os.getpid(), listening=True)


@needs_mxnet
@pytest.mark.slow
def test_dist_sync_ends_in_the_weights_of_one_process_with_the_whole_batch():
    """And every process of the run had its sockets on loopback only."""
    results = launch.mxnet(SYNC, 2, 1, show=False, import_from=ROOT)
    assert [found["rank"] for found in results] == [0, 1]
    assert results[0]["weights"] == results[1]["weights"]
    assert results.output == "\n".join(f"[worker {k}] step {step}" for k in range(2) for step in (0, 10))
    from tests.ranks import ps_sync

    alone, trainer = ps_sync.trained("local", 0, 1)
    start = [parameter.data().asnumpy() for parameter in ps_sync.built().collect_params().values()]
    assert trainer._kvstore is None
    for whole, halves, before in zip(alone, results[0]["weights"], start, strict=True):
        np.testing.assert_allclose(halves, whole, rtol=0, atol=2e-6)
        assert np.abs(before - whole).max() > 0.05  # it has learnt something, so the weights could differ
    wrong, _ = ps_sync.trained("local", 0, 2)  # half of every batch: what a worker alone would have come to
    assert max(np.abs(one - other).max() for one, other in zip(wrong, alone, strict=True)) > 1e-3
    for found in results:
        assert found["every"].keys() == {"scheduler", "server0", "worker0", "worker1"}
        assert all(seen == ["127.0.0.1"] for seen in [*found["every"].values(), *found["listening"].values()])


@needs_mxnet
@pytest.mark.slow
def test_dist_async_updates_on_the_servers():
    results = launch.mxnet(SYNC, 2, 2, show=False, import_from=ROOT, values={"kind": "dist_async"})
    assert [(found["rank"], found["on_server"]) for found in results] == [(0, True), (1, True)]


CELL = """\
import time
import labkit as lab

mx = lab.mx.load()
kv = mx.kv.create("dist_sync")
kv.init("w", mx.nd.zeros(2))
for step in range(4):
    kv.push("w", mx.nd.ones(2) * (kv.rank + 1))
    out = mx.nd.zeros(2)
    kv.pull("w", out)
    print("step", step, out.asnumpy().tolist())
    time.sleep(0.5)
lab.report(rank=kv.rank, out=out, factor=lab.launch.value("factor"))
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    kernel = Kernel(tmp_path_factory.mktemp("notebook"))
    yield kernel
    kernel.close()


@needs_mxnet
@pytest.mark.slow
def test_a_cell_runs_live_and_in_order_and_hands_its_values_back(kernel):
    kernel.run("factor = 2")
    outcome = kernel.run(f"%%mxnet_ps -w 2 -s 1 --save train.py --set factor --into results\n{CELL}")
    assert outcome.status == "ok", outcome.traceback
    assert outcome.stdout == "".join(
        f"[worker {rank}] step {step} [3.0, 3.0]\n" for rank in range(2) for step in range(4)
    )
    assert [text for text in outcome.seen if "step 0" in text and "step 3" not in text]  # it was live
    assert outcome.shown == ""
    expected = [{"rank": rank, "out": [3.0, 3.0], "factor": 2} for rank in range(2)]
    assert kernel.run("print(results)").stdout.strip() == str(expected)
    assert kernel.run("print(open('train.py').readline())").stdout.split("\n")[0] == (
        "# python -m labkit.launch mxnet -w 2 -s 1 train.py"
    )
    assert not launched(kernel.mark)


@needs_mxnet
@pytest.mark.slow
def test_a_cell_may_be_expected_to_fail(kernel):
    outcome = kernel.run("%%mxnet_ps -w 2 --expect-fail --into went\nprint('before')\nraise ValueError('on purpose')\n")
    assert outcome.status == "ok"
    assert "Every worker failed at line 3: ValueError: on purpose" in outcome.stdout
    assert kernel.run("print(went.error.role, went.error.line)").stdout == "worker 3\n"
    assert not launched(kernel.mark)


def test_places_of_several_machines():
    roles = "worker, server,scheduler,worker"
    there = _mxnet_hosts.place(2, 1, here=roles, root="10.0.0.1:9091", address="10.0.0.1")
    assert [process.name for process in there.here] == ["scheduler", "worker0", "server0", "worker1"]
    assert there.root == ("10.0.0.1", 9091)
    for here, root, address in (
        ("worker", "10.0.0.1", "10.0.0.2"), ("boss", "10.0.0.1:9091", "10.0.0.1"), ("worker", "10.0.0.1:9091", ""),
        ("scheduler,scheduler", "10.0.0.1:9091", "10.0.0.1"), ("", "10.0.0.1:9091", "10.0.0.2"),
    ):  # fmt: skip
        with pytest.raises(launch.BadLaunchError, match="--here server,worker"):
            launch.mxnet(SYNC, here=here, root=root, address=address)


def test_news_from_the_schedulers_machine():
    """The launcher there answers with the reason, a scheduler (ZeroMQ) with bytes of its own, nobody not at all."""
    with listener(0, again=True) as probe:
        root = probe.getsockname()
    with pytest.raises(ConnectionRefusedError):
        _mxnet_hosts.asked(root)
    telling = threading.Thread(target=_mxnet_hosts.tell, args=(root, "সার্ভার 0 …"), kwargs={"seconds": 1.0})
    telling.start()
    news = ""
    while not news and telling.is_alive():
        try:
            news = _mxnet_hosts.asked(root)
        except ConnectionRefusedError:
            continue
    assert news == "সার্ভার 0 …"
    telling.join()
    with socket.create_server(root) as scheduler:
        answering = threading.Thread(target=lambda: scheduler.accept()[0].sendall(b"\xff\0\0\0\0\0\0\0\1\x7f"))
        answering.start()
        assert _mxnet_hosts.asked(root) == ""
        answering.join()
