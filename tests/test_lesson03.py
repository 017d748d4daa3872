"""Lesson 03: its checks know right from wrong, each common mistake gets its own hint, its counters count right."""

import itertools
import math
import platform
import re
import subprocess
import threading
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import labkit as lab
from labkit import _cpp_kernels as cpp_kernels
from labkit.lessons import fusion, l03, triton_stand_in
from labkit.lessons.traffic import traffic

SOURCE = Path(__file__).resolve().parent.parent / "notebooks" / "src" / "03_kernel_fusion.md"
pytestmark = pytest.mark.usefixtures("english")
SEEDS = range(6)
BODY = "float v = x[i] * 0.5f + r[i]; out[i] = v < 0.0f ? 0.0f : v;"


@pytest.fixture
def stand_in():
    """The stand-in's ``tl``, whether or not Triton is installed."""
    return triton_stand_in.Language()


def chain(x):
    return torch.relu(x * 0.5 + 1.0) * 2.0 - 3.0


# --- counting -----------------------------------------------------------------------------------------------------


def test_a_chain_makes_two_trips_an_operation():
    counted = traffic(chain, torch.randn(1000))
    assert (counted.kernels, counted.trips, counted.bytes) == (5, 10, 10 * 4000)
    assert [step.name for step in counted.steps] == ["mul", "add", "relu", "mul", "sub"]


def test_in_place_and_preallocated_move_as_much():
    x, out = torch.randn(2, 1000).unbind()
    assert traffic(lambda: torch.mul(x, 0.5, out=out).add_(1).relu_().mul_(2).sub_(3)).bytes == 10 * 4000


def test_views_and_empty_memory_are_no_kernels():
    x = torch.randn(10, 100)
    assert traffic(lambda: torch.empty_like(x).copy_(x.t().t().view(10, 100).detach())).trips == 2
    assert traffic(lambda: x.t()[3:]).kernels == 0


def test_the_backward_pass_is_counted():
    z = torch.randn(1000, requires_grad=True)
    counted = traffic(lambda: torch.autograd.grad((z * z).sum(), z))
    assert [step.name for step in counted.steps][:1] == ["mul"]
    assert counted.kernels > 3


@pytest.mark.parametrize("fn", [chain, torch.sigmoid, lambda x: x + x.flip(0), lambda x: (x @ x.t()).relu()])
def test_bytes_agree_with_the_rooflines_count(fn):
    x = torch.randn(64, 48)
    counted = traffic(fn, x)
    # That count takes a tensor that one operation reads twice once.
    assert counted.bytes == pytest.approx(lab.ceilings.bytes_moved(fn, x), rel=0.25)
    assert counted.kernels == lab.graphs.operators(fn, x).total


def test_the_table_adds_up():
    text = str(traffic(chain, torch.randn(1000)))
    assert text.splitlines()[-1].split() == ["in", "all", "20.0", "kB", "20.0", "kB"]
    assert "<th" in traffic(chain, torch.randn(1000))._repr_html_()


def test_saved_bytes():
    z = torch.randn(1000, requires_grad=True)
    assert fusion.saved_bytes(torch.exp, z) == 4000  # its result
    assert fusion.saved_bytes(lambda z: z + 1, z) == 0
    assert fusion.saved_bytes(lambda z: z * torch.sin(z), z) == 8000  # z once, though two operations want it; sin(z)


# --- C++ ----------------------------------------------------------------------------------------------------------


def lesson_kernel():
    return re.search(r'CHAIN_CPP = """(.*?)"""', SOURCE.read_text(encoding="utf-8"), re.DOTALL)[1]


def test_the_lessons_kernel_is_right_also_for_nan():
    fused = l03.cpp_function("fused_chain", lesson_kernel())
    for n in (1, 7, 100_003):
        x = torch.randn(n)
        x[0] = math.nan
        torch.testing.assert_close(fused(x, torch.ones(n)), chain(x), equal_nan=True)


def test_a_kernel_refuses_tensors_its_pointers_cannot_stand_for():
    fused = l03.cpp_function("fused_chain", lesson_kernel())
    x = torch.randn(10, 10)
    for bad in ((x,), (x, x.double()), (x, x.t()), (x, torch.ones(99)), (x.to("meta"), x)):
        with pytest.raises(TypeError, match="fused_chain"):
            fused(*bad)


def test_a_compile_error_tells_line_and_reason():
    with pytest.raises(cpp_kernels.CompileError, match=r"line 6: .w. was not declared") as caught:
        l03.cpp_function("fused_chain", lesson_kernel().replace("in[i]", "w"))
    assert "/" not in str(caught.value).replace("'", "")  # no path


