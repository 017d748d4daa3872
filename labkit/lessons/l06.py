"""Lesson 06, choosing for your model: four contests between hand and compiler, the answers, the checks."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from labkit import _enough_time
from labkit._cpp_kernels import cpp_function
from labkit._graph_values import html_table
from labkit._torch_private import reset_dynamo
from labkit.exercises import exercise
from labkit.language import t
from labkit.units import ratio

NEEDS = ("compiler",)
SMALLER_WITHOUT = ("gpu", "compile")

WIDTH = 256  # of a row in row_softmax; the C++ loop knows it

LOOP = """#include <ATen/Parallel.h>
#include <cmath>

extern "C" void {name}({pointers}, float* out, int64_t n) {{
  at::parallel_for(0, n / {step}, 32768 / {step}, [=](int64_t begin, int64_t end) {{
    for (int64_t i = begin; i < end; ++i) {{
      {body}
    }}
  }});
}}"""
ADD_RELU = "float v = x[i] + r[i]; out[i] = v < 0.0f ? 0.0f : v;"
TANH_GATE = """float gate = 0.5f * std::tanh(x[i] * 2.0f + 1.0f) + 0.5f;
      out[i] = gate * x[i] - 0.1f * std::abs(x[i]);"""
ROW_SOFTMAX = """const float* row = x + i * 256; float* to = out + i * 256;
      float top = row[0], sum = 0.0f;
      for (int j = 1; j < 256; ++j) top = row[j] > top ? row[j] : top;
      for (int j = 0; j < 256; ++j) { to[j] = std::exp(row[j] - top); sum += to[j]; }
      for (int j = 0; j < 256; ++j) to[j] /= sum;"""
SMALL_CHAIN = "float v = x[i] * 0.5f + 1.0f; v = v < 0.0f ? 0.0f : v; out[i] = (v * 2.0f - 3.0f) * x[i];"


@dataclass(frozen=True)
class Contest:
    """One job in three versions. ``args`` are float32 CPU tensors: kernels written in C++ run there."""

    name: str
    eager: Callable
    by_hand: Callable
    args: tuple[torch.Tensor, ...]

    def is_right(self) -> bool:
        """Whether the kernel by hand gives what eager gives."""
        return torch.allclose(self.by_hand(*self.args), self.eager(*self.args), rtol=1e-4, atol=1e-5)

    def run(self, budget_s: float):
        """Eager, by hand and compiled, interleaved."""
        reset_dynamo()
        candidates = {"eager": self.eager, "by hand": self.by_hand, "compiled": torch.compile(self.eager)}
        return _enough_time.compare(candidates, *self.args, budget_s=budget_s)


def add_relu(x, r):
    return torch.relu(x + r)


def tanh_gate(x):
    gate = torch.tanh(x * 2.0 + 1.0) * 0.5 + 0.5
    return gate * x - torch.abs(x) * 0.1


def row_softmax(x):
    return torch.softmax(x, dim=1)


def small_chain(x):
    return (torch.relu(x * 0.5 + 1.0) * 2.0 - 3.0) * x


def contests() -> list[Contest]:
    """The four contests; compiles the C++ kernels, or takes them from torch's extension cache."""
    generator = torch.Generator().manual_seed(6)
    x, r = torch.randn(2, 2**21, generator=generator).unbind()
    rows = torch.randn(4096, WIDTH, generator=generator)
    small = torch.randn(512, generator=generator)
    return [
        Contest("add_relu", add_relu, _native("add_relu", ADD_RELU, add_relu, inputs="xr"), (x, r)),
        Contest("tanh_gate", tanh_gate, _native("tanh_gate", TANH_GATE, tanh_gate), (x,)),
        Contest("row_softmax", row_softmax, _native("row_softmax", ROW_SOFTMAX, row_softmax, step=WIDTH), (rows,)),
        Contest("small_chain", small_chain, _native("small_chain", SMALL_CHAIN, small_chain), (small,)),
    ]


def _native(name: str, body: str, eager: Callable, *, inputs: str = "x", step: int = 1) -> Callable:
    """A function of ``inputs`` that allocates its result, as eager does, and fills it by the C++ loop."""
    pointers = ", ".join(f"const float* {letter}" for letter in inputs)
    source = LOOP.format(name=name, pointers=pointers, step=step, body=body)
    kernel = cpp_function(name, source, otherwise=lambda *tensors: tensors[-1].copy_(eager(*tensors[:-1])))
    return lambda *tensors: kernel(*tensors, torch.empty_like(tensors[0]))


