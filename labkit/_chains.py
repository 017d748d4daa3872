"""Chains of element-wise operations for FusionLab: as Python, as eager steps in one buffer, as one C++ or Triton loop.

A chain of length n takes the first n of: times 0.5, plus 1, ReLU, times 2, minus 3, and so on again from the start.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable

import torch

from labkit import hardware

# Python on the value before, the same in C++ on a float v, and in place on a tensor.
_STEPS = (
    ("{v} * 0.5", "v * 0.5f", lambda y: y.mul_(0.5)),
    ("{v} + 1.0", "v + 1.0f", lambda y: y.add_(1.0)),
    ("torch.relu({v})", "v < 0.0f ? 0.0f : v", lambda y: y.relu_()),
    ("{v} * 2.0", "v * 2.0f", lambda y: y.mul_(2.0)),
    ("{v} - 3.0", "v - 3.0f", lambda y: y.sub_(3.0)),
)
_CPP = """#include <ATen/Parallel.h>

extern "C" void chain_{length}(const float* in, float* out, int64_t n) {{
  at::parallel_for(0, n, 32768, [=](int64_t begin, int64_t end) {{
    for (int64_t i = begin; i < end; ++i) {{
      float v = in[i];
{body}
      out[i] = v;
    }}
  }});
}}
"""


def steps(length: int):
    return [_STEPS[k % len(_STEPS)] for k in range(length)]


def python_source(length: int) -> str:
    """The chain as a Python function ``chain(x, out)`` that leaves its result in ``out``."""
    lines, before = [], "x"
    for k, (text, _cpp, _in_place) in enumerate(steps(length), 1):
        lines.append(f"    v{k} = {text.format(v=before)}")
        before = f"v{k}"
    return "\n".join(["def chain(x, out):", *lines, f"    return out.copy_({before})", ""])


def python_chain(length: int) -> Callable:
    """That function; its source can be found by whoever prints its lines."""
    source, name = python_source(length), f"<chain of {length}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    made: dict = {"torch": torch}
    exec(compile(source, name, "exec"), made)
    return made["chain"]


def eager_chain(length: int) -> Callable:
    """``f(x, out)``: one kernel a step, all in ``out``; only the first reads ``x``."""
    rest = [in_place for _python, _cpp, in_place in steps(length)[1:]]

    def run(x, out):
        torch.mul(x, 0.5, out=out)
        for in_place in rest:
            in_place(out)
        return out

    return run


def cpp_source(length: int) -> str:
    """The chain as one C++ loop: each element is read once and written once."""
    body = "\n".join(f"      v = {cpp};" for _python, cpp, _in_place in steps(length))
    return _CPP.format(length=length, body=body)


def fused_chain(length: int, dtype: torch.dtype) -> Callable | None:
    """``f(x, out)`` written by hand as one kernel: C++ on a CPU, Triton on a GPU; None where there is none."""
    if hardware.has_cuda():
        if not hardware.has_triton():
            return None
        from labkit._chain_triton import triton_chain

        return triton_chain(length)
    if dtype != torch.float32 or not hardware.has_compiler():
        return None
    from labkit._cpp_kernels import cpp_function

    return cpp_function(f"chain_{length}", cpp_source(length), say=lambda _text: None)


def bytes_moved(length: int, n: int, itemsize: int, *, fused: bool) -> int:
    """Bytes read and written: twice the tensor for every kernel, and a fused chain is one kernel."""
    return 2 * n * itemsize * (1 if fused else length)
