"""FusionLab: one chain of operations, eager, fused by hand, compiled, and beside them a plain copy."""

from __future__ import annotations

import html
import types
from collections.abc import Callable
from dataclasses import dataclass

import torch

from labkit import _chains as chains
from labkit import _compiling, _enough_time, comparison, hardware, plots
from labkit._correctness import ResultsDifferError
from labkit._first_look import first_look
from labkit._kernel_lines import KernelLines, kernel_lines
from labkit._lab import Choice, Lab, Number, Question, Table, step, uninterrupted, with_guess
from labkit._torch_private import TorchMovedError
from labkit.language import t
from labkit.units import bandwidth, ratio, seconds, size

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
_LOOSE = {"float32": 1e-5, "float64": 1e-10, "bfloat16": 2e-1}


@dataclass(frozen=True)
class Fusion:
    """A chain of ``length`` steps on ``n`` elements: ``comparison`` has eager, by hand and compiled where they exist,
    and copy_; ``bytes_moved`` and ``kernels`` are counted by name."""

    length: int
    n: int
    dtype: str
    comparison: comparison.Comparison
    bytes_moved: dict[str, int]
    kernels: dict[str, int]
    lines: KernelLines | None
    left_out: dict[str, str]

    @property
    def tensor_bytes(self) -> int:
        return self.n * DTYPES[self.dtype].itemsize

    @property
    def best(self) -> str:
        """The fastest of the fused ones, eager where there is none."""
        names = [name for name in ("by hand", "compiled") if name in self.comparison.names]
        return max(names, key=lambda name: self.comparison.ratio(name).value, default="eager")

    @property
    def copy_share(self) -> float:
        """The best fused one's speed as a share of the copy's, which moves the same bytes."""
        return self.comparison.ratio(self.best).value / self.comparison.ratio("copy_").value

    def card(self) -> dict:
        return {"format": 1, "kind": "fusion lab", "length": self.length, "n": self.n, "dtype": self.dtype,
                "bytes_moved": dict(self.bytes_moved), "kernels": dict(self.kernels), "left_out": dict(self.left_out),
                "comparison": self.comparison.card()}  # fmt: skip


class FusionLab(Lab):
    """How much does joining a chain of element-wise operations into one kernel gain, and against which ceiling?"""

    key = "03-fusion"

    def title(self) -> str:
        return t("FusionLab: many kernels or one?")

    def about(self) -> str:
        return t("A chain of element-wise operations on one tensor, measured four ways. All write into a ready buffer, "
                 "so that only the trips to memory differ.")  # fmt: skip

    def controls(self):
        def dtype(name: str) -> str:
            emulated = name == "bfloat16" and not hardware.bf16_native()
            return t("{dtype} (emulated here)", dtype=name) if emulated else name

        gpu = hardware.has_cuda()
        sizes = tuple(2**k for k in ((16, 20, 24, 27) if gpu else (12, 16, 20, 22, 24)))
        return [
            Choice("length", t("Operations in the chain"), (1, 2, 3, 5, 8, 12), default=5),
            Choice("n", t("Numbers in the tensor"), sizes, default=2**27 if gpu else 2**22, show="{:,}".format),
            Choice("dtype", t("Number type"), tuple(DTYPES), show=dtype, elsewhere=str),
            Number("budget_s", t("Time for measuring (seconds)"), 2.0, 0.3, 20.0),
        ]

    def question(self) -> Question:
        return Question(t("How many times as fast as eager will the best fused kernel be?"), "x")

    @staticmethod
    def measure(*, length: int, n: int, dtype: str, budget_s: float) -> Fusion:
        return measure_chain(length, n, dtype, budget_s=budget_s)

    def measured(self, value: Fusion):
        return value.comparison.ratio(value.best)

    def table(self, value: Fusion) -> Table:
        rows = []
        for name in value.comparison.names:
            median_s, r = value.comparison.medians_s[name], value.comparison.ratio(name)
            interval = "" if name == "eager" else f"{ratio(r.low)} – {ratio(r.high)}"
            moved = value.bytes_moved[name]
            rows.append([shown(name), seconds(median_s), ratio(r.value), interval, str(value.kernels[name]),
                         size(moved), bandwidth(moved / median_s)])  # fmt: skip
        rows += [[shown(name), why, "", "", "", "", ""] for name, why in value.left_out.items()]
        heads = [t("name"), t("median"), t("times as fast"), t("interval"), t("kernels"), t("bytes moved"), t("rate")]
        return Table(heads, rows)

    def figure(self, value: Fusion, guess: float | None):
        named = {shown(name): name for name in value.comparison.names}
        view = types.SimpleNamespace(names=list(named), baseline="eager",
                                     ratio=lambda name: value.comparison.ratio(named[name]),
                                     verdict=lambda name: value.comparison.verdict(named[name]))  # fmt: skip
        return with_guess(plots.bars(view), x=guess)

    def verdict(self, value: Fusion) -> str:
        if value.best == "eager":
            return t("There was no fused kernel to compare with here.")
        said = value.comparison.sentence(value.best).replace(value.best, shown(value.best), 1)
        return said + " " + t("It runs at {share}% of the copy's speed.", share=round(100 * value.copy_share))

    def why(self, value: Fusion) -> list[str]:
        eager, fused = value.bytes_moved["eager"], 2 * value.tensor_bytes
        reasons = [
            t("Eager: {kernels} kernels, each reads the tensor and writes it, {bytes} in all. Fused: one kernel, "
              "{fused}. By the trips alone at most {most} times as fast.", kernels=value.kernels["eager"],
              bytes=size(eager), fused=size(fused), most=ratio(eager / fused)),
        ]  # fmt: skip
        if 2 * value.tensor_bytes < cache_bytes():
            reasons.append(t("The tensor fits into the cache, where trips are short: here the start of a kernel counts "
                             "more than its bytes."))  # fmt: skip
        if value.length == 1:
            reasons.append(t("One operation is one kernel already: there is nothing to fuse."))
        return reasons

    def more(self, value: Fusion) -> str:
        hand = chains.cpp_source(value.length) if "by hand" in value.kernels and not hardware.has_cuda() else ""
        mine = (f"<details><summary>{html.escape(t('The kernel written by hand'))}</summary>\n"
                f'<pre lang="en" style="line-height:1.3">{html.escape(hand)}</pre></details>')  # fmt: skip
        return (value.lines.html() if value.lines else "") + (mine if hand else "")

    def named(self, name: str) -> str:
        return shown(name)