def test_another_source_torch_or_processor_gets_another_library(monkeypatch):
    seen = {cpp_kernels._fingerprint("a"), cpp_kernels._fingerprint("b")}
    monkeypatch.setattr(cpp_kernels._probes, "cpu_flags", lambda: frozenset({"avx512f"}))
    seen.add(cpp_kernels._fingerprint("a"))
    monkeypatch.setattr(torch, "__file__", "elsewhere")
    seen.add(cpp_kernels._fingerprint("a"))
    assert len(seen) == 4
    assert cpp_kernels._fingerprint("a") == cpp_kernels._fingerprint("a")


def test_without_a_compiler_the_lesson_goes_on(monkeypatch, capsys):
    monkeypatch.setattr(cpp_kernels.hardware, "has_compiler", lambda: False)
    with torch._dynamo.config.patch(suppress_errors=False):  # monkeypatch would leave it deleted
        assert l03.cpp_function("fused_chain", lesson_kernel(), otherwise=chain) is chain
        assert torch._dynamo.config.suppress_errors  # torch.compile falls back too
    assert "sudo apt install g++" in capsys.readouterr().out
    with pytest.raises(RuntimeError, match="no working C"):
        l03.cpp_function("fused_chain", lesson_kernel())


def test_the_fused_activation_and_its_gradient():
    forward = l03.cpp_function("swish_forward", l03.SWISH_CPP)
    backward = l03.cpp_function("swish_backward", l03.SWISH_CPP)
    z = (4 * torch.randn(100_003)).requires_grad_()
    grad = torch.randn_like(z)
    expected = F.hardswish(z)
    (slope,) = torch.autograd.grad(expected, z, grad)
    z = z.detach()
    for f, b in ((forward, backward), (l03.swish_forward, l03.swish_backward)):
        torch.testing.assert_close(f(z, torch.ones_like(z)), expected)
        torch.testing.assert_close(b(z, grad, torch.ones_like(z)), slope)


# Arithmetic on several floats at once, in the assembly of x86 and of Arm.
PACKED = re.compile(
    r"\b(?:v?(?:add|sub|mul)|vfn?m(?:add|sub)\d+)ps\b|\bf(?:add|sub|mul|mla|mls)\s+(?:v\d+\.4s|z\d+\.s)"
)
PARALLEL_FOR = """#include <cstdint>
namespace at {
template <class F> void parallel_for(int64_t begin, int64_t end, int64_t, const F& work) { work(begin, end); }
}"""


def test_the_flag_lets_the_compiler_put_vector_instructions_into_the_lessons_loop(tmp_path):
    from torch.utils.cpp_extension import get_cxx_compiler

    compiler, source = get_cxx_compiler(), tmp_path / "chain.cpp"
    (tmp_path / "ATen").mkdir()
    (tmp_path / "ATen" / "Parallel.h").write_text(PARALLEL_FOR)  # torch's own takes seconds to read
    source.write_text(lesson_kernel())

    def packed(*flags):
        command = [compiler, "-std=c++17", *flags, "-I", str(tmp_path), "-S", "-o", "-", str(source)]
        return len(PACKED.findall(subprocess.run(command, capture_output=True, text=True, check=True).stdout))

    flag, flags = "-fno-trapping-math", cpp_kernels.flags()
    assert packed(*flags) > 0
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    # GCC 12 for AVX2; the lesson says "may", as other compilers, and AVX-512 with its masks, can do without.
    if re.match(r"\S+ \(.*\) 12\.", version) and platform.machine() in ("x86_64", "AMD64"):
        for_avx2 = ["-march=x86-64-v3" if other == "-march=native" else other for other in flags]
        assert packed(*for_avx2) > 0
        assert packed(*(other for other in for_avx2 if other != flag)) == 0


# --- waiting ------------------------------------------------------------------------------------------------------


def test_a_long_wait_is_counted_and_a_short_one_is_silent(monkeypatch):
    said, counted, ticks = [], threading.Event(), itertools.count()

    def say(text):
        said.append(text)
        if len(said) >= 3:
            counted.set()

    monkeypatch.setattr(cpp_kernels, "QUIET_S", 0.0)
    monkeypatch.setattr(cpp_kernels, "EVERY_S", 0.001)
    with cpp_kernels.patience("the compiler", clock=lambda: next(ticks), say=say):
        assert counted.wait(30)
    assert said[0].startswith("Waiting for the compiler")
    assert said[1].startswith("… 1 s")
    assert said[-1].startswith("Ready after")
    monkeypatch.setattr(cpp_kernels, "QUIET_S", 60.0)
    said.clear()
    with cpp_kernels.patience("the compiler", say=said.append):
        pass
    assert said == []


# --- the stand-in for Triton ---------------------------------------------------------------------------------------


