"""A GPU without a working Triton, and a CPU without a compiler: what compiles where, and what is said instead.

No GPU is needed. The machine is told that it has one; where compiled code must fail, Inductor raises what it raises on
a GPU without Triton, at the same place.
"""

import logging
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch._inductor.config as inductor
import torch.nn as nn
from torch._inductor.exc import TritonMissing
from torch._inductor.scheduler import Scheduler
from torch.utils._triton import has_triton

import labkit as lab
from labkit import (
    _compiled_model,
    _compiling,
    _fusion_lab,
    _machine,
    _probes,
    _readiness,
    _recipes,
    _repairs,
    graphs,
    hardware,
)
from labkit._cpp_kernels import patience
from labkit.language import speaking
from labkit.lessons import triton_stand_in
from labkit.lessons.compile_stages import stages

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "notebooks" / "src"
COMPILING = {"02", "03", "05", "06", "11"}
pytestmark = pytest.mark.usefixtures("english")


def told(monkeypatch, *, gpu: bool, triton: bool, compiler: bool = True) -> None:
    monkeypatch.setattr(hardware, "has_cuda", lambda: gpu)
    monkeypatch.setattr(hardware, "has_triton", lambda: triton)
    monkeypatch.setattr(hardware, "has_compiler", lambda: compiler)


@pytest.fixture
def no_triton(monkeypatch):
    """A GPU on which torch.compile raises TritonMissing; afterwards torch is as it was."""
    def refuse(_self, _device):
        raise TritonMissing(None)

    told(monkeypatch, gpu=True, triton=False)
    monkeypatch.setattr(Scheduler, "create_backend", refuse)
    monkeypatch.setattr(graphs, "_where", lambda _args: torch.device("cuda"))
    levels = {log: log.level for log in map(logging.getLogger, ("torch._dynamo", "torch._inductor"))}
    torch._dynamo.reset()
    with torch._dynamo.config.patch(suppress_errors=False), inductor.patch(
        triton_disable_device_detection=False, fx_graph_cache=False
    ), torch._functorch.config.patch(enable_autograd_cache=False):
        yield
    for log, level in levels.items():
        log.setLevel(level)
    has_triton.cache_clear()
    torch._dynamo.reset()


def act(x):
    return torch.relu(x * 2.0) + 1.0


# --- what compiles where ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gpu", "triton", "compiler", "device", "can"), [
    (True, True, False, "cuda", True),
    (True, True, False, "cpu", False),
    (True, False, True, "cuda", False),
    (True, False, True, "cpu", True),
    (True, False, True, None, False),
    (False, True, True, "cuda", False),  # Triton's interpreter is no compiler
    (False, True, True, None, True),
    (False, True, False, None, False),
    (False, False, False, "mps", True),
])  # fmt: skip
def test_a_cpu_compiles_by_the_compiler_and_a_gpu_by_triton(monkeypatch, gpu, triton, compiler, device, can):
    told(monkeypatch, gpu=gpu, triton=triton, compiler=compiler)
    assert hardware.can_compile(device) is can
    if device:
        assert hardware.can_compile(torch.device(device)) is can
    if device == "cpu":
        assert hardware.can_compile(torch.ones(1)) is can


def test_the_reason_names_what_is_missing(monkeypatch):
    told(monkeypatch, gpu=True, triton=False, compiler=False)
    for say in (_compiling.why_not, _compiling.lacks):
        for device, wanted in (("cuda", "Triton"), (None, "Triton"), ("cpu", "C++ compiler")):
            assert f"needs {wanted}" in say(device).replace(" a C", " C")
        with speaking("bn"):
            assert re.search("[ক-হ]", say("cuda"))


# --- compiled code runs eager -------------------------------------------------------------------------------------


def test_waiting_for_the_compiler_says_it_once_and_then_it_runs_eager(no_triton):
    x, said = torch.randn(100), []
    compiled = torch.compile(act)
    with pytest.raises(Exception, match="triton"):
        compiled(x)
    for _ in range(2):
        with patience("torch.compile", say=said.append):
            assert torch.equal(compiled(x), act(x))
    assert len(said) == 1
    assert said[0].startswith("torch.compile needs Triton on this GPU")
    assert "lab.machine()" in said[0]
    assert graphs.fell_back(compiled, x)
    assert not has_triton()  # one that is there and broken is not tried again


def test_other_waits_change_nothing(no_triton):
    said = []
    with patience("Triton", say=said.append):
        pass
    assert not said
    assert not torch._dynamo.config.suppress_errors


@pytest.mark.parametrize("machine", [
    {"gpu": True, "triton": True}, {"gpu": False, "triton": False}, {"gpu": False, "triton": False, "compiler": False},
])  # fmt: skip
def test_where_triton_works_or_no_gpu_is_there_nothing_changes(no_triton, monkeypatch, machine):
    told(monkeypatch, **machine)
    said = []
    with patience("torch.compile", say=said.append):
        pass
    _compiling.before_the_first_call(torch.compile(act))
    assert not said
    assert not torch._dynamo.config.suppress_errors