def shown(name: str) -> str:
    return {"by hand": t("the kernel by hand"), "compiled": t("the compiled kernel")}.get(name, name)


def cache_bytes() -> int:
    from labkit._peaks import last_level_cache_bytes

    return last_level_cache_bytes(hardware.device())


def measure_chain(length: int, n: int, dtype: str, *, budget_s: float) -> Fusion:
    """Build the chain in every way that this machine has, check the results, and compare them interleaved."""
    x = (torch.rand(n, device=hardware.device()) * 4 - 2).to(DTYPES[dtype])
    out, copied = torch.zeros_like(x), torch.zeros_like(x)
    eager = chains.eager_chain(length)
    look_s = first_look(lambda: eager(x, out))
    step(t("eager: {time}. Now the kernels are being built …", time=seconds(look_s)), 0.1)
    ways: dict[str, Callable] = {"eager": lambda: eager(x, out)}
    left_out: dict[str, str] = {}
    with uninterrupted():
        by_hand = chains.fused_chain(length, x.dtype)
    if by_hand is None:
        left_out["by hand"] = t("not written for this number type or machine")
    else:
        ways["by hand"] = lambda: by_hand(x, out)
    lines = None
    if reason := why_not_compiled(x):
        left_out["compiled"] = reason
    else:
        lines, compiled = _compiled(length, x, out)
        ways["compiled"] = lambda: compiled(x, out)
    step(t("eager: {time}. Checking and measuring …", time=seconds(look_s)), 0.6)
    _require_equal(ways, dtype)
    ways["copy_"] = lambda: copied.copy_(x)
    # copy_ computes something else on purpose, and the others have just been checked.
    found = _enough_time.compare(ways, budget_s=budget_s, check=lambda _expected, _got: True)
    fused_bytes = chains.bytes_moved(length, n, x.itemsize, fused=True)
    moved = dict.fromkeys(ways, fused_bytes) | {"eager": chains.bytes_moved(length, n, x.itemsize, fused=False)}
    kernels = dict.fromkeys(ways, 1) | {"eager": length}
    if lines is not None:
        kernels["compiled"] = len(lines.calls)
        moved["compiled"] = sum(call.bytes_moved or 0 for call in lines.calls) or fused_bytes
    return Fusion(length, n, dtype, found, moved, kernels, lines, left_out)


def why_not_compiled(x) -> str:
    """Empty where ``torch.compile`` makes a kernel for tensors like ``x``."""
    if not hardware.can_compile(x.device):
        return _compiling.lacks(x.device)
    if x.device.type == "cuda" and x.dtype == torch.bfloat16 and not hardware.bf16_native():
        return t("torch.compile leaves bfloat16 to eager on a GPU that only emulates it")
    return ""


def _compiled(length: int, x, out) -> tuple[KernelLines | None, Callable]:
    chain = chains.python_chain(length)
    with uninterrupted():
        try:
            lines = kernel_lines(chain, x, out)
        except TorchMovedError:  # a newer torch keeps its book-keeping elsewhere: the measurement goes on without
            lines = None
        compiled = torch.compile(chain)
        compiled(x, out)
    return lines, compiled


def _require_equal(ways: dict[str, Callable], dtype: str) -> None:
    """Raise ResultsDifferError unless every way leaves what eager leaves."""
    expected = ways["eager"]().double()
    for name, run in ways.items():
        distance = (run().double() - expected).abs().max().item()
        if not distance <= _LOOSE[dtype]:
            raise ResultsDifferError(t("`{name}` computes something else than eager: the largest difference is "
                                       "{distance}. A wrong answer is not timed.", name=name,
                                       distance=f"{distance:.2g}"))  # fmt: skip