def winner_of(found) -> str:
    """Who won a contest: the faster of the two that beat eager by verdict; "eager" where neither did."""
    able = [name for name in found.ratios if found.verdict(name) == "faster"]
    return max(able, key=lambda name: found.ratio(name).value, default="eager")


@dataclass(frozen=True)
class Scoreboard:
    """The contests side by side."""

    results: Mapping[str, object]

    def _table(self):
        heads = [t("job"), t("by hand"), t("compiled"), t("winner")]
        rows = [[name, *(_shown(found.ratio(other)) for other in ("by hand", "compiled")), winner_of(found)]
                for name, found in self.results.items()]  # fmt: skip
        return heads, rows

    def __str__(self):
        heads, rows = self._table()
        return "\n".join("  ".join(f"{cell:20s}" for cell in row).rstrip() for row in (heads, *rows))

    __repr__ = __str__

    def _repr_html_(self):
        return html_table(*self._table())


@dataclass(frozen=True)
class ClaimsTable:
    """Published claims: nothing measured here, so the same text everywhere."""

    claims: tuple

    def _rows(self):
        for claim in self.claims:
            low, high = ratio(claim.claim_low), ratio(claim.claim_high)
            yield [claim.technique, claim.task, low if low == high else f"{low}–{high}", claim.hardware,
                   claim.versions, claim.date, claim.source]  # fmt: skip

    def __repr__(self):
        return "\n".join("  ".join(row) for row in self._rows())

    def _repr_html_(self):
        heads = [t("what was done"), t("task"), t("times as fast"), t("hardware"), t("versions"), t("date"),
                 t("source")]  # fmt: skip
        table = html_table(heads, self._rows())
        for claim in self.claims:
            source = html.escape(claim.source)
            table = table.replace(f">{source}</td>", f'><a href="{html.escape(claim.url)}">{source}</a></td>', 1)
        return table


@dataclass(frozen=True)
class Answers:
    """This lesson's part of the claims, answered from the learner's own runs."""

    advices: Mapping[str, object]  # model -> Advice
    results: Mapping[str, object]  # contest -> Comparison

    def sentences(self) -> list[str]:
        best = {name: advice.best.ratio.value for name, advice in self.advices.items()}
        compiled = [a for a in self.advices.values() if any(r.name == "compiled" and r.ratio for r in a.rows)]
        won = [winner_of(found) for found in self.results.values()]
        gained = sum(value > 1 for value in best.values())
        return [
            t('"2 to 3 times faster": the best choice reached {shown}; at least 2 in {above} of {count} models.',
              shown=", ".join(f"{name} {ratio(value)}" for name, value in best.items()),
              above=sum(value >= 2 for value in best.values()), count=len(best)),
            t('"The hardware you own can give more": {gained} of {count} models got faster by verdict on this machine, '
              "without new hardware.", gained=gained, count=len(best)),
            t('"Sometimes fusion helps more, sometimes the compiler": of {count} jobs the kernel by hand won {hand}, '
              "the compiler {compiler}, eager {eager}.", count=len(won), hand=won.count("by hand"),
              compiler=won.count("compiled"), eager=won.count("eager")),
            t('"torch.compile does it all by itself": it was the best choice for {best} of the {count} models it was '
              "tried on.", best=sum(a.best.name == "compiled" for a in compiled), count=len(compiled)),
        ]  # fmt: skip

    def __repr__(self):
        return "\n".join(self.sentences())

    def _repr_html_(self):
        return "<ul>" + "".join(f"<li>{html.escape(line, quote=False)}</li>" for line in self.sentences()) + "</ul>"


def _shown(value) -> str:
    return f"{ratio(value.value)} ({ratio(value.low)}–{ratio(value.high)})"


@exercise("06-1", points=4)
def fusing_at_most(task):
    """``fusing_at_most(spot)`` -> whole time before / whole time after fusing ``spot["ops"]`` operations into one."""
    def spot(memory=True, compute=True, overhead=True):
        return {"memory": memory * task.rng.uniform(1, 9), "compute": compute * task.rng.uniform(1, 9),
                "overhead": overhead * task.rng.uniform(1, 9), "ops": task.rng.randint(2, 9)}  # fmt: skip

    def truth(s):
        return (s["memory"] + s["compute"] + s["overhead"]) / (s["compute"] + (s["memory"] + s["overhead"]) / s["ops"])

    with task.part(2, t("one floor at a time")):
        only_memory, only_compute = spot(compute=False, overhead=False), spot(memory=False, overhead=False)
        got = task.number(dict(only_memory))
        task.expect(not _near(got, 1 / only_memory["ops"]), t("Upside down: before divided by after."))
        task.expect(_near(got, only_memory["ops"]), t("With memory time alone, {ops} operations fused into one are "
                                                      "{ops} times as fast.", ops=only_memory["ops"]))  # fmt: skip
        task.expect(_near(task.number(dict(only_compute)), 1.0),
                    t("With arithmetic alone fusing gains nothing: the ratio is 1."))  # fmt: skip
    with task.part(2, t("all three together")):
        mixed = spot()
        got = task.number(dict(mixed))
        without = (mixed["memory"] + mixed["compute"] + mixed["overhead"]) / (
            mixed["compute"] + mixed["memory"] / mixed["ops"] + mixed["overhead"])  # fmt: skip
        task.expect(not _near(got, without), t("You left the preparations as they were; fusing makes them fewer, too."))
        task.expect(not _near(got, mixed["ops"]), t("The arithmetic stays: it is in the time before and after."))
        task.expect(_near(got, truth(mixed)), t("Add up all three before, add up all three after, and divide."))


