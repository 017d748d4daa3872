"""What machine() and its helpers say, on this machine and on machines it is told it is."""

import ast
import getpass
import json
import platform
import re
import shutil
import socket
import stat
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import labkit as lab
from labkit import _machine, _probes, _readiness, _repairs, hardware, mx
from labkit.language import speaking

ROOT = Path(__file__).parent.parent


@pytest.fixture
def fresh():
    """Forget what was found out, before and after a test that pretends."""
    kept = (hardware.has_cuda, hardware.bf16_native, hardware.has_triton, hardware._fixed_facts, _probes.compiler,
            _probes.cpu_flags, _probes.cpu_name, _probes.memory_bytes, _probes.place)
    for function in kept:
        function.cache_clear()
    yield
    for function in kept:
        function.cache_clear()


def row(key: str):
    with speaking("en"):
        return _machine._safely(key, _machine._PROBES[key])


# device, sync, pick


def test_the_device_is_the_gpu_exactly_where_one_computes():
    assert hardware.has_cuda() == torch.cuda.is_available()
    assert lab.device() == torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert lab.pick(cpu=1, gpu=2) == (2 if torch.cuda.is_available() else 1)
    with pytest.raises(TypeError):
        lab.pick(1, 2)


def test_a_gpu_that_this_torch_has_no_kernels_for_counts_as_none(fresh, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "GeForce GT 710")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (3, 5))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: SimpleNamespace(total_memory=2e9))
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80"])
    monkeypatch.setattr(torch, "ones", refuse)
    assert not hardware.has_cuda()
    assert lab.device().type == "cpu"
    found = row("gpu")
    assert found.state == "missing"
    assert "GT 710, sm_35" in found.text
    assert "sm_75 sm_80" in found.text
    assert "pytorch.org" in found.repair


