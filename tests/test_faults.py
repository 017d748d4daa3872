"""The faults of tests/faults.py that no other file makes happen, each for real, in Bengali and in English."""

from __future__ import annotations

import ast
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

import labkit as lab
from labkit import _callables, _machine, _probes, _statistics, _turns, launch
from labkit.language import speaking
from setup_env import words
from tests import faults
from tests.processes import ROOT, Kernel, left_after
from tests.test_timing import FakeClock

BOTH = pytest.mark.parametrize("language", ["bn", "en"])


def said(text: str, language: str, **values) -> str:
    """A message of the catalogue by its first English words, in one language and filled in: what a test looks for."""
    [message] = {m for m in messages() if m.startswith(text)}
    return (messages()[message] if language == "bn" else message).format(**values)


def messages() -> dict[str, str]:
    from labkit.language import _bengali

    return _bengali()


def python(code: str, *, executable: str = sys.executable, prefix=(), **environment) -> subprocess.CompletedProcess:
    """Run ``code`` as a script would be; its environment is this one's and ``environment``."""
    command = [*prefix, executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240,
                          env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **environment})  # fmt: skip


@contextlib.contextmanager
def file_system(folder: Path, options: str):
    """A real one, mounted on ``folder``."""
    folder.mkdir(exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("no small file system (mounting is not allowed here)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def read_only(tmp_path):
    with file_system(tmp_path / "read-only", "ro,size=1m") as folder:
        yield folder


@pytest.fixture
def full(tmp_path):
    """A disk on which nothing more can be written."""
    with file_system(tmp_path / "full", "size=64k") as folder:
        yield folder


def fill(folder: Path) -> None:
    with (folder / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 1024)
    with pytest.raises(OSError, match="No space left"):
        (folder / "more").write_text("x")
    (folder / "more").unlink()


# ---- the table -------------------------------------------------------------------------------------------------------


def functions_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}  # fmt: skip


def lost(table) -> list[str]:
    """Tests that the table names and that are not there."""
    ids = [name for row in table for name in row.tests]
    return [name for name in ids if not (ROOT / name.split("::")[0]).exists()
            or name.split("::")[1] not in functions_in(ROOT / name.split("::")[0])]  # fmt: skip


def unsaid(table) -> list[str]:
    """Messages that the table names and that are not said in both languages."""
    both = [english for _bengali, english in words.MESSAGES.values()]
    known = [m for m, bengali in messages().items() if bengali and bengali != m] + both
    return [text for row in table for text in row.sees if not any(m.startswith(text) for m in known)]


def test_every_row_has_its_tests_and_its_messages_in_both_languages():
    assert lost(faults.TABLE) == []
    assert unsaid(faults.TABLE) == []
    assert all(row.sees and row.tests for row in faults.TABLE)
    assert len({row.fault for row in faults.TABLE}) == len(faults.TABLE) == 16


def test_a_row_that_points_nowhere_would_be_noticed():
    row = faults.Row("x", ("No such message",), (faults.HERE + "test_no_such_test", "tests/no_such_file.py::test_x"))
    assert lost([row]) == list(row.tests)
    assert unsaid([row]) == ["No such message"]


def test_every_test_here_stands_in_the_table():
    about_the_table = {"test_every_row_has_its_tests_and_its_messages_in_both_languages",
                       "test_a_row_that_points_nowhere_would_be_noticed",
                       "test_every_test_here_stands_in_the_table"}  # fmt: skip
    named = {name.removeprefix(faults.HERE) for row in faults.TABLE for name in row.tests}
    assert functions_in(Path(__file__)) - about_the_table <= named


# ---- no compiler -----------------------------------------------------------------------------------------------------

NO_COMPILER = ("torch.compile needs a C++ compiler here, and none works. lab.machine() says what is missing and how to "
               "get it; then restart the kernel")  # fmt: skip
COMPILES = """
import torch, labkit as lab
f = lambda x: torch.relu(x * 2 + 1)
for language in ("bn", "en"):
    with lab.language.speaking(language):
        try:
            lab.compare({"eager": f, "compiled": torch.compile(f)}, torch.ones(99), budget_s=0.1)
        except RuntimeError as error:
            print(error)
"""


@pytest.mark.slow
def test_no_compiler_on_the_path(tmp_path):
    done = python(COMPILES, PATH=str(tmp_path), CXX="", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"))
    wanted = [said(NO_COMPILER, language) for language in ("bn", "en")]
    assert done.stdout.splitlines() == wanted, done.stderr


# ---- folders and disks -----------------------------------------------------------------------------------------------

AT_HOME = """
import labkit as lab
lab.use_language("en")
import torch
from labkit import _machine, plots
from labkit.lessons import l03
source = "#include <cstdint>\\nextern \\"C\\" void twice(const float* in, float* out, int64_t n) "
source += "{ for (int64_t i = 0; i < n; i++) out[i] = 2 * in[i]; }"
print(l03.cpp_function("twice", source, otherwise=lambda x, out: None)(torch.ones(2), torch.empty(2)).tolist())
print(str(plots.samples(lab.measure(sum, [1, 2], budget_s=0.02))) != "")
for language in ("bn", "en"):
    with lab.language.speaking(language):
        print(_machine._folder("folder").text)
"""


@pytest.mark.slow
def test_a_read_only_home(read_only, tmp_path):
    (tmp_path / "tmp").mkdir()
    (tmp_path / "work").mkdir()
    change = f"import os; os.chdir({str(tmp_path / 'work')!r})\n"
    done = python(change + AT_HOME, HOME=str(read_only), TMPDIR=str(tmp_path / "tmp"), MPLBACKEND="agg")
    text = [said("your home folder cannot be written to", language) for language in ("bn", "en")]
    assert done.stdout.splitlines() == ["[2.0, 2.0]", "True", *text], done.stderr
    assert done.stderr == ""
    assert list(read_only.iterdir()) == []
    mode = next((tmp_path / "tmp").glob("labkit-*/")).stat().st_mode
    assert mode & 0o077 == 0  # a folder with compiled code in it is nobody else's to write to


@BOTH
def test_a_folder_that_cannot_be_written_to(read_only, language, monkeypatch):
    monkeypatch.chdir(read_only)
    why = said("this folder cannot be written to. Copy", language)
    with speaking(language):
        assert said("this folder cannot be written to: results", language) in str(_machine._folder("folder").text)
        timing_lab = measured_lab()
        assert saved_by_button(timing_lab) == said("The file could not be written", language, error=why)
        with pytest.raises(launch.LaunchError) as caught:
            launch_cell("-n 1 --save job.py", "print(1)\n")
        assert str(caught.value) == said("The cell could not be saved as", language, name="job.py", error=why)
    assert timing_lab.result is not None  # what was measured is still there


@BOTH
def test_a_full_disk_keeps_what_was_there(full, language, monkeypatch):
    monkeypatch.chdir(full)
    (full / "job.py").write_text("print('as before')\n")
    fill(full)
    why = said("the disk is full", language)
    with speaking(language):
        assert saved_by_button(measured_lab()) == said("The file could not be written", language, error=why)
        with pytest.raises(launch.LaunchError) as caught:
            launch_cell("-n 1 --save job.py", "print('new')\n" + "# a long cell\n" * 2000)
        assert str(caught.value) == said("The cell could not be saved as", language, name="job.py", error=why)
    assert (full / "job.py").read_text() == "print('as before')\n"
    assert sorted(path.name for path in full.rglob("*") if path.is_file()) == ["ballast", "job.py"]


def measured_lab():
    from tests.test_widgets import SquareLab

    made = SquareLab()
    made.run()
    return made


def saved_by_button(made) -> str:
    """What the panel says after Save was pressed."""
    import html
    import re

    from labkit._lab_panel import Panel

    panel = Panel(made)
    panel.save.click()
    return html.unescape(re.sub(r"<[^>]*>", "", panel.status.value)).strip("✓✗○ ").strip()


def launch_cell(line: str, cell: str):
    from labkit import _magics

    return _magics.torchrun(line, cell, {})


@pytest.mark.slow
@BOTH
def test_a_launch_with_no_room_for_its_files(full, language, monkeypatch, tmp_path):
    """The folder for temporary files is on a full disk, and there is no other."""
    fill(full)
    script = tmp_path / "job.py"
    script.write_text("print(1)\n")
    mark = f"faults-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("LABKIT_TEST", mark)
    monkeypatch.setattr("tempfile.tempdir", str(full))
    with speaking(language), pytest.raises(launch.LaunchError) as caught:
        launch.torchrun(script, 1, show=False)
    assert str(caught.value) == said("Nothing was started: ranks", language, error=said("the disk is full", language))
    assert left_after(0, mark) == []
    assert [path.name for path in full.iterdir()] == ["ballast"]


# ---- fonts, extras ---------------------------------------------------------------------------------------------------


def site_without(folder: Path, *names: str) -> str:
    """A Python whose packages are this one's except ``names``, and labkit without its fonts."""
    made = folder / "site"
    made.mkdir()
    for entry in Path(psutil.__file__).parent.parent.iterdir():
        if not entry.name.lower().startswith((*names, "__editable__", "_labkit", "labkit")):
            (made / entry.name).symlink_to(entry)
    return str(made)


def without(folder: Path, *names: str, code: str) -> subprocess.CompletedProcess:
    """Run ``code`` with no site-packages but the ones that are left: ``-S``, so that no .pth file brings others."""
    paths = os.pathsep.join([str(ROOT), site_without(folder, *names)])
    command = [sys.executable, "-S", "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=folder,
                          env={**os.environ, "PYTHONPATH": paths, "PYTHONUTF8": "1"})  # fmt: skip


FONTLESS = """
import labkit as lab
from labkit import _machine, plots
for language in ("bn", "en"):
    with lab.language.speaking(language):
        print(_machine._bengali("bengali").text)
        print(plots.samples(lab.measure(sum, [1, 2], budget_s=0.02)).axes[0].get_ylabel()[:4])
"""


@pytest.mark.slow
def test_fonts_that_are_gone(tmp_path):
    import shutil

    shutil.copytree(ROOT / "labkit", tmp_path / "labkit", ignore=shutil.ignore_patterns("fonts", "__pycache__"))
    done = python(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{FONTLESS}", PYTHONPATH=str(tmp_path))
    wanted = [line for language in ("bn", "en")
              for line in (said("not possible here: figures are in English", language), "time")]  # fmt: skip
    assert done.stdout.splitlines() == wanted, done.stderr


EXTRAS = """
import labkit as lab
from labkit import classroom
for language in ("bn", "en"):
    print(classroom.main(["board", ".", "--lang", language]))
    with lab.language.speaking(language):
        try:
            lab.mx.load()
        except ImportError as error:
            print(str(error).splitlines()[0])
"""


@pytest.mark.slow
def test_a_missing_extra(tmp_path):
    done = without(tmp_path, "nbgrader", "mxnet", code=EXTRAS)
    printed = done.stdout.splitlines()
    assert printed[::2] == ["1", "1"], done.stderr
    for line, language in zip(printed[1::2], ("bn", "en"), strict=True):
        assert line.startswith(said("MXNet is not installed here", language, command="~").partition("~")[0])
    assert done.stderr.splitlines() == [said("nbgrader is missing", language) for language in ("bn", "en")]


# ---- the kernel ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@BOTH
def test_a_cell_after_a_restart(tmp_path, language):
    kernel = Kernel(tmp_path, language)
    try:
        assert kernel.run("x = 21").status == "ok"
        assert kernel.run("print(2 * x)").stdout == "42\n"
        kernel.manager.restart_kernel(now=True)
        kernel.client.wait_for_ready(timeout=60)
        kernel.run(f"import labkit as lab; lab.use_language({language!r}); lab.use_language({language!r})")
        outcome = kernel.run("print(2 * x)")
        assert (outcome.status, outcome.error) == ("error", "NameError")
        assert outcome.stdout == said("This kernel does not know", language, name="x") + "\n"  # once, not twice
        assert kernel.run("x = 21; print(2 * x)").stdout == "42\n"
        assert left_after(5, kernel.mark) == []
    finally:
        kernel.close()


@pytest.mark.slow
def test_other_errors_get_no_advice_about_order(tmp_path):
    kernel = Kernel(tmp_path)
    try:
        for code in ("1 / 0", "lab.no_such_name", "def f():\n    y = y + 1\nf()"):
            outcome = kernel.run(code)
            assert (outcome.status, outcome.stdout) == ("error", "")
    finally:
        kernel.close()


# ---- two notebooks ---------------------------------------------------------------------------------------------------

MEASURES = """
import sys, time
import labkit as lab
from labkit import _turns
_turns.WAIT_S = 60
print("ready", flush=True)
sys.stdin.readline()
times = []
def work():
    times.append(time.monotonic())
    time.sleep(0.02)
for _ in range(3):
    m = lab.measure(work, budget_s=0.3)
    print(times[0], times[-1], *m.noted)
    times.clear()
"""


def notebooks(folder: Path, count: int, code: str = MEASURES) -> list[subprocess.Popen]:
    """Processes that measure as soon as they get a line; their turns are among themselves."""
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    started = [subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True) for _ in range(count)]  # fmt: skip
    for one in started:
        assert one.stdout.readline() == "ready\n"
    return started


@pytest.mark.slow
def test_two_notebooks_take_turns(tmp_path):
    started = notebooks(tmp_path, 2)
    for one in started:
        one.stdin.write("\n")
        one.stdin.flush()
    spans = []
    for one in started:
        printed, _ = one.communicate(timeout=60)
        spans += [tuple(map(float, line.split())) for line in printed.splitlines()]  # a note would be no number
    assert len(spans) == 6
    spans.sort()
    # The first call is not timed but lies inside the turn too.
    assert all(end <= begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False))


@BOTH
def test_a_turn_that_never_comes_is_noted(tmp_path, monkeypatch, language):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(_turns, "WAIT_S", 0.2)
    [other] = notebooks(tmp_path, 1, "import sys\nfrom labkit import _turns\nwith _turns.turn():\n"
                                     "    print('ready', flush=True)\n    sys.stdin.readline()\n")  # fmt: skip
    try:
        with speaking(language):
            text = said("Another notebook measured on this machine", language)
            alone = lab.compare({"eager": lambda: time.sleep(0.001), "same": lambda: time.sleep(0.001)}, budget_s=0.05)
            assert text in lab.measure(time.sleep, 0.001, budget_s=0.05).warnings
            assert text in str(alone)
            other.send_signal(signal.SIGKILL)  # whoever dies has given back its turn
            other.wait()
            assert text not in str(lab.measure(time.sleep, 0.001, budget_s=0.05))
    finally:
        other.kill()
        other.wait()
    assert [path.name for path in tmp_path.iterdir()] == [f"labkit-{os.getuid()}.measuring"]


@BOTH
def test_a_lab_says_that_another_notebook_measures(tmp_path, monkeypatch, language):
    from tests.test_widgets import SquareLab

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    [other] = notebooks(tmp_path, 1, "import sys\nfrom labkit import _turns\nwith _turns.turn():\n"
                                     "    print('ready', flush=True)\n    sys.stdin.readline()\n")  # fmt: skip
    try:
        with speaking(language):
            heard, made = [], SquareLab()
            made.watch(lambda it: heard.append((it.state, it.said)))
            made.start()
            until = time.monotonic() + 5
            waiting = ("waiting", said("Waiting, half a minute at most: another note", language))
            while waiting not in heard and time.monotonic() < until:
                time.sleep(0.02)
            assert waiting in heard
            made.stop()
            assert made.wait(2) == "stopped"
            made.start()
            time.sleep(0.2)
            assert made.state == "waiting"
            other.communicate("\n", timeout=10)
            assert made.wait(10) == "done"
    finally:
        other.kill()
        other.wait()


# ---- memory ----------------------------------------------------------------------------------------------------------


@BOTH
def test_main_memory_runs_out(language):
    torch = pytest.importorskip("torch")
    with speaking(language):
        for fn in (lambda: torch.empty(2**50), lambda: bytearray(2**50)):
            with pytest.raises(RuntimeError) as caught:
                lab.measure(fn, name="f")
            assert str(caught.value) == said("The memory ran out in", language, name="`f`")
        assert lab.measure(lambda: torch.empty(2), budget_s=0.01).n  # and goes on


@pytest.mark.slow
@BOTH
def test_a_ranks_memory_runs_out(tmp_path, monkeypatch, language):
    mark = f"faults-{os.getpid()}-{time.monotonic_ns()}"
    monkeypatch.setenv("LABKIT_TEST", mark)
    script = tmp_path / "job.py"
    script.write_text("import torch\ntorch.empty(2**50)\n")
    with speaking(language), pytest.raises(launch.LaunchError) as caught:
        launch.torchrun(script, 1, show=False)
    assert said("The memory of the device is", language) in str(caught.value)
    assert left_after(0, mark) == []


@pytest.mark.gpu
@BOTH
def test_gpu_memory_runs_out(language):
    import torch

    with speaking(language):
        with pytest.raises(RuntimeError) as caught:
            lab.measure(lambda: torch.empty(2**45, device="cuda"), name="f")
        assert str(caught.value) == said("The memory ran out in", language, name="`f`")
        assert lab.measure(lambda: torch.ones(2, device="cuda").sum(), budget_s=0.05).n


# ---- a processor that gets slower ------------------------------------------------------------------------------------


@pytest.fixture
def clock():
    return FakeClock()


def growing(clock, factor: float):
    """Runs of about 10 ms that take ``factor`` times as long after the first 0.6 s."""
    shares = itertools.cycle([1.0, 1.06, 0.94, 1.02, 0.98])
    return lambda: clock.spend(0.010 * (factor if clock() > 0.6e9 else 1) * next(shares))


@BOTH
def test_a_processor_that_gets_slower(clock, language):
    with speaking(language):
        m = lab.measure(growing(clock, 1.5), clock=clock, budget_s=1.0)
        assert m.slowdown == pytest.approx(1.5, rel=0.05)
        text = said("The last runs took", language, ratio="1.5")
        assert any(warning.startswith(text) for warning in m.warnings)
        assert text in str(m)


@BOTH
def test_a_laptop_on_battery(clock, language, monkeypatch, tmp_path):
    monkeypatch.setattr(_probes, "_POWER", tmp_path)
    (tmp_path / "BAT0").mkdir()
    (tmp_path / "BAT0/status").write_text("Discharging\n")
    plug = said("This machine runs on its battery", language)
    with speaking(language):
        row = _machine._power("power")
        assert row.text == said("on battery", language)
        assert any(plug in warning for warning in lab.measure(growing(clock, 1.5), clock=clock).warnings)
        assert plug not in str(lab.measure(clock.work(0.01), clock=clock))  # no throttling, no complaint
        (tmp_path / "BAT0/status").write_text("Charging\n")
        assert _machine._power("power") is None
        after = FakeClock()
        assert plug not in str(lab.measure(growing(after, 1.5), clock=after))


def test_steady_runs_are_not_called_slower():
    import numpy as np

    found = [_statistics.slowdown(np.random.default_rng(seed).lognormal(0, 0.3, size=60)) for seed in range(200)]
    assert found.count(1.0) >= 199
    assert _statistics.slowdown([1.0] * 8 + [2.0] * 8) == 2.0
    assert _statistics.slowdown([1.0] * 60 + [20.0] * 4) == 20.0  # the slower they are, the fewer
    assert _statistics.slowdown([1.0, 1.0, 2.0, 2.0, 2.0]) == 1.0  # too few to say


HELD_BACK = """
import json, os, signal, subprocess, sys, time
import labkit as lab
holder = '''
import os, signal, sys, time
who, ended = int(sys.argv[1]), []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
time.sleep(1.5)
latest = time.monotonic() + 20
while not ended and time.monotonic() < latest:
    os.kill(who, signal.SIGSTOP); time.sleep(0.02)
    os.kill(who, signal.SIGCONT); time.sleep(0.005)
'''
def work():
    return sum(range(400_000))
work()
child = subprocess.Popen([sys.executable, "-c", holder, str(os.getpid())])
from labkit import _statistics
_statistics.is_settled = lambda *_: False
m = lab.measure(work, budget_s=3.0)
child.terminate()
child.wait()
print(m.slowdown)
"""


@pytest.mark.timing
def test_a_process_that_is_really_held_back():
    """What a throttled processor does to a process, done by signals: stopped four fifths of the time, half-way on."""
    done = python(HELD_BACK)
    assert float(done.stdout) > 1.3, done.stderr


# ---- clocks ----------------------------------------------------------------------------------------------------------


class JumpingClock(FakeClock):
    """Jumps by ``jump_s`` once, at its ``at``-th reading."""

    def __init__(self, jump_s: float, at: int, times: int = 1):
        super().__init__()
        self.jump_s, self.at, self.times, self.read = jump_s, at, times, 0

    def __call__(self) -> int:
        self.read += 1
        if self.at <= self.read < self.at + self.times:
            self.spend(self.jump_s)
        return self.ns


@BOTH
@pytest.mark.parametrize("at", [20, 21, 22])  # of the three readings that belong to a run: in it, or between two
def test_a_clock_that_jumps_ahead(language, at):
    clock = JumpingClock(3600.0, at=at)
    with speaking(language):
        m = lab.measure(clock.work(0.01), clock=clock, budget_s=1.0)
        assert m.n >= 10  # the hour is not taken off the budget
        assert m.median_s == pytest.approx(0.01)
        text = said("One run took far longer than all the others", language)
        assert text in m.warnings
        assert m.card()["result"]["noted"] == ["clock"]
        clock = JumpingClock(3600.0, at=41)
        pair = {"eager": clock.work(0.010), "other": clock.work(0.0099)}
        c = lab.compare(pair, clock=clock, budget_s=1.0, check=lambda a, b: True)
        assert text in str(c)
        assert c.ratio("other").value == pytest.approx(1.01, abs=0.002)
        assert c.measurements["other"].n >= 40


@BOTH
def test_a_clock_that_goes_back(language):
    clock = JumpingClock(-0.5, at=20)
    with speaking(language):
        m = lab.measure(clock.work(0.01), clock=clock, budget_s=1.0)
        assert min(m.times_s) == pytest.approx(0.01)  # the run in which it happened was run again
        always = JumpingClock(-0.5, at=20, times=10**9)
        with pytest.raises(_callables.ClockError) as caught:
            lab.measure(always.work(0.01), clock=always, budget_s=1.0)
        assert str(caught.value) == said("This machine's clock goes back", language)


# A time of day that falls back by an hour with every tenth of a second; the steady clock is left alone.
SET_BACK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static struct timespec first;
static time_t early(const struct timespec *now) {
  if (!first.tv_sec) first = *now;
  return 3600 * ((now->tv_sec - first.tv_sec) * 10 + (now->tv_nsec - first.tv_nsec) / 100000000);
}
int clock_gettime(clockid_t id, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *) = 0;
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int done = real(id, now);
  if (id == CLOCK_REALTIME) now->tv_sec -= early(now);
  return done;
}
int gettimeofday(struct timeval *now, void *zone) {
  struct timespec spec;
  int done = clock_gettime(CLOCK_REALTIME, &spec);
  now->tv_sec = spec.tv_sec; now->tv_usec = spec.tv_nsec / 1000;
  return done;
}
"""
UNDER_IT = """
import time
before = time.time()
time.sleep(0.3)
assert before - time.time() > 5_000, "the clock was not set back"
import labkit as lab
from labkit import launch
m = lab.measure(time.sleep, 0.001, budget_s=0.2)
assert 0.001 <= m.median_s < 0.1 and m.noted == (), m
begin = time.monotonic()
try:
    launch.torchrun(SCRIPT, 1, timeout_s=8, show=False)
