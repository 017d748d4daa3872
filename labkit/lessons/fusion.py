"""What lesson 03 says about its measurements, and its fused activation for training."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from labkit import marks, units
from labkit.language import t

# Hard-swish, z * clamp(z + 3, 0, 6) / 6 (Howard et al. 2019, MobileNetV3), and its derivative: 0 below -3, 1 above 3,
# (2z + 3) / 6 in between.
SWISH_CPP = """#include <ATen/Parallel.h>

extern "C" void swish_forward(const float* z, float* out, int64_t n) {
  at::parallel_for(0, n, 32768, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float gate = z[i] + 3.0f;
      gate = gate < 0.0f ? 0.0f : gate;
      gate = gate > 6.0f ? 6.0f : gate;
      out[i] = z[i] * gate / 6.0f;
    }
  });
}

extern "C" void swish_backward(const float* z, const float* grad, float* out, int64_t n) {
  at::parallel_for(0, n, 32768, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float slope = (2.0f * z[i] + 3.0f) / 6.0f;
      slope = z[i] < -3.0f ? 0.0f : slope;
      slope = z[i] > 3.0f ? 1.0f : slope;
      out[i] = grad[i] * slope;
    }
  });
}"""


def swish_forward(z, out):
    """Hard-swish by separate torch operations, for machines without a C++ compiler."""
    return torch.mul(z, torch.clamp(z + 3.0, 0.0, 6.0) / 6.0, out=out)


def swish_backward(z, grad, out):
    """Its gradient, likewise: torch's clamp passes a gradient at both ends of its range."""
    slope = torch.where(z < -3.0, 0.0, torch.where(z > 3.0, 1.0, (2.0 * z + 3.0) / 6.0))
    return torch.mul(grad, slope, out=out)


def agree(expected, got) -> bool:
    """The correctness rule of the lesson's comparisons, quick on large tensors: float32 rounding may differ."""
    return torch.allclose(expected, got, rtol=1e-4, atol=1e-4)


def saved_bytes(fn, *args) -> int:
    """Bytes of the tensors that ``fn(*args)`` keeps for its backward pass, each counted once."""
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = fn(*args)  # held, so that no storage is freed and its address used again
    del result
    return sum(kept.values())


@dataclass(frozen=True)
class Sentence:
    """A sentence made of measured numbers, in the language of the moment."""

    text: str

    def __str__(self):
        return self.text

    __repr__ = __str__

    def _repr_html_(self):
        return marks.box(self.text, "", "#0b57d0")


def bandwidth_share(comparison, kernel: str, copy: str, moved_bytes: int) -> Sentence:
    """How much of the copy's bandwidth a kernel reaches that moves the same bytes, from one interleaved comparison."""
    share = comparison.ratio(kernel).value / comparison.ratio(copy).value
    # Not from the kernel's own median: the paired ratio is the better estimate, and the sentence must agree with it.
    copied = moved_bytes / comparison.medians_s[copy]
    return Sentence(t(
        "{kernel} moves {rate}, {copy} {copy_rate}: {kernel} reaches {share}% of the copy's bandwidth.", kernel=kernel,
        copy=copy, rate=units.bandwidth(share * copied), copy_rate=units.bandwidth(copied),
        share=units.significant(100 * share, 2)))


def answer(cases: dict) -> Sentence:
    """What "2-3x faster" became here: ``cases`` maps a name to ``(comparison, candidate)``."""
    ratios = {name: comparison.ratio(candidate).value for name, (comparison, candidate) in cases.items()}
    above = [name for name, value in ratios.items() if value >= 2]
    return Sentence(t(
        'The claim says "2-3x faster". Fusing gave here: {shown}. Twice as fast or more: {above} of {count} cases.',
        shown="; ".join(f"{name} {units.ratio(value)}" for name, value in ratios.items()), above=len(above),
        count=len(ratios)))
