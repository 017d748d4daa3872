"""The launcher without faults: what is refused before a start, what travels, and the magic in a real kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import labkit as lab
from labkit import _cell_script, _launch_setup, _live_output, _magics, _processes, _rank_errors, _report, launch
from tests.processes import ROOT, Kernel, launched

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


@pytest.fixture(autouse=True)
def _english():
    lab.use_language("en")


# --- before anything starts ---------------------------------------------------------------------------------------


def test_launching_needs_no_torch_in_the_notebook():
    code = "import sys, labkit.launch, labkit._magics; print(sorted({'torch', 'numpy', 'IPython'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("source", ["", "\n\n", "# only a comment\n\n   # and another\n"])
def test_an_empty_cell_is_refused(source):
    with pytest.raises(launch.BadLaunchError, match="nothing to run"):
        _cell_script.check_source(source)


def test_a_syntax_error_names_the_cells_own_line():
    with pytest.raises(launch.BadLaunchError, match="Line 3 is not valid Python") as caught:
        _cell_script.check_source("# torchrun …\nimport os\nprint('a'\n")
    assert "print('a'" in str(caught.value)


def test_shell_and_magic_lines_are_explained():
    with pytest.raises(launch.BadLaunchError, match="! and % commands"):
        _cell_script.check_source("# torchrun …\nimport os\n!ls\n")


def names_refused(source: str, namespace: dict) -> str:
    try:
        _cell_script.check_names(source, _cell_script.check_source(source), namespace)
    except launch.BadLaunchError as error:
        return str(error)
    return ""


def test_a_notebook_variable_is_refused_with_the_way_to_pass_it():
    text = names_refused("# line 1\nimport os\nstep = 1\nprint(learning_rate * step)\n", {"learning_rate": 0.1})
    assert "Line 4 uses learning_rate" in text
    assert "--set learning_rate" in text
    assert "lab.launch.value('learning_rate')" in text


@pytest.mark.parametrize(
    ("source", "namespace", "advice"),
    [
        ("x = np.zeros(3)\n", {"np": json}, "import json as np"),
        ("x = json.dumps(3)\n", {"json": json}, "import json"),
        ("x = path.join('a')\n", {"path": os.path}, "posixpath"),
        ("train()\n", {"train": names_refused}, "Define train in the cell"),
        ("def f():\n    return Net()\n", {"Net": Path}, "Define Net in the cell"),
        ("display(3)\n", {}, "belongs to the notebook"),
    ],
)
def test_other_notebook_names(source, namespace, advice):
    assert advice in names_refused(source, namespace)


@pytest.mark.parametrize(
    "source",
    [
        "x = 1\nprint(x, len([x]), __name__, __file__)\n",
        "def f(x, *x2, **x3):\n    return [x for x in x2]\n\nprint(f)\n",
        "from os.path import *\nprint(x)\n",
        "def f():\n    global x\n    x = 2\n\nf()\nprint(x)\n",
        "for x in range(3):\n    pass\nwith open('f') as x2:\n    print(x, x2)\n",
        "class A:\n    x = 1\n    y = x\n",
        "if (x := 3) > 2:\n    print(f'{x}')\ntry:\n    pass\nexcept ValueError as x2:\n    print(x2)\n",
        "import x.y\nimport os as x2\nprint(x, x2, lambda x3: x3)\n",
        "match 3:\n    case x:\n        print(x)\n",
        "print(unknown_everywhere)\n",
    ],
)
def test_a_cell_that_defines_its_names_is_not_refused(source):
    assert names_refused(source, {"x": 1, "x2": 2, "x3": 3, "y": 4}) == ""


@pytest.mark.parametrize("number", [0, -1, 2.5, True, "2"])
def test_impossible_numbers_of_ranks(number):
    with pytest.raises(launch.BadLaunchError, match="whole number"):
        _launch_setup.check_number(number)


def test_more_ranks_than_sense(monkeypatch):
    monkeypatch.setattr(_launch_setup, "cores", lambda: 2)
    _launch_setup.check_number(8)
    with pytest.raises(launch.BadLaunchError, match="2 cores.*at most 8"):
        _launch_setup.check_number(9)


def test_bad_use_is_said_in_bengali_too():
    lab.use_language("bn")
    with pytest.raises(ValueError, match="র‍্যাঙ্ক"):
        _launch_setup.check_number(0)


def test_a_missing_file():
    with pytest.raises(launch.BadLaunchError, match=r"no file nowhere\.py"):
        launch.torchrun("nowhere.py")


def test_errors_show_themselves_without_a_traceback():
    error = launch.RankError("first\nsecond", rank=1, line=3)
    assert error._render_traceback_() == ["first", "second"]
    assert (error.rank, error.line, error.kind) == (1, 3, "raised")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-n two", "invalid int value"),
        ("--nprocs 2", "unrecognized arguments"),
        ("-n 'two", "No closing quotation"),
        ("-n 2 --save", "expected one argument"),
        ("-n 2 --set 3=4", "neither"),
        ("-n 2 --set gone", "NameError"),
        ("-n 2 --set word=hello", "Text needs quotes"),
        ("-n 2 --save nowhere/at/all.py", "does not exist"),
    ],
)
def test_a_first_line_that_makes_no_sense(line, words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(launch.BadLaunchError, match=words):
        _magics.torchrun(line, "print(1)\n", {})


def test_values_are_evaluated_in_the_notebook():
    assert _magics._handed_over("lr", {"lr": 0.5}) == ("lr", 0.5)
    assert _magics._handed_over("lr=2*rate", {"rate": 0.5}) == ("lr", 1.0)


# --- surroundings of a rank ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cores", "ranks", "told", "threads"), [(8, 2, "", "4"), (2, 4, "", "1"), (8, 2, "1", "1"),
                                                                 (8, 2, "64", "4"), (8, 2, "junk", "4")])
def test_ranks_share_the_cores(cores, ranks, told, threads, monkeypatch, tmp_path):
    monkeypatch.setattr(_launch_setup, "cores", lambda: cores)
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    assert _launch_setup.environment(ranks, tmp_path)["OMP_NUM_THREADS"] == threads


def test_ranks_speak_the_notebooks_language(tmp_path):
    lab.use_language("bn")
    assert _launch_setup.environment(2, tmp_path)["LABKIT_LANG"] == "bn"


@pytest.mark.parametrize(("gpus", "ranks", "forced", "backend"), [(0, 2, "", "gloo"), (2, 2, "", "nccl"),
                                                                  (1, 2, "", "gloo"), (2, 2, "gloo", "gloo")])
def test_the_backend_follows_the_gpus(gpus, ranks, forced, backend, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    monkeypatch.setenv("LABKIT_BACKEND", forced)
    assert launch.backend() == backend
    if backend == "gloo":
        assert launch.rank_device() == torch.device("cpu")


# --- values -------------------------------------------------------------------------------------------------------


def test_what_travels():
    np, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    sent = {
        "none": None, "yes": True, "whole": 3, "text": "ক্ষ", "pair": (1, [2.5]), "deep": {"a": {"b": torch.tensor(2)}},
        "loss": torch.tensor(0.5, requires_grad=True), "half": torch.ones(2, dtype=torch.bfloat16),
        "row": np.arange(3), "number": np.float32(1.5), "wide": np.float64(2.5), "flag": np.bool_(True),
    }  # fmt: skip
    plain = {name: _report.plain(value, name) for name, value in sent.items()}
    assert json.loads(json.dumps(plain)) == {
        "none": None, "yes": True, "whole": 3, "text": "ক্ষ", "pair": [1, [2.5]], "deep": {"a": {"b": 2}},
        "loss": 0.5, "half": [1.0, 1.0], "row": [0, 1, 2], "number": 1.5, "wide": 2.5, "flag": True,
    }  # fmt: skip


def test_what_does_not_travel():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"net is a Linear.*torch\.save"):
        _report.plain(torch.nn.Linear(1, 1), "net")
    with pytest.raises(TypeError, match="found is a set"):
        _report.plain({"deep": [{1, 2}]}["deep"][0], "found")
    with pytest.raises(TypeError, match="keys that are not text"):
        _report.plain({1: 2}, "counts")
    with pytest.raises(ValueError, match="x has 1000001 numbers"):
        _report.plain(torch.zeros(1_000_001), "x")


def test_outside_a_launch_a_report_is_printed(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    lab.report(loss=0.5)
    assert capsys.readouterr().out == "rank 3 reports {'loss': 0.5}\n"
    assert launch.value("lr", 0.1) == 0.1
    with pytest.raises(KeyError, match="--set lr"):
        launch.value("lr")


# --- what is shown ------------------------------------------------------------------------------------------------


def test_output_is_ordered_by_rank_and_shortened():
    text = _live_output.ordered([("rank 0", "a\nb\n"), ("rank 1", "\n".join("x" * 1200))])
    assert text.startswith("[rank 0] a\n[rank 0] b\n[rank 1] x\n")
    assert text.endswith("[rank 1] … 200 more lines: print(lab.launch.log()) shows them")


def test_in_a_plain_program_lines_are_printed_as_they_come(capsys):
    live = _live_output.LiveOutput()
    live.add("rank 1", "first")
    live.add("rank 0", "second")
    live.finish("not again")
    assert capsys.readouterr().out == "[rank 1] first\n[rank 0] second\n"


# --- the root cause -----------------------------------------------------------------------------------------------


def raised(index: int, kind: str, message: str, time_s: float, line: int = 5) -> _rank_errors.Notes:
    state = {"kind": "raised", "type": kind, "message": message, "time": time_s, "frames": [[line, "<module>", "f()"]]}
    return _rank_errors.Notes(f"Rank {index}", index, state)


def explained(*notes, reason="ended", problem=None) -> Exception:
    return _rank_errors.explain(reason, notes, seconds=8, source=["# torchrun", "a", "b"], problem=problem or {})


ECHO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:38211"


def test_an_echo_is_not_the_cause_even_when_it_came_first():
    error = explained(raised(0, "RuntimeError", ECHO, 1.0), raised(1, "ValueError", "loss is NaN", 2.0, line=9))
    assert (error.rank, error.line) == (1, 9)
    assert str(error).splitlines()[0] == "Rank 1 failed at line 9: ValueError: loss is NaN"


def test_of_two_causes_the_first_one_counts():
    error = explained(raised(0, "KeyError", "'b'", 2.0, line=7), raised(1, "ValueError", "a", 1.0))
    assert error.rank == 1


def test_the_same_error_everywhere_is_said_of_all():
    error = explained(raised(0, "ValueError", "a", 2.0), raised(1, "ValueError", "a", 1.0))
    assert str(error).startswith("Every rank failed at line 5: ValueError: a")
    assert "have been stopped" not in str(error)


def test_a_killed_rank_is_the_cause_of_a_strange_runtime_error():
    killed = _rank_errors.Notes("Rank 1", 1, code=-9)
    error = explained(raised(0, "RuntimeError", "words nobody knows", 1.0), killed)
    assert (error.rank, error.kind) == (1, "crashed")
    assert explained(raised(0, "ValueError", "real", 1.0), killed).rank == 0


def test_a_rank_that_left_early():
    left = _rank_errors.Notes("Rank 1", 1, {"kind": "finished", "frames": [[8, "<module>", "sys.exit(0)"]], "time": 1})
    error = explained(raised(0, "RuntimeError", ECHO, 2.0), left)
    assert (error.rank, error.line, error.kind) == (1, 8, "left")
    assert "127.0.0.1" not in str(error)


def test_a_rank_that_vanished():
    error = explained(raised(0, "RuntimeError", ECHO, 2.0), _rank_errors.Notes("Rank 1", 1))
    assert error.kind == "lost"


def test_a_crash_after_the_end_asks_for_a_barrier():
    aborted = _rank_errors.Notes("Rank 0", 0, {"kind": "finished", "frames": [], "time": 1}, code=-6)
    assert "dist.barrier(); dist.destroy_process_group()" in str(explained(aborted))


def test_a_stall_says_where_each_rank_waits():
    where = [{"line": 2, "call": "all_reduce", "waits": True}, {"line": 3, "call": "barrier", "waits": True}]
    notes = [_rank_errors.Notes(f"Rank {i}", i, where=place) for i, place in enumerate(where)]
    error = explained(*notes, reason="stalled")
    assert isinstance(error, TimeoutError)
    assert "Rank 0 waits at line 2 in all_reduce" in str(error)
    assert "same order" in str(error)


def test_a_taken_port():
    assert "Port 29500" in str(explained(problem={"port": 29500}))


def test_a_long_message_is_cut_and_freed_of_torchs_own_places():
    error = explained(raised(0, "RuntimeError", "[enforce fail at a/b.cc:12] one\ntwo\nthree\nfour", 1.0))
    assert "one\ntwo\nthree" in str(error)
    assert "four" not in str(error)
    assert ".cc" not in str(error)


@pytest.mark.parametrize(
    ("kind", "message", "words"),
    [
        ("OSError", "[Errno 28] No space left on device", "no space"),
        ("DistNetworkError", "EADDRINUSE", "free port"),
        ("NameError", "name 'x' is not defined", "only this cell"),
        ("RuntimeError", "op.preamble.length <= op.nbytes. 16 vs 12", "different sizes"),
        ("SIGKILL", "", "memory"),
        ("ValueError", "my own", ""),
    ],
)
def test_hints(kind, message, words):
    from labkit._rank_hints import hint_for

    assert words in hint_for(kind, message)
    assert bool(words) == bool(hint_for(kind, message))


# --- processes ----------------------------------------------------------------------------------------------------


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
    import psutil

    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    try:
        orphan = psutil.Process(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs([orphan], timeout=10)
    assert not alive


# --- real launches ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    kernel = Kernel(tmp_path_factory.mktemp("notebook"))
    yield kernel
    kernel.close()


@pytest.mark.slow
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


@pytest.mark.slow
def test_without_a_name_the_values_are_the_cells_result(kernel):
    outcome = kernel.run("%%torchrun -n 2\nimport labkit as lab, os\nlab.report(rank=int(os.environ['RANK']))\n")
    assert outcome.result == "[{'rank': 0}, {'rank': 1}]"
    assert kernel.run("print(_)").stdout == "[{'rank': 0}, {'rank': 1}]\n"
    assert kernel.run("%%torchrun -n 2\nprint('only this')\n").result == ""


@pytest.mark.slow
def test_values_from_the_notebook_reach_the_ranks(kernel):
    kernel.run("lr, names = 0.5, ['ঢাকা', 'খুলনা']")
    cell = (
        "import sys\nimport labkit as lab\n"
        "print(lab.launch.value('lr'), lab.launch.value('names'), lab.launch.value('steps'), sys.argv[1:])\n"
    )
    outcome = kernel.run(f"%%torchrun -n 1 --set lr=2*lr --set names --set steps=20 --args --fast 3\n{cell}")
    assert outcome.stdout == "[rank 0] 1.0 ['ঢাকা', 'খুলনা'] 20 ['--fast', '3']\n"


@pytest.mark.slow
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


@pytest.mark.slow
def test_output_is_live(kernel):
    cell = "import time\nfor i in range(8):\n    print('tick', i)\n    time.sleep(0.5)\n"
    outcome = kernel.run(f"%%torchrun -n 1\n{cell}")
    partly = [text for text in outcome.seen if "tick 0" in text and "tick 7" not in text]
    assert partly
    assert outcome.stdout.count("tick") == 8


@pytest.mark.slow
def test_warnings_go_to_the_log(kernel):
    cell = "import sys, warnings\nwarnings.warn('careful now')\nprint('kept')\n"
    outcome = kernel.run(f"%%torchrun -n 1\n{cell}")
    assert outcome.stdout == "[rank 0] kept\n"
    assert "careful now" in kernel.run("print(lab.launch.log())").stdout


@pytest.mark.slow
def test_every_socket_listens_on_loopback_only(kernel):
    """Of the agent and the ranks: torch's store, gloo's listeners, everything."""
    import psutil

    cell = REPORTING.replace("dist.barrier()", "print('ready')\nimport time\ntime.sleep(6)\ndist.barrier()")
    waiting = kernel.send(f"%%torchrun -n 2\n{cell}")
    kernel.wait_for_ranks(2)
    sockets = [s for process in launched(kernel.mark) for s in process.net_connections() if s.laddr]
    listening = [s for s in sockets if s.status == psutil.CONN_LISTEN]
    assert listening
    addresses = {s.laddr.ip.removeprefix("::ffff:") for s in sockets}
    assert addresses == {"127.0.0.1"}
    assert kernel.finish(waiting).status == "ok"


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_cell_may_be_expected_to_fail(kernel):
    outcome = kernel.run("%%torchrun -n 2 --expect-fail --into went\nprint('before')\nraise ValueError('on purpose')\n")
    assert outcome.status == "ok"
    assert "Every rank failed at line 3: ValueError: on purpose" in outcome.stdout
    assert outcome.stdout.index("[rank 1] before") < outcome.stdout.index("Every rank")
    assert kernel.run("print(went.error.line)").stdout == "3\n"
    outcome = kernel.run("%%torchrun -n 2 --expect-fail\nprint('all well')\n")
    assert outcome.status == "error"
    assert "every rank ended well" in "\n".join(outcome.traceback)


@pytest.mark.slow
def test_from_a_plain_program(tmp_path):
    (tmp_path / "neighbour.py").write_text("WORD = 'imported'\n")
    (tmp_path / "job.py").write_text("import labkit as lab, neighbour\nlab.report(word=neighbour.WORD)\nprint('hi')\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import labkit\nprint(labkit.launch.torchrun('job.py', nproc=2))\n", encoding="utf-8"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=120)  # fmt: skip
    *live, result = done.stdout.splitlines()
    assert sorted(live) == ["[rank 0] hi", "[rank 1] hi"]
    assert result == "[{'word': 'imported'}, {'word': 'imported'}]"
    assert done.stderr == ""


@pytest.mark.slow
def test_ranks_start_again_after_a_failure(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(
        "import os\nimport torch.distributed as dist\nimport labkit as lab\n"
        "dist.init_process_group('gloo')\n"
        "tries = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "if tries == 0 and dist.get_rank() == 1:\n    raise RuntimeError('first try')\n"
        "dist.barrier()\nlab.report(tries=tries)\ndist.barrier()\ndist.destroy_process_group()\n"
    )
    assert launch.torchrun(script, 2, max_restarts=1, show=False) == [{"tries": 1}, {"tries": 1}]


@pytest.mark.slow
def test_no_folder_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    script = tmp_path / "job.py"
    script.write_text("print('hello')\n")
    launch.torchrun(script, 1, show=False)
    assert [path.name for path in tmp_path.iterdir()] == ["job.py"]