except launch.RankTimeoutError:
    print("stopped", 8 <= time.monotonic() - begin < 25)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no LD_PRELOAD")
def test_the_time_of_day_may_jump(tmp_path):
    """Set back again and again while labkit measures and launches: times and time limits come from the steady clock."""
    (tmp_path / "back.c").write_text(SET_BACK)
    compiler = _probes.compiler_command()
    command = [compiler, "-x", "c", "-shared", "-fPIC", "back.c", "-o", "back.so", "-ldl"]
    subprocess.run(command, cwd=tmp_path, check=True)
    script = tmp_path / "job.py"
    script.write_text("import time\nwhile True:\n    time.sleep(0.1)\n")
    done = python(UNDER_IT.replace("SCRIPT", repr(str(script))), LD_PRELOAD=str(tmp_path / "back.so"))
    assert done.stdout.splitlines()[-1:] == ["stopped True"], done.stdout + done.stderr


# ---- no network ------------------------------------------------------------------------------------------------------

CUT_OFF = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$0" "$@"')
OFFLINE = """
import socket, time
import labkit as lab
from labkit import launch
try:
    socket.create_connection(("198.51.100.1", 80), timeout=3)
except OSError as error:
    print(type(error).__name__)
lab.use_language("en")
print(lab.measure(time.sleep, 0.001, budget_s=0.05).n > 0, len(lab.datasets.places("division")))
print([r["sum"] for r in launch.torchrun(SCRIPT, 2, show=False)])
"""
MEETS = """
import torch, torch.distributed as dist, labkit as lab
dist.init_process_group(lab.launch.backend())
x = torch.ones(1)
dist.all_reduce(x)
lab.report(sum=x.item())
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.netns
def test_labs_and_ranks_need_no_network(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(MEETS)
    done = python(OFFLINE.replace("SCRIPT", repr(str(script))), prefix=CUT_OFF)
    assert done.stdout.splitlines() == ["OSError", "True 8", "[2.0, 2.0]"], done.stdout + done.stderr


@pytest.mark.netns
def test_the_set_up_cell_without_a_network(tmp_path):
    """Where labkit is missing, too, this cell is all there is, so it speaks plain English; pip's own words follow."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "bare")], check=True)
    sys.path.insert(0, str(ROOT / "notebooks"))
    from builder.editions import repository, set_up

    alone = {**os.environ, "PYTHONPATH": "", "GIT_TERMINAL_PROMPT": "0"}
    command = [*CUT_OFF, str(tmp_path / "bare/bin/python"), "-c", set_up(repository(ROOT), "bn")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, env=alone)
    assert "labkit was not installed. Is the network up? Run this cell again." in done.stderr
    assert done.returncode
