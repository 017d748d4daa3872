"""Lesson 03, kernel fusion: its checks, and everything that the lesson calls, under one name."""

from __future__ import annotations

import math

from labkit._callables import BudgetTooSmallError
from labkit._cpp_kernels import CompileError, cpp_function, patience
from labkit.exercises import exercise
from labkit.language import t
from labkit.lessons.fusion import SWISH_CPP, agree, answer, bandwidth_share, saved_bytes, swish_backward, swish_forward
from labkit.lessons.l01 import page_faults
from labkit.lessons.traffic import traffic
from labkit.lessons.triton_stand_in import OutOfBoundsError, launch, triton_or_stand_in
from labkit.tasks import End

NEEDS = ("compiler",)
SMALLER_WITHOUT = ("gpu", "triton", "compile")

__all__ = [
    "SWISH_CPP", "agree", "answer", "bandwidth_share", "cpp_function", "launch", "page_faults", "patience",
    "saved_bytes", "swish_backward", "swish_forward", "traffic", "triton_or_stand_in",
]

# What the learner's C++ loop of exercise 03-2 stands in; the lesson prints it.
RESIDUAL_CPP = """#include <ATen/Parallel.h>

extern "C" void residual(const float* x, const float* r, float* out, int64_t n) {{
  at::parallel_for(0, n, 32768, [=](int64_t begin, int64_t end) {{
    for (int64_t i = begin; i < end; ++i) {{
{body}
    }}
  }});
}}
"""
_GUARD = 64  # elements behind the output that a right kernel leaves alone


@exercise("03-1", points=5)
def bytes_moved(task):
    """``bytes_moved(n_ops, n, itemsize)`` -> bytes read and written when every operation has its own kernel."""
    cases = [(task.rng.randint(2, 9), task.rng.randint(1000, 10**6), task.rng.choice([1, 2, 4, 8])) for _ in range(6)]
    got = [task.number(*case) for case in cases]
    truth = [_moved(*case) for case in cases]
    if got != truth:
        task.expect(not _all(got, truth, 2), t("Exactly half of the right number: you left out the writes."))
        task.expect(got != [2 * n * itemsize for _, n, itemsize in cases], t(
            "That is the fused kernel. Here every operation reads and writes for itself."))
        task.expect(got != [2 * n_ops * n for n_ops, n, _ in cases], t(
            "Those are elements. Multiply by `itemsize`, the bytes of one element."))
        task.expect(got != [(n_ops + 1) * n * itemsize for n_ops, n, itemsize in cases], t(
            "A tensor in between is written by one operation and read again by the next: two trips."))
    with task.part(2, t("one operation")):
        task.expect(task.number(1, 1000, 4) == _moved(1, 1000, 4), t(
            "Take one operation: how much is read, how much written?"))
    with task.part(3, t("a chain of operations")):
        task.expect(got == truth, t("Each operation has its own kernel, so each reads and writes again."))


def _moved(n_ops: int, n: int, itemsize: int) -> int:
    """Run the chain on paper: memory holds a tensor, each operation carries every element out and back."""
    return sum(n * itemsize + n * itemsize for _ in range(n_ops))


def _all(got, truth, factor) -> bool:
    return all(factor * g == w for g, w in zip(got, truth, strict=True))


@exercise("03-2", points=8, limit_s=150)
def residual_in_cpp(task):
    """``loop_body()`` -> C++ text that computes ``relu(x * 0.5 + r)`` for one ``i`` in one go."""
    import torch

    body = task.call(returns=str)
    kernel = None
    with task.part(2, t("it compiles")):
        try:
            kernel = cpp_function("residual", RESIDUAL_CPP.format(body=body))
        except (CompileError, RuntimeError) as error:
            task.fail(str(error))
    with task.part(4, t("right on fresh inputs")):
        task.expect(kernel, t("First it has to compile."))
        for n in (1, task.rng.randint(2, 70), task.rng.randint(10**5, 2 * 10**5)):
            generator = torch.Generator().manual_seed(task.rng.randrange(2**31))
            x, r = torch.randn(2, n, generator=generator).mul_(4).unbind()
            behind = torch.full((n + _GUARD,), math.inf)
            kernel(x.clone(), r.clone(), behind[:n])
            _compare(task, behind[:n], x, r)
            task.expect(behind[n:].isinf().all(), t("Your loop writes beyond the end: use only `i`, never `i + 1`."))
    with task.part(2, t("not slower than three separate kernels")):
        task.expect(kernel and not task.parts[-1][2], t("First it has to be right."))
        task.expect(_high_end(kernel) >= 1.0, t(
            "Right, but slower than eager. Read each element once, keep the value in a local `float`, write once."))


def _high_end(kernel) -> float:
    """High end of the interval of (eager time / time of ``kernel``), on one thread, so that a busy core matters less.

    Infinite when the machine is too busy to say anything: a right answer must not lose marks to other programs.
    """
    import torch

    import labkit as lab

    x, r, out = torch.randn(3, 2**18).unbind()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        pair = lab.compare({"eager": lambda: _eager(x, r, out), "fused": lambda: kernel(x, r, out)}, budget_s=0.5)
        for _ in range(2):
            pair = pair.again(1.0) if pair.ratio("fused").high < 1.0 else pair
    except BudgetTooSmallError:
        return math.inf
    finally:
        torch.set_num_threads(threads)
    return pair.ratio("fused").high


