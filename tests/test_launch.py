"""The launcher: what it refuses, what ranks find around them, what is shown, and programs that use it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import labkit as lab
from labkit import _launch_setup, _live_output, _magics, launch
from tests.processes import ROOT


@pytest.fixture(autouse=True)
def _english():
    lab.use_language("en")


def test_launching_needs_no_torch_in_the_notebook():
    code = "import sys, labkit.launch, labkit._magics; print(sorted({'torch', 'numpy', 'IPython'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


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


def test_ranks_leave_a_hidden_gpu_aside_too(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert launch.backend() == "nccl"
    monkeypatch.setenv("LABKIT_DEVICE", "cpu")
    assert launch.backend() == "gloo"
    assert launch.rank_device() == torch.device("cpu")


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


CLOSES_BADLY = """
import atexit, ctypes, os
import torch.distributed as dist
import labkit as lab
class Thread:  # what a native thread does that asks for the interpreter while it is taken apart
    def __del__(self, abort=os.abort):
        abort()
keep = Thread()
dist.init_process_group("gloo")
atexit.register(print, "the script's own last word")
ctypes.CDLL(None).printf(b"from C")
lab.report(rank=dist.get_rank())
"""


@pytest.mark.slow
def test_a_rank_that_did_its_work_does_not_crash_while_closing(tmp_path):
    script = tmp_path / "closes.py"
    script.write_text(CLOSES_BADLY + "dist.destroy_process_group()\n")
    found = launch.torchrun(script, 2, show=False)
    assert [r["rank"] for r in found] == [0, 1]
    assert found.output.count("the script's own last word") == found.output.count("from C") == 2
    script.write_text(CLOSES_BADLY)  # not closed: it ends as in plain Python, and the advice is right
    with pytest.raises(launch.RankError, match="crashed while closing") as caught:
        launch.torchrun(script, 2, show=False)
    assert "dist.destroy_process_group()" in str(caught.value)


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


SURROUNDINGS = """
import os, sys
import labkit as lab
import torch.distributed as dist
dist.init_process_group("gloo")
kept = {name: os.environ[name] for name in sorted(os.environ) if name not in ("LABKIT_RUN_FOLDER", "LABKIT_RUN_PARENT")}
main = {"file": __file__, "argv": sys.argv, "path": sys.path[0], "name": __name__, "group": os.getpgrp() == os.getpid()}
lab.report(environment=kept, store=type(dist.distributed_c10d._get_default_store()).__name__, **main)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_ranks_find_what_torchruns_agent_gives_them(tmp_path):
    """Started from here or by torchrun's own agent, a rank cannot tell the difference, but for what differs by run."""
    script = tmp_path / "job.py"
    script.write_text(SURROUNDINGS)
    both = [launch.torchrun(script, 2, arguments=["a", "b"], max_restarts=most, show=False) for most in (0, 1)]
    for number, (ours, theirs) in enumerate(zip(*both, strict=True)):
        mine, agents = ours.pop("environment"), theirs.pop("environment")
        assert ours == theirs
        assert mine.pop("TORCHELASTIC_MAX_RESTARTS") == "0"
        assert agents.pop("TORCHELASTIC_MAX_RESTARTS") == "1"
        assert mine.pop("RANK") == agents.pop("RANK") == str(number)
        agents.pop("TORCHELASTIC_SIGNALS_TO_HANDLE")  # the agent's own
        agents.pop("TORCHELASTIC_ERROR_FILE")  # for a decorator by which torchrun hears of errors; there are notes here
        assert mine.pop("MASTER_PORT") != agents.pop("MASTER_PORT")
        assert mine == agents


@pytest.mark.slow
def test_no_folder_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    script = tmp_path / "job.py"
    script.write_text("print('hello')\n")
    launch.torchrun(script, 1, show=False)
    assert [path.name for path in tmp_path.iterdir()] == ["job.py"]