def test_stand_in_computes_counts_and_masks(stand_in):
    tl = stand_in

    @triton_stand_in.Kernel
    def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)

    x, out = torch.randn(10), torch.full((12,), math.inf)
    counts = double[lambda meta: (tl.cdiv(10, meta["BLOCK"]),)](x, out[:10], 10, BLOCK=4)
    assert (counts.loads, counts.stores, counts.programs) == (10, 10, 3)
    assert torch.equal(out[:10], 2 * x)
    assert out[10:].isinf().all()


def test_stand_in_finds_a_forgotten_mask(stand_in):
    tl = stand_in

    def no_mask(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))

    triton_stand_in.launch(no_mask, (2,), torch.randn(8), torch.ones(8), 8, BLOCK=4)
    with pytest.raises(triton_stand_in.OutOfBoundsError, match="element 11 of `x_ptr`, which has 10"):
        triton_stand_in.launch(no_mask, (3,), torch.randn(10), torch.ones(10), 10, BLOCK=4)


def test_stand_in_says_what_it_lacks(stand_in):
    with pytest.raises(AttributeError, match="no `tl.dot`"):
        stand_in.dot  # noqa: B018
    with pytest.raises(TypeError, match="pointer"):
        stand_in.load(torch.arange(3))


# --- exercises ----------------------------------------------------------------------------------------------------


def bytes_moved(n_ops, n, itemsize):
    return 2 * n_ops * n * itemsize


def best_speed_up(flops, bytes_before, bytes_after, flop_rate, bandwidth):
    return max(flops / flop_rate, bytes_before / bandwidth) / max(flops / flop_rate, bytes_after / bandwidth)


tl = triton_stand_in.Language()