@pytest.mark.parametrize("make", [lambda: torch.compile(act), lambda: torch.compile(nn.Tanh())])
def test_a_comparison_with_compiled_code_goes_on(no_triton, capsys, make):
    compiled = make()
    eager = getattr(compiled, "_orig_mod", act)
    found = lab.compare({"eager": eager, "compiled": compiled}, torch.randn(100), budget_s=0.1)
    assert set(found.measurements) == {"eager", "compiled"}
    assert capsys.readouterr().out.count("torch.compile needs Triton on this GPU") == 1


def test_a_measurement_of_compiled_code_goes_on(no_triton, capsys):
    assert lab.measure(torch.compile(act), torch.randn(100), budget_s=0.05).median_s > 0
    assert "torch.compile needs Triton on this GPU" in capsys.readouterr().out


def test_compiled_code_that_is_hidden_in_a_function_fails_with_the_reason(no_triton):
    compiled, x = torch.compile(act), torch.randn(100)
    with pytest.raises(RuntimeError, match="needs Triton on this GPU, and Triton does not work here. lab.machine"):
        lab.compare({"eager": lambda: act(x), "compiled": lambda: compiled(x)}, budget_s=0.1)


def test_counting_finds_no_kernels_and_goes_on(no_triton, capsys):
    x = torch.randn(4, 5, requires_grad=True)
    found = graphs.kernels(act, x, backward=True)
    assert (found.total, found.bytes_moved, len(found.graphs)) == (0, 0, 0)
    assert stages(act, x)["Inductor forward"] == ()
    assert stages(act, x)["Dynamo"]
    assert repr(graphs.generated_source(act, x)) is not None
    assert capsys.readouterr().out.count("no generated kernels are counted") == 1


@pytest.mark.parametrize("count", [
    lambda f, x: graphs.breaks(f, x).graphs, lambda f, x: len(graphs.recompiles(f, [x])),
])  # fmt: skip
def test_looking_into_compiled_code_goes_on(no_triton, capsys, count):
    assert count(torch.compile(act), torch.ones(3)) == 0
    assert "torch.compile needs Triton on this GPU" in capsys.readouterr().out


def test_whole_graphs_still_refuse_to_break(no_triton):
    """Lesson 05 shows this error; what falls back is Inductor alone."""
    _compiling.fall_back_without_triton(say=lambda _text: None)

    def broken(x):
        return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(RuntimeError, match="branching"):
        torch.compile(broken, fullgraph=True, backend="eager")(torch.ones(3))


# --- what is tried and offered ------------------------------------------------------------------------------------


def test_the_compile_lab_offers_torchscript(monkeypatch):
    told(monkeypatch, gpu=True, triton=False)
    with pytest.raises(ValueError, match=r"needs Triton on this GPU.* choose TorchScript"):
        _compiled_model._require("mlp", "training", _compiled_model.DEFAULT)
    _compiled_model._require("mlp", "training", _compiled_model.SCRIPT)
    told(monkeypatch, gpu=False, triton=False, compiler=False)
    with pytest.raises(ValueError, match=r"needs a C\+\+ compiler here.* choose TorchScript"):
        _compiled_model._require("mlp", "training", _compiled_model.DEFAULT)
    told(monkeypatch, gpu=True, triton=True, compiler=False)
    _compiled_model._require("mlp", "training", _compiled_model.DEFAULT)


def names_for(device: str, **options) -> list[str]:
    found = _recipes.recipes_for(nn.Linear(2, 2), torch.device(device), is_training=True, kernels={}, **options)
    return [recipe.name for recipe in found if recipe.compile_mode]


def test_ways_that_need_the_compiler_are_left_out_where_it_does_not_work(monkeypatch):
    monkeypatch.setattr(hardware, "bf16_native", lambda: False)
    told(monkeypatch, gpu=True, triton=False)
    assert names_for("cuda") == []
    assert "compiled" in names_for("cpu")
    told(monkeypatch, gpu=True, triton=True, compiler=False)
    assert {"compiled", "max-autotune"} <= set(names_for("cuda"))
    assert names_for("cpu") == []
    assert "compiled" in names_for("cpu", even_impossible=True)


def test_advice_on_a_way_asked_for_by_name_says_why_it_was_not_tried(monkeypatch):
    told(monkeypatch, gpu=False, triton=False, compiler=False)
    advice = lab.advise(nn.Linear(4, 4), torch.randn(2, 4), only=["compiled"], budget_s=5, progress=None)
    row = advice.row("compiled")
    assert (row.status, row.ratio) == ("not tried", None)
    assert row.note == "torch.compile needs a C++ compiler here"
    assert advice.best.name == "eager"
    assert "no usable measurement" in str(lab.predict("99-a", 2.0, unit="x").beside(row.ratio))  # as lesson 06 does