@exercise("06-2", points=5)
def winner(task):
    """``winner(rows)`` -> the name of the row that may win, or "eager"."""
    def row(name, value, *, low=None, status="measured"):
        low = value - 0.05 if low is None else low
        return {"name": name, "status": status, "ratio": value, "low": low, "high": value + 0.05}

    base = task.rng.uniform(1.3, 1.6)
    good, better = row("compiled", base), row("bf16", base + 0.3)
    lucky, wrong = row("channels-last", base + 0.8, low=0.9), row("careless", base + 3, status="wrong")
    rows = [good, better, lucky, wrong]
    task.rng.shuffle(rows)
    with task.part(2, t("leaves wrong results out")):
        got = task.call([dict(r) for r in (good, wrong)], returns=str)
        task.expect(got != "careless", t("The row whose `status` is `wrong` won. A wrong result has no speed."))
        task.expect(got == "compiled", t("One row is measured and its interval begins above 1.03: it wins."))
    with task.part(2, t("wants an interval, not luck")):
        got = task.call([dict(r) for r in rows], returns=str)
        task.expect(got != "channels-last", t(
            "You took the largest `ratio`, but its interval reaches below 1.03: that may be luck. Look at `low` "
            "first."))
        task.expect(got == "bf16", t("Among the rows that may win, the one with the largest `ratio` wins."))
    with task.part(1, t("knows when nobody wins")):
        got = task.call([dict(lucky), dict(wrong)], returns=str)
        task.expect(got == "eager", t('When no row may win, return `"eager"`.'))


@exercise("06-3", points=6)
def steps_to_pay(task):
    """``steps_to_pay(compile_s, eager_step_s, compiled_step_s, rate, extra)`` -> least number of steps, or infinity."""
    def case(extra_share):
        eager_s, share = task.rng.uniform(0.1, 0.5), task.rng.uniform(0.4, 0.6)
        rate = task.rng.uniform(50, 200)
        return task.rng.uniform(10, 60), eager_s, eager_s * share, rate, rate * extra_share

    def truth(compile_s, eager_s, compiled_s, rate, extra):
        saved = eager_s * rate - compiled_s * (rate + extra)
        return math.ceil(compile_s * (rate + extra) / saved) if saved > 0 else math.inf

    with task.part(2, t("the same rent")):
        same = case(0.0)
        got = task.number(*same)
        task.expect(not _near(got, same[0] / (same[1] - same[2])) or float(got).is_integer(),
                    t("Whole steps: round up, half a step saves nothing."))  # fmt: skip
        task.expect(got == truth(*same), t(
            "With equal rents: the compile time divided by what each step saves, rounded up."))
    with task.part(2, t("a dearer machine")):
        dearer = case(0.3)
        got = task.number(*dearer)
        ignored = truth(*dearer[:4], 0.0)
        cheap_compile = math.ceil(dearer[0] * dearer[3] / (dearer[1] * dearer[3] - dearer[2] * sum(dearer[3:])))
        task.expect(got != ignored, t("You left the higher rent out: compare money, not seconds."))
        task.expect(got != cheap_compile, t("The compile time is spent on the dearer machine, too."))
        task.expect(got == truth(*dearer), t("Money for n steps: n times the step, times the rent; the compiled side "
                                             "also pays for compiling. When is it no more than eager's?"))  # fmt: skip
    with task.part(2, t("when it never pays")):
        got = task.call(*case(2.0), returns=(float, int), may_be_infinite=True)
        task.expect(got == math.inf, t('When a step saves no money it never pays: return `float("inf")`.'))


def _near(got, truth) -> bool:
    return math.isclose(got, truth, rel_tol=1e-6, abs_tol=1e-9)

