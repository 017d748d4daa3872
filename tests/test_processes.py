"""Children that are started together end together, and none outlives its parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from labkit import _processes
from tests.processes import ROOT


def child(name: str, code: str) -> _processes.Child:
    return _processes.Child(name, [sys.executable, "-c", code], dict(os.environ))


def supervised(tmp_path, *children, **options) -> _processes.Ending:
    return _processes.supervise(children, folder=tmp_path, streams={}, **({"timeout_s": 30} | options))


def test_children_that_end_well(tmp_path):
    ending = supervised(tmp_path, child("a", "print('hello')"), child("b", ""))
    assert (ending.reason, ending.codes) == ("ended", {"a": 0, "b": 0})
    assert (tmp_path / "a.log").read_text() == "hello\n"


def test_one_failure_ends_the_others(tmp_path):
    ending = supervised(tmp_path, child("a", "import time; time.sleep(60)"), child("b", "raise SystemExit(3)"))
    assert ending.codes == {"a": None, "b": 3}
    assert ending.seconds < 20


def test_the_time_limit_and_the_watch(tmp_path):
    assert supervised(tmp_path, child("a", "import time; time.sleep(60)"), timeout_s=0.2).reason == "timeout"
    ending = supervised(tmp_path, child("a", "import time; time.sleep(60)"), watch=lambda seconds: "enough")
    assert (ending.reason, ending.codes) == ("enough", {"a": None})


def test_a_child_that_ignores_sigterm_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(_processes, "_ORDERLY_S", 0.3)
    code = "import signal as s, time\ns.signal(s.SIGTERM, s.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(60)"
    deaf = tmp_path / "a.log"
    ending = supervised(tmp_path, child("a", code), watch=lambda s: "enough" if "deaf" in deaf.read_text() else None)
    assert ending.seconds < 20


def test_an_interrupt_passes_on_when_all_have_ended(tmp_path):
    seen = []

    def interrupt(seconds):
        seen.append(seconds)
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        supervised(tmp_path, child("a", "import time; time.sleep(60)"), watch=interrupt)
    assert time.monotonic() - started < 20
    assert len(seen) == 1


def test_lines_reach_the_reader_whole(tmp_path):
    path = tmp_path / "out"
    tail = _processes.Tail(path)
    assert tail.lines() == []
    path.write_bytes(b"one\ntw")
    assert tail.lines() == ["one"]
    path.write_bytes("one\ntwo ক\nলাস্ট".encode())
    assert tail.lines() == ["two ক"]


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_a_child_dies_with_its_parent(system, tmp_path):
    """Also where the kernel does not promise it: a thread then watches."""
    guarded = (
        f"import sys; sys.platform = {system!r}; sys.path.insert(0, {str(ROOT)!r})\n"
        "import os, time\nfrom labkit import _guard\n_guard.end_with(os.getppid(), poll_s=0.1)\n"
        "print(os.getpid(), flush=True)\ntime.sleep(60)\n"
    )
    parent = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {guarded!r}], start_new_session=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    try:
        orphan = psutil.Process(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs([orphan], timeout=10)
    assert not alive