@pytest.mark.parametrize(("device", "dtype", "triton", "native", "why"), [
    ("cuda", torch.float32, True, False, ""), ("cuda", torch.bfloat16, True, True, ""),
    ("cuda", torch.bfloat16, True, False, "leaves bfloat16 to eager"), ("cuda", torch.float32, False, True, "Triton"),
    ("cpu", torch.bfloat16, False, False, ""),
])  # fmt: skip
def test_the_fusion_lab_leaves_out_what_would_run_eager(monkeypatch, device, dtype, triton, native, why):
    told(monkeypatch, gpu=True, triton=triton)
    monkeypatch.setattr(hardware, "bf16_native", lambda: native)
    said = _fusion_lab.why_not_compiled(SimpleNamespace(device=torch.device(device), dtype=dtype))
    assert why in said
    assert bool(why) == bool(said)


# --- lesson 03: the stand-in on a GPU -----------------------------------------------------------------------------


class OnGpu(torch.Tensor):
    """A tensor that says it lies on a GPU, and lets nobody at its elements but by copying."""

    @property
    def device(self):
        return torch.device("cuda")

    def detach(self):
        return self

    def cpu(self):
        return self.as_subclass(torch.Tensor).clone()

    def copy_(self, other):
        self.as_subclass(torch.Tensor).copy_(other)
        return self

    def __getitem__(self, places):
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cuda)")

    __setitem__ = __getitem__


tl = triton_stand_in.Language()


@triton_stand_in.Kernel
def add_one(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1.0, mask=offsets < n)


def test_the_stand_in_takes_tensors_of_a_gpu_and_brings_the_result_back():
    x, out = torch.randn(10), torch.zeros(10)
    counts = add_one[(3,)](x.as_subclass(OnGpu), out.as_subclass(OnGpu), 10, BLOCK=4)
    assert torch.equal(out, x + 1)
    assert (counts.loads, counts.stores) == (10, 10)


def test_the_stand_in_works_in_place_on_a_gpu_and_writes_back_only_what_was_written(monkeypatch):
    @triton_stand_in.Kernel
    def add_two(x_ptr, out_ptr, BLOCK: tl.constexpr):
        places = tl.arange(0, BLOCK)
        for _ in range(2):  # in place, what was just written is read again
            tl.store(out_ptr + places, tl.load(x_ptr + places) + 1.0)

    x = torch.zeros(8)
    add_two[(1,)](x.as_subclass(OnGpu), x.as_subclass(OnGpu), BLOCK=8)
    assert torch.equal(x, torch.full((8,), 2.0))
    copied = []
    monkeypatch.setattr(OnGpu, "copy_", lambda self, other: copied.append(self.data_ptr()))
    out = torch.zeros(8)
    add_one[(2,)](x.as_subclass(OnGpu), out.as_subclass(OnGpu), 8, BLOCK=4)
    assert copied == [out.data_ptr()]


def test_the_place_says_whether_triton_is_missing_or_broken(monkeypatch):
    told(monkeypatch, gpu=True, triton=False)
    _triton, _tl, place = triton_stand_in.triton_or_stand_in()
    assert place.kind == "stand-in"
    monkeypatch.setattr(_probes, "installed", lambda _name: True)
    assert "installed, but does not work" in str(place)
    monkeypatch.setattr(_probes, "installed", lambda _name: False)
    assert "not installed" in str(place)


def expression(lesson: str, name: str) -> str:
    """What a lesson's cell gives to ``name``."""
    [source] = SOURCES.glob(f"{lesson}_*.md")
    [found] = re.findall(rf"^{name} = (.+)$", source.read_text(encoding="utf-8"), re.MULTILINE)
    return found


@pytest.mark.parametrize(("kind", "gpu", "chosen"), [
    ("gpu", True, "triton"), ("stand-in", True, "unfused"), ("stand-in", False, "cpp"), ("interpreter", False, "cpp"),
])  # fmt: skip
def test_lesson_03_times_no_python_loop(monkeypatch, kind, gpu, chosen):
    told(monkeypatch, gpu=gpu, triton=kind != "stand-in")
    cell = {"lab": lab, "place": triton_stand_in.Place(kind), "fused_cpp": "cpp", "fused_triton": "triton",
            "chain_into": "unfused"}  # fmt: skip
    assert eval(expression("03", "fused"), cell) == chosen