def residual_kernel(x_ptr, r_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    v = tl.load(x_ptr + offsets, mask=mask) * 0.5 + tl.load(r_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(v, 0.0), mask=mask)


@pytest.mark.parametrize("seed", SEEDS)
def test_right_answers_earn_full_marks_whatever_the_inputs(seed):
    assert lab.check("03-1", bytes_moved, seed=seed).points == 5
    assert lab.check("03-3", residual_kernel, seed=seed).points == 5
    assert lab.check("03-3", triton_stand_in.Kernel(residual_kernel), seed=seed).points == 5
    assert lab.check("03-4", best_speed_up, seed=seed).points == 5


def test_the_right_loop_earns_full_marks():
    assert lab.check("03-2", lambda: BODY, seed=1).points == 8


def test_stubs_earn_nothing():
    for exercise in ("03-1", "03-2", "03-4"):
        result = lab.check(exercise, lambda *arguments: None)
        assert (result.status, result.points) == ("todo", 0)
    result = lab.check("03-3", triton_stand_in.Kernel(lambda x_ptr, r_ptr, out_ptr, n, BLOCK: None))
    assert (result.status, result.points) == ("todo", 0)


@pytest.mark.parametrize(("answer", "points", "said"), [
    (lambda n_ops, n, itemsize: n_ops * n * itemsize, 0, "left out the writes"),
    (lambda n_ops, n, itemsize: 2 * n * itemsize, 0, "That is the fused kernel"),
    (lambda n_ops, n, itemsize: 2 * n_ops * n, 0, "Multiply by `itemsize`"),
    (lambda n_ops, n, itemsize: (n_ops + 1) * n * itemsize, 0, "two trips"),
    (lambda n_ops, n, itemsize: 2 * n_ops**2 * n * itemsize, 2, "own kernel"),
    (lambda n_ops, n, itemsize: 0, 0, "Take one operation"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_03_1(answer, points, said, seed):
    result = lab.check("03-1", answer, seed=seed)
    assert said in result.hint
    assert result.points == points


def as_kernel(fn):
    """A Python function in place of a compiled loop."""
    def kernel(x, r, out):
        out.copy_(fn(x, r))
        return out

    return kernel


@pytest.mark.parametrize(("fn", "said"), [
    (lambda x, r: torch.full_like(x, math.inf), "never written"),
    (lambda x, r: x * 0.5 + r, "ReLU is missing"),
    (lambda x, r: torch.relu(x * 0.5), "`r` is missing"),
    (lambda x, r: torch.relu(x + r), "0.5 is missing"),
    (lambda x, r: torch.relu(x * 0.5) + r, "ReLU comes last"),
    (lambda x, r: torch.sigmoid(x * r) + 9, "multiply, add, ReLU"),
])  # fmt: skip
def test_wrong_loops(monkeypatch, fn, said):
    monkeypatch.setattr(l03, "cpp_function", lambda name, source: as_kernel(fn))
    result = lab.check("03-2", lambda: BODY, seed=2)
    assert said in result.hint
    assert result.points == 2
    assert [bool(hint) for _, _, hint in result.parts] == [False, True, True]  # a wrong loop is not timed


def test_a_loop_that_writes_too_far(monkeypatch):
    def kernel(x, r, out):
        out.copy_(torch.relu(x * 0.5 + r))
        torch.as_strided(out, (1,), (1,), out.numel()).fill_(3.0)
        return out

    monkeypatch.setattr(l03, "cpp_function", lambda name, source: kernel)
    assert "beyond the end" in lab.check("03-2", lambda: BODY, seed=2).hint


def test_a_loop_that_is_right_but_slow(monkeypatch):
    def kernel(x, r, out):
        for _ in range(6):
            out.copy_(torch.relu(x * 0.5 + r))
        return out

    monkeypatch.setattr(l03, "cpp_function", lambda name, source: kernel)
    result = lab.check("03-2", lambda: BODY, seed=2)
    assert "slower than eager" in result.hint
    assert result.points == 6


def test_a_loop_that_does_not_compile():
    result = lab.check("03-2", lambda: "out[i] = x[i] +;", seed=2)
    assert "The C++ compiler refused" in result.hint
    assert result.points == 0


def variant(load_r=True, mask=True, program=True, relu=True, twice=False):
    def kernel(x_ptr, r_ptr, out_ptr, n, BLOCK):
        offsets = tl.program_id(0) * BLOCK * program + tl.arange(0, BLOCK)
        guard = offsets < n if mask else None
        v = tl.load(x_ptr + offsets, mask=guard) * 0.5
        if load_r:
            v = v + tl.load(r_ptr + offsets, mask=guard)
        if twice:
            v = v + 0 * tl.load(r_ptr + offsets, mask=guard)
        tl.store(out_ptr + offsets, tl.maximum(v, 0.0) if relu else v, mask=guard)

    return kernel


@pytest.mark.parametrize(("answer", "points", "said"), [
    (variant(load_r=False), 0, "`r` is missing"),
    (variant(relu=False), 1, "ReLU is missing"),
    (variant(mask=False), 2, "Give the last block a mask"),
    (variant(program=False), 0, "Only the first block"),
    (variant(twice=True), 4, "Load once"),
])  # fmt: skip
def test_wrong_triton_kernels(answer, points, said):
    result = lab.check("03-3", answer, seed=4)
    assert said in result.hint
    assert result.points == points


@pytest.mark.parametrize(("answer", "points", "said"), [
    (lambda *a: 1 / best_speed_up(*a), 0, "Upside down"),
    (lambda flops, before, after, rate, bandwidth: before / after, 0, "compared only the bytes"),
    (lambda f, b, a, p, w: (f / p + b / w) / (f / p + a / w), 0, "added the two times"),
    (lambda f, b, a, p, w: b / a if b / w > f / p else 1.0, 4, "in between"),
    (lambda *a: 1.0, 2, "ratio of the bytes"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_03_4(answer, points, said, seed):
    result = lab.check("03-4", answer, seed=seed)
    assert said in str(result)
    assert result.points == points


# --- sentences ----------------------------------------------------------------------------------------------------


class Found:
    """A comparison with given medians."""

    def __init__(self, **medians_s):
        self.medians_s, self.first = medians_s, next(iter(medians_s.values()))

    def ratio(self, name):
        return lab.comparison.Ratio(*[self.first / self.medians_s[name]] * 3)


def test_sentences_hold_the_measured_numbers():
    pair = Found(fused=0.010, copy_=0.009)
    text = str(fusion.bandwidth_share(pair, "fused", "copy_", 90_000_000))
    assert "9.00 GB/s" in text
    assert "10.0 GB/s" in text
    assert "90%" in text
    said = str(fusion.answer({"chain": (Found(eager=4.0, fused=1.0), "fused"), "conv": (Found(eager=1.0, c=1.0), "c")}))
    assert "chain 4.00; conv 1.00" in said
    assert "1 of 2" in said


def test_a_lock_that_a_killed_compiler_left_does_not_hang_the_lesson(tmp_path, monkeypatch):
    """torch waits for such a lock for ever; ours goes on when it is old, and leaves a young one alone."""
    import os
    import time

    from labkit import _cpp_kernels as cpp_kernels

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    lock = tmp_path / "killed" / "lock"
    lock.parent.mkdir()
    lock.touch()
    began = time.monotonic()
    cpp_kernels._wait_for_others("killed", stale_s=1.0)
    assert 0.5 < time.monotonic() - began < 30
    assert not lock.exists()
    lock.touch()
    os.utime(lock, (1, 1))
    cpp_kernels._wait_for_others("killed")
    assert not lock.exists()
    cpp_kernels._wait_for_others("killed")  # no lock: nothing to wait for