def test_a_gpu_beside_a_torch_for_cpus_is_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(_machine.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert row("gpu").state == "missing"
    monkeypatch.setattr(_machine.shutil, "which", lambda _: None)
    assert row("gpu").state == "plain"


def test_the_gpu_can_be_hidden(fresh, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: SimpleNamespace(total_memory=16e9))
    monkeypatch.setenv("LABKIT_DEVICE", "cpu")
    assert not hardware.has_cuda()
    assert row("gpu").state == "plain"
    assert "Tesla T4, sm_75, 16.0 GB: left aside" in row("gpu").text


def test_sync_takes_a_device_a_name_a_tensor_or_nothing(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    for what in (None, "cpu", torch.device("cpu"), torch.ones(1)):
        lab.sync(what)
    assert waited == ([] if not torch.cuda.is_available() else [torch.device("cuda")])
    lab.sync("cuda:1")
    assert waited[-1] == torch.device("cuda:1")


@pytest.mark.gpu
def test_on_a_gpu_the_report_and_the_card_name_it():
    assert lab.device().type == "cuda"
    card = hardware.provenance()
    assert card["gpus"][0] == torch.cuda.get_device_name()
    assert card["device"] == "cuda"
    assert row("gpu").state == "good"
    assert hardware.bf16_native() == (torch.cuda.get_device_capability() >= (8, 0))
    assert hardware.has_triton() == (row("triton").state == "good")


# bfloat16, compiler, Triton


def test_bf16_agrees_with_torchs_own_look_at_the_processor():
    if torch.cuda.is_available() or not hasattr(torch.cpu, "get_capabilities"):
        pytest.skip("torch does not say what this processor can")
    can = torch.cpu.get_capabilities()
    assert hardware.bf16_native() == any(can.get(flag, False) for flag in ("avx512_bf16", "amx_bf16", "arm_bf16"))


@pytest.mark.parametrize(
    ("flags", "native"),
    [("fpu avx2 avx512f", False), ("avx512f avx512_bf16", True), ("amx_tile amx_bf16", True), ("asimd bf16", True)],
)
def test_bf16_is_read_from_the_processors_flags(fresh, monkeypatch, flags, native):
    monkeypatch.setenv("LABKIT_DEVICE", "cpu")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(_probes, "_read", lambda _: f"processor\t: 0\nmodel name\t: A CPU\nflags\t\t: {flags}\n")
    assert hardware.bf16_native() == native
    assert _probes.cpu_name() == "A CPU"
    assert row("bf16").state == ("good" if native else "partly")


def tool(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_working_compiler_is_found(fresh):
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        pytest.skip("no C++ compiler")
    assert hardware.has_compiler()
    assert row("compiler").state == "good"


def test_no_compiler_is_a_row_with_a_command(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert not hardware.has_compiler()
    found = row("compiler")
    assert (found.state, found.text) == ("missing", "not found")
    assert "xcode-select" in found.repair or "apt" in found.repair or "WSL" in found.repair


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo 'fatal error: Python.h: No such file or directory' >&2; exit 1", "there, but Python's header files"),
        ("echo 'cannot find -lstdc++' >&2; exit 1", "there, but a small program does not compile"),
    ],
)
def test_a_compiler_that_does_not_compile_is_no_compiler(fresh, monkeypatch, tmp_path, script, text):
    monkeypatch.setenv("CXX", str(tool(tmp_path, "mycxx", script)))
    assert not hardware.has_compiler()
    assert row("compiler").text.startswith(text)
    assert "Python.h" not in script or f"python3.{sys.version_info.minor}-dev" in row("compiler").repair


@pytest.mark.slow
def test_a_machine_that_stood_still_is_asked_once_more(fresh, monkeypatch, tmp_path):
    """The first call of the compiler hangs; the second, which compiles, decides. One that always hangs is none."""
    real = _probes.compiler_command()
    script = f'#!/bin/sh\nif mkdir "{tmp_path}/been"; then exec sleep 30; fi\nexec {shutil.which(real)} "$@"\n'
    compiler = tmp_path / "c++"
    compiler.write_text(script)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(_probes, "_COMPILE_LIMIT_S", 10)
    assert _probes.compiler()[0]
    compiler.write_text("#!/bin/sh\nexec sleep 30\n")
    monkeypatch.setattr(_probes, "_COMPILE_LIMIT_S", 0.2)
    _probes.compiler.cache_clear()
    assert _probes.compiler() == (False, "TimeoutExpired")


def test_a_compiler_without_ninja_says_how_to_reach_it(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(tool(tmp_path, "mycxx", "echo 'mycxx 9.9.9'; exit 0")))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(_machine.shutil, "which", lambda name: None if name == "ninja" else f"/usr/bin/{name}")
    found = row("compiler")
    assert found.state == "partly"
    assert "ninja" in found.repair
    assert "mycxx 9.9.9" in found.text


def test_triton_works_exactly_where_a_kernel_runs(fresh, monkeypatch):
    from labkit import _triton_probe

    if not _probes.installed("triton"):
        assert not hardware.has_triton()
        assert row("triton").state == "partly"
        assert row("triton").repair
    hardware.has_triton.cache_clear()
    monkeypatch.setattr(_probes, "installed", lambda _: True)
    monkeypatch.setattr(_triton_probe, "runs", lambda _: False)
    assert not hardware.has_triton()
    assert "does not run" in row("triton").text
    hardware.has_triton.cache_clear()
    monkeypatch.setattr(_triton_probe, "runs", lambda _: True)
    assert row("triton").state == "good"


def test_the_triton_probe_answers_and_leaves_the_environment_alone(monkeypatch):
    from labkit import _triton_probe

    monkeypatch.setitem(sys.modules, "triton", None)  # importing it fails
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert _triton_probe.runs("cpu") is False
    assert "TRITON_INTERPRET" not in _triton_probe.os.environ
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    _triton_probe.runs("cpu")
    assert _triton_probe.os.environ["TRITON_INTERPRET"] == "0"


# provenance


def test_a_card_tells_the_machine_and_nobody(fresh, monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "a-host-name")
    monkeypatch.setattr(platform, "node", lambda: "a-host-name")
    monkeypatch.setattr(getpass, "getuser", lambda: "a-user-name")
    card = hardware.provenance()
    text = json.dumps(card)
    assert card["torch"] == torch.__version__
    assert card["python"] == platform.python_version()
    assert card["threads"] == torch.get_num_threads()
    assert time.strptime(card["utc"], "%Y-%m-%dT%H:%M:%SZ").tm_year >= 2026
    for secret in {"a-host-name", "a-user-name", str(Path.home()), str(Path.cwd()), sys.prefix}:
        assert secret not in text, secret
    assert not re.search(r"(?<![\w.])/\w+/|[A-Z]:\\", text)  # no folder of any kind


def test_a_card_is_fresh_and_cheap():
    first = hardware.provenance()
    first["cpu"] = "changed"
    assert hardware.provenance()["cpu"] != "changed"
    times_s = []
    for _ in range(20):
        begin_s = time.perf_counter()
        hardware.provenance()
        times_s.append(time.perf_counter() - begin_s)
    assert min(times_s) < 0.005


def test_processors_and_memory_heed_the_containers_share(fresh, monkeypatch):
    files = {"/sys/fs/cgroup/cpu.max": "150000 100000\n", "/sys/fs/cgroup/memory.max": "1000000000\n"}
    monkeypatch.setattr(_probes, "_read", lambda path: files.get(path, ""))
    monkeypatch.setattr(_probes.os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert _probes.cpus() == 2
    assert _probes.memory_bytes() == 1_000_000_000
    files["/sys/fs/cgroup/cpu.max"] = "max 100000\n"
    assert _probes.cpus() == 64


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, "local"),
        ({"COLAB_RELEASE_TAG": "release-colab_2026"}, "colab"),
        ({"COLAB_RELEASE_TAG": "x", "KAGGLE_KERNEL_RUN_TYPE": "Interactive"}, "kaggle"),
    ],
)
def test_where_this_runs(fresh, monkeypatch, variables, place):
    for name in ("COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE", "KAGGLE_URL_BASE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _probes.place() == place


# machine()


@pytest.fixture(scope="module")
def report():
    with speaking("en"):
        return lab.machine()


def test_the_report_answers_every_question_of_its_contract(report):
    assert {r.key for r in report.rows} >= {
        "place", "python", "torch", "cpu", "memory", "gpu", "bf16", "compiler", "triton", "ranks", "mxnet", "bengali"
    }
    states = {"good", "partly", "missing", "plain", "unknown"}
    assert {r.state for r in report.rows} <= states
    assert not [r for r in report.rows if r.state == "unknown"], "a probe raised an exception"
    assert json.loads(json.dumps(report.facts)) == report.facts
    assert report.facts["states"]["torch"] == "good"


def test_the_report_can_be_read_as_text_and_as_a_page(report):
    text, page = str(report), report._repr_html_()
    assert repr(report) == text
    for found in report.rows:
        assert found.label in text
        assert found.text in text
    assert page.count("<table") == page.count("</table>") >= 1
    assert 'scope="row"' in page
    assert " at 0x" not in text + page


def test_the_report_speaks_bengali():
    with speaking("bn"):
        found = {key: _machine._safely(key, probe) for key, probe in _machine._PROBES.items()}
    assert found["compiler"].label == "C++ কম্পাইলার"
    assert found["memory"].label == "মেমোরি"


def test_a_probe_that_breaks_is_a_row_and_the_report_stands(monkeypatch):
    def broken(_key):
        raise OSError("the disk is on fire")

    for key in _machine._PROBES:
        monkeypatch.setitem(_machine._PROBES, key, broken)
    monkeypatch.setattr(hardware, "provenance", lambda: broken(""))
    with speaking("en"):
        found = _machine.report()
    assert {r.state for r in found.rows} == {"unknown"}
    assert "could not be found out (OSError)" in str(found)
    assert found.facts["provenance"] == "OSError"
    assert found._repr_html_()


def test_what_a_machine_says_of_itself_is_text_and_not_markup(monkeypatch):
    monkeypatch.setattr(_probes, "cpu_name", lambda: "<script>alert(1)</script>")
    page = _machine.report()._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(("python", "numpy", "alone"), [
    ((3, 11, 7), "1.26.4", False), ((3, 11, 7), "2.1.3", True), ((3, 13, 1), "2.1.3", True),
])  # fmt: skip
def test_the_command_for_mxnet_leaves_numpy_alone(monkeypatch, python, numpy, alone):
    monkeypatch.setattr(_repairs.sys, "version_info", python)
    monkeypatch.setattr(_repairs, "version", {"numpy": numpy}.get)
    monkeypatch.setattr(_repairs.platform, "system", lambda: "Linux")
    monkeypatch.setattr(_repairs.platform, "machine", lambda: "x86_64")
    assert ("--no-deps" in mx.install_command()) is alone
    assert _repairs.mxnet() == mx.install_command()
    monkeypatch.setattr(_repairs.platform, "machine", lambda: "arm64")
    with speaking("en"):
        assert "Colab" in _repairs.mxnet()


# which lessons run


def lesson(folder: Path, number: str, text: str) -> None:
    (folder / "labkit" / "lessons").mkdir(parents=True, exist_ok=True)
    (folder / "labkit" / "lessons" / f"l{number}.py").write_text(text, encoding="utf-8")


def ready(folder: Path, **states: str) -> dict[str, _readiness.Readiness]:
    rows = {key: SimpleNamespace(state=state, label=key.upper(), repair=f"get {key}") for key, state in states.items()}
    with speaking("en"):
        return {found.number: found for found in _readiness.readiness(rows, package=folder / "labkit")}


def test_lessons_are_found_and_sorted_by_what_they_lack(tmp_path):
    lesson(tmp_path, "01", '"""Checks of lesson 01, measuring."""\nraise SystemExit("never run")\n')
    lesson(tmp_path, "03", 'NEEDS = ("compiler",)\nSMALLER_WITHOUT = ("gpu",)\n')
    lesson(tmp_path, "09", 'NEEDS = ("mxnet", "no_such_module")\n')
    lesson(tmp_path, "10", "NEEDS = (\n")
    found = ready(tmp_path, compiler="good", gpu="plain", mxnet="partly")
    assert {number: one.state for number, one in found.items()} == {
        "01": "fully", "03": "smaller", "09": "needs", "10": "needs"
    }
    assert found["01"].title == "measuring"
    assert found["09"].repairs == ("get mxnet", "%pip install no_such_module")
    assert "GPU" in found["03"].text
    assert "SyntaxError" in found["10"].text
    assert ready(tmp_path, compiler="missing", gpu="good", mxnet="good")["03"].state == "needs"


def test_a_lessons_title_comes_from_its_source_in_the_readers_language(tmp_path):
    source = tmp_path / "notebooks" / "src" / "03_kernel_fusion.md"
    source.parent.mkdir(parents=True)
    source.write_text("---\ntitle:\n  bn: কার্নেল ফিউশন\n  en: Kernel fusion\nminutes: 40\n---\n", encoding="utf-8")
    lesson(tmp_path, "03", "")
    assert ready(tmp_path)["03"].title == "Kernel fusion"
    with speaking("bn"):
        assert _readiness.readiness({}, package=tmp_path / "labkit")[0].title == "কার্নেল ফিউশন"


TRACES = {
    "compiler": ("load_inline", "torch.compile(", "cpp_extension"),
    "triton": ("import triton", "triton.jit"),
    "mxnet": ("lab.mx.load(", "%%mxnet_ps", "launch.mxnet("),
    "gpu": ("lab.pick(",),
    "compile": ("torch.compile(", "graphs.kernels(", 'climb("compiled")'),
}
OWN_BACKEND = re.compile(r"torch\.compile\([^()]*backend=[^()]*\)")  # Dynamo alone, which runs everywhere


def undeclared(source: str, module: str) -> set[str]:
    """What a lesson's code cells use and its lNN.py does not name in NEEDS or SMALLER_WITHOUT."""
    named = set()
    for node in ast.parse(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("NEEDS", "SMALLER_WITHOUT"):
            named |= set(ast.literal_eval(node.value))
    cells = "\n".join(re.findall(r"^```\{code-cell\}(.*?)^```$", source, re.MULTILINE | re.DOTALL))
    whole = OWN_BACKEND.sub("", cells)
    found = {name for name, traces in TRACES.items()
             if any(trace in (whole if name == "compile" else cells) for trace in traces)}  # fmt: skip
    return found - named


def test_lessons_say_what_they_ask_of_a_machine():
    found = {}
    for source in sorted((ROOT / "notebooks" / "src").glob("[0-9][0-9]_*.md")):
        module = ROOT / "labkit" / "lessons" / f"l{source.name[:2]}.py"
        if module.exists():
            found[source.name] = undeclared(source.read_text(encoding="utf-8"), module.read_text(encoding="utf-8"))
    missing = {name: names for name, names in found.items() if names}
    assert not missing, f"add to NEEDS or SMALLER_WITHOUT of labkit/lessons/lNN.py: {missing}"


def test_a_lesson_that_says_nothing_would_be_noticed():
    source = "`torch.compile(f)` in prose\n\n```{code-cell}\nn = lab.pick(cpu=1, gpu=2)\nmx = lab.mx.load()\n```\n"
    assert undeclared(source, 'NEEDS = ("mxnet",)\n') == {"gpu"}
    assert undeclared(source, 'NEEDS = ("mxnet",)\nSMALLER_WITHOUT = ("gpu",)\n') == set()
    for cell, missing in (("torch.compile(f, mode=m)", {"compile"}), ('torch.compile(f, backend="eager")(x)', set())):
        assert undeclared(f"```{{code-cell}}\n{cell}\n```\n", 'NEEDS = ("compiler",)\n') == missing