@pytest.mark.parametrize(("gpu", "native", "dtype"), [
    (True, False, torch.float16), (True, True, torch.bfloat16), (False, False, torch.bfloat16),
])  # fmt: skip
def test_lesson_05_takes_a_16_bit_type_that_inductor_compiles(monkeypatch, gpu, native, dtype):
    """On a GPU without bfloat16 Inductor leaves it to eager, and "closer to the truth" would be false."""
    told(monkeypatch, gpu=gpu, triton=True)
    monkeypatch.setattr(hardware, "bf16_native", lambda: native)
    assert eval(expression("05", "bits16"), {"lab": lab, "torch": torch}) is dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_one_rounding_at_the_end_is_closer_to_the_truth_in_both_types(dtype):
    def chain(x):
        return torch.tanh((x * 1.1 + 0.3) * torch.sigmoid(x) - 0.7) * 2.5

    half = torch.randn(64, 512, generator=torch.Generator().manual_seed(5)).to(dtype)
    truth = chain(half.double())
    eager, once = ((y.double() - truth).abs().mean() for y in (chain(half), chain(half.float()).to(dtype)))
    assert once < eager


# --- what lab.machine() says --------------------------------------------------------------------------------------


def row(key: str):
    return _machine._safely(key, _machine._PROBES[key])


def test_the_report_has_a_row_for_torch_compile(monkeypatch):
    told(monkeypatch, gpu=True, triton=True, compiler=False)
    assert (row("compile").state, row("compile").text) == ("good", "works on the GPU")
    told(monkeypatch, gpu=False, triton=False)
    assert (row("compile").state, row("compile").text) == ("good", "works on the CPU")
    monkeypatch.setattr(_probes, "compiler", lambda: (False, "not found"))
    told(monkeypatch, gpu=False, triton=True, compiler=False)
    assert row("compile").state == "missing"
    assert row("compile").repair == _repairs.compiler("not found")


def test_every_lesson_that_compiles_is_smaller_without_triton_and_says_what_to_type(monkeypatch):
    told(monkeypatch, gpu=True, triton=False)
    monkeypatch.setattr(_probes, "installed", lambda name: name != "triton")
    monkeypatch.setattr(_repairs.platform, "system", lambda: "Linux")
    good = SimpleNamespace(state="good", label="", repair="")
    rows = dict.fromkeys(_machine._PROBES, good) | {key: row(key) for key in ("triton", "compile")}
    found = {one.number: one for one in _readiness.readiness(rows)}
    assert {number for number, one in found.items() if one.state == "smaller"} == COMPILING
    for number in COMPILING:
        assert "torch.compile" in found[number].text
        assert len(found[number].repairs) == 1
        assert found[number].repairs[0].startswith("%pip install triton")
    told(monkeypatch, gpu=True, triton=True)
    rows |= {"triton": good, "compile": row("compile")}
    assert {one.state for one in _readiness.readiness(rows)} == {"fully"}


def test_the_triton_that_is_installed_is_the_one_that_torch_asks_for(monkeypatch):
    monkeypatch.setattr(_repairs.platform, "system", lambda: "Linux")
    asked = ["filelock", 'triton==3.6.0; platform_system == "Linux"', "numpy; extra == 'all'"]
    monkeypatch.setattr(_repairs.importlib.metadata, "requires", lambda _package: asked)
    assert _repairs.triton() == "%pip install triton==3.6.0"
    assert _repairs.triton(anew=True) == "%pip install --force-reinstall --no-deps triton==3.6.0"
    monkeypatch.setattr(_repairs.importlib.metadata, "requires", lambda _package: None)
    assert _repairs.triton() == "%pip install triton"
    monkeypatch.setattr(_repairs.platform, "system", lambda: "Windows")
    assert "Colab" in _repairs.triton(anew=True)


@pytest.mark.parametrize(("capability", "compiler", "wanted"), [
    ((7, 5), True, "%pip install --force-reinstall"), ((7, 5), False, "g++"), ((6, 0), True, "needs a newer GPU"),
])  # fmt: skip
def test_a_broken_triton_is_mended_by_what_it_lacks(monkeypatch, capability, compiler, wanted):
    told(monkeypatch, gpu=True, triton=False, compiler=compiler)
    monkeypatch.setattr(_probes, "installed", lambda _name: True)
    monkeypatch.setattr(_probes, "compiler", lambda: (compiler, "not found"))
    monkeypatch.setattr(_repairs.platform, "system", lambda: "Linux")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    for key in ("triton", "compile"):
        assert row(key).state == "partly"
        assert wanted in row(key).repair


@pytest.mark.slow
def test_a_profile_writes_nothing_to_standard_error():
    """A red box in a notebook, with a time and a process id that differ on every machine."""
    code = (
        "import torch; from labkit import _profiling; step = torch.compile(lambda: torch.ones(64).sin() + 1)\n"
        "print(_profiling.runs_compiled(lambda: torch.ones(3)), _profiling.runs_compiled(step))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"False {lab.hardware.can_compile('cpu')}\n", "")
