"""The chain of FusionLab as one Triton kernel; without Triton there is none."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("triton"):
    import triton
    import triton.language as tl

    @triton.jit
    def _chain_kernel(x_ptr, out_ptr, n, LENGTH: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        v = tl.load(x_ptr + offsets, mask=mask)
        for k in tl.static_range(LENGTH):
            if k % 5 == 0:
                v = v * 0.5
            elif k % 5 == 1:
                v = v + 1.0
            elif k % 5 == 2:
                v = tl.where(v < 0.0, 0.0, v)  # tl.maximum would make 0 of NaN
            elif k % 5 == 3:
                v = v * 2.0
            else:
                v = v - 3.0
        tl.store(out_ptr + offsets, v, mask=mask)


def triton_chain(length: int):
    """``f(x, out)`` for a chain of ``length`` steps on CUDA tensors. Needs Triton: see ``hardware.has_triton()``."""

    def run(x, out):
        _chain_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), LENGTH=length, BLOCK=1024)
        return out

    return run
