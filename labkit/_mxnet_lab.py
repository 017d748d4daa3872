"""MXNetLab: a chain of operations in Gluon, eager and hybridized: where does one graph instead of many calls pay?"""

from __future__ import annotations

from dataclasses import dataclass

from labkit import _enough_time, comparison, mx, plots
from labkit._lab import Choice, Lab, Number, Question, Table, step, with_guess
from labkit._mxnet_counts import EngineCalls, engine_calls
from labkit.language import t
from labkit.units import ratio, seconds


@dataclass(frozen=True)
class Hybridized:
    """A chain of ``pairs`` of a product and a tanh on ``side`` x ``side`` numbers; ``calls`` into the engine by name:
    eager, hybrid, static."""

    pairs: int
    side: int
    calls: dict[str, EngineCalls]
    comparison: comparison.Comparison

    def card(self) -> dict:
        calls = {name: [seen.operations, seen.graphs] for name, seen in self.calls.items()}
        return {"format": 1, "kind": "mxnet lab", "pairs": self.pairs, "side": self.side, "engine_calls": calls,
                "comparison": self.comparison.card()}  # fmt: skip


class MXNetLab(Lab):
    """How much does ``hybridize()`` gain, from tiny operations to large ones?"""

    key = "09-mxnet"
    packages = ("mxnet",)

    def title(self) -> str:
        return t("MXNetLab: many calls or one graph?")

    def about(self) -> str:
        return t("A chain of operations in Gluon, measured three ways: eager, hybridized, and hybridized with fixed "
                 "memory. Short operations wait for the calls, long ones for the arithmetic.")  # fmt: skip

    def controls(self):
        return [
            Choice("pairs", t("Pairs of operations in the chain"), (1, 5, 20, 60, 120), default=60),
            Choice("side", t("Side of the square tensor"), (4, 64, 256, 1024), default=64),
            Number("budget_s", t("Time for measuring (seconds)"), 2.0, 0.3, 20.0),
        ]

    def question(self) -> Question:
        return Question(t("How many times as fast as eager will the graph with fixed memory be?"), "x")

    @staticmethod
    def measure(*, pairs: int, side: int, budget_s: float) -> Hybridized:
        return hybridized(pairs, side, budget_s=budget_s)

    def measured(self, value: Hybridized):
        return value.comparison.ratio("static")

    def table(self, value: Hybridized) -> Table:
        rows = []
        for name in value.comparison.names:
            r, calls = value.comparison.ratio(name), value.calls[name]
            interval = "" if name == "eager" else f"{ratio(r.low)} – {ratio(r.high)}"
            rows.append([name, seconds(value.comparison.medians_s[name]), ratio(r.value), interval,
                         str(calls.operations + calls.graphs)])  # fmt: skip
        return Table([t("name"), t("median"), t("times as fast"), t("interval"), t("calls into the engine")], rows)

    def figure(self, value: Hybridized, guess: float | None):
        return with_guess(plots.bars(value.comparison), x=guess)

    def verdict(self, value: Hybridized) -> str:
        return value.comparison.sentence("static")

    def why(self, value: Hybridized) -> str:
        each_s = value.comparison.medians_s["eager"] / (2 * value.pairs)
        return t("Eager calls the engine {count} times, a graph once. One operation takes about {time} in eager mode: "
                 "the more of it is arithmetic, the less there is to gain.", count=value.calls["eager"].operations,
                 time=seconds(each_s))  # fmt: skip


def hybridized(pairs: int, side: int, *, budget_s: float, clock=None) -> Hybridized:
    """Count and time the chain of ``pairs`` three ways. Raises MXNetUnavailableError where there is no MXNet."""
    module = mx.load()
    nets = {name: _chain(module, pairs) for name in ("eager", "hybrid", "static")}
    nets["hybrid"].hybridize()
    nets["static"].hybridize(static_alloc=True, static_shape=True)
    x = module.nd.random.normal(shape=(side, side))
    step(t("counting the calls …"), 0.1)
    for net in nets.values():
        net(x).wait_to_read()  # a hybridized net builds its graph in its first call
    calls = {name: engine_calls(net, x) for name, net in nets.items()}
    step(t("timing …"), 0.3)
    candidates = {name: (lambda net=net: net(x)) for name, net in nets.items()}
    return Hybridized(pairs, side, calls, _enough_time.compare(candidates, budget_s=budget_s, clock=clock))


def _chain(module, pairs: int):
    class Chain(module.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            for _ in range(pairs):
                x = F.tanh(x * 1.01)
            return x

    return Chain()