def _eager(x, r, out):
    import torch

    return torch.mul(x, 0.5, out=out).add_(r).relu_()


def _compare(task, got, x, r) -> None:
    """End the part with the hint that fits unless ``got`` is relu(x * 0.5 + r)."""
    import torch

    def is_(other):
        return torch.allclose(got, other, rtol=1e-5, atol=1e-5)

    if is_(torch.relu(x * 0.5 + r)):
        return
    task.expect(not got.isinf().all(), t("`out[i]` was never written."))
    task.expect(not is_(x * 0.5 + r) or x.numel() < 3, t("ReLU is missing: what is below zero becomes zero."))
    task.expect(not is_(torch.relu(x * 0.5)), t("`r` is missing: add `r[i]` before ReLU."))
    task.expect(not is_(torch.relu(x + r)), t("The factor 0.5 is missing."))
    task.expect(not is_(torch.relu(x * 0.5) + r), t("ReLU comes last: first multiply and add, then cut off."))
    task.fail(t("Compare with `torch.relu(x * 0.5 + r)`: multiply, add, ReLU, in this order, for one element."))


@exercise("03-3", points=5)
def residual_in_triton(task):
    """``residual_kernel``, a Triton kernel of ``relu(x * 0.5 + r)``: counted and judged on the stand-in."""
    import torch

    fn = getattr(task.answer, "fn", task.answer)
    block = 64
    n = block * task.rng.randint(2, 5) + task.rng.randint(1, block - 1)  # the last block is never full
    generator = torch.Generator().manual_seed(task.seed)
    x, r = torch.randn(2, n, generator=generator).mul_(4).unbind()
    out = torch.full((n,), math.inf)

    def run(programs, size):
        try:
            return launch(fn, (programs,), x.clone(), r.clone(), out[:size], size, BLOCK=block)
        except OutOfBoundsError as error:
            task.fail(str(error))

    if not run(2, 2 * block).stores:
        raise End("todo", "")
    with task.part(2, t("whole blocks")):
        task.expect(not out[block:2 * block].isinf().any(), t(
            "Only the first block was filled: use `tl.program_id(0) * BLOCK`."))
        _compare(task, out[:2 * block], x[:2 * block], r[:2 * block])
    with task.part(2, t("a last block that is not full")):
        out.fill_(math.inf)
        run(-(-n // block), n)
        _compare(task, out, x, r)
    with task.part(1, t("three trips for each element")):
        counts = run(-(-n // block), n)
        task.expect(counts.loads == 2 * n and counts.stores == n, t(
            "Wanted: two reads and one write for each element. Counted: {loads} reads and {stores} writes for {n} "
            "elements. Load once, keep the value, store once.", loads=counts.loads, stores=counts.stores, n=n))


@exercise("03-4", points=5)
def best_speed_up(task):
    """``best_speed_up(flops, bytes_before, bytes_after, flop_rate, bandwidth)`` -> the most that fusing can give."""
    memory, compute, mixed = [], [], []
    for _ in range(4):
        rate, bandwidth = task.rng.uniform(5e10, 5e12), task.rng.uniform(1e10, 1e12)
        after = task.rng.uniform(1e6, 1e9)
        before = after * task.rng.uniform(2, 6)
        memory.append((after / bandwidth * rate * 0.1, before, after, rate, bandwidth))
        compute.append((before / bandwidth * rate * 10, before, after, rate, bandwidth))
        mixed.append(((before * after) ** 0.5 / bandwidth * rate, before, after, rate, bandwidth))
    everything = [*memory, *compute, *mixed]
    got, truth = [task.number(*case) for case in everything], [_bound(*case) for case in everything]
    if not _close(got, truth):
        task.expect(not _close(got, [1 / value for value in truth]), t(
            "Upside down: time before divided by time after, so that above 1 means faster."))
        task.expect(not _close(got, [b / a for _, b, a, _, _ in everything]), t(
            "You compared only the bytes. A kernel that waits for arithmetic gains nothing from fewer bytes."))
        task.expect(not _close(got, [(f / p + b / w) / (f / p + a / w) for f, b, a, p, w in everything]), t(
            "You added the two times. Arithmetic and data movement run side by side: the longer one decides, `max`."))
    with task.part(2, t("it waits for memory")):
        task.expect(_close(got[:4], truth[:4]), t("Little arithmetic: the ratio of the bytes decides."))
    with task.part(2, t("it waits for arithmetic")):
        task.expect(_close(got[4:8], truth[4:8]), t("Much arithmetic: fusing leaves the FLOPs as they are, so 1.0."))
    with task.part(1, t("in between")):
        task.expect(_close(got[8:], truth[8:]), t(
            "Before fusing it waits for memory, afterwards for arithmetic: take `max` of the two times, before and "
            "after."))


def _bound(flops, before, after, rate, bandwidth) -> float:
    return max(flops / rate, before / bandwidth) / max(flops / rate, after / bandwidth)


def _close(got, truth) -> bool:
    return all(math.isclose(g, w, rel_tol=1e-6) for g, w in zip(got, truth, strict=True))
