"""CompileLab: a model eager and compiled; what compiling costs, what it gives, and when it has paid for itself."""

from __future__ import annotations

import math

from labkit import comparison, hardware, models, plots
from labkit._compiled_model import DEFAULT, TASKS, WAYS, Compiled, compile_and_compare
from labkit._lab import Choice, Lab, Number, Question, Table
from labkit.language import t
from labkit.units import ratio, seconds

FAMILIES = (*models.FAMILIES, "conv_stack")
SHARES = (0.25, 0.5, 1.0)


class CompileLab(Lab):
    """Does compiling this model pay, and from which step on? Also TorchScript: ``CompileLab(way="TorchScript")``."""

    key = "05-compile"
    limit_s = 300.0

    def title(self) -> str:
        return t("CompileLab: what does compiling cost, what does it give?")

    def about(self) -> str:
        return t("A new combination takes up to a minute the first time: that is the compiler, and its seconds are "
                 "part of the result. Training steps use plain SGD, with dropout off, so that results can be "
                 "compared.")  # fmt: skip

    def controls(self):
        return [
            Choice("family", t("Model"), FAMILIES, default="mlp"),
            Choice("task", t("Task"), TASKS, show={"inference": t("inference"), "training": t("training step")}.get),
            Choice("way", t("Compiler and mode"), WAYS, default=DEFAULT),
            Choice("share", t("Share of the batch"), SHARES, default=1.0, show=lambda part: f"{round(100 * part)}%"),
            Choice("lines", t("Show which line became which kernel (compiles once more)"), (False, True),
                   show=lambda wanted: t("yes") if wanted else t("no")),
            Number("budget_s", t("Time for measuring (seconds)"), 2.0, 0.3, 20.0),
        ]  # fmt: skip

    def question(self) -> Question:
        return Question(t("How many times as fast as eager will it be?"), "x")

    @staticmethod
    def measure(*, family: str, task: str, way: str, share: float, lines: bool, budget_s: float) -> Compiled:
        return compile_and_compare(family, task, way, share=share, with_lines=lines, budget_s=budget_s)

    def measured(self, value: Compiled) -> comparison.Ratio:
        return value.ratio

    def table(self, value: Compiled) -> Table:
        rows = []
        for name, kernels in (("eager", value.eager_operators), (value.way, value.kernels_text)):
            r = value.comparison.ratio(name)
            interval = "" if name == "eager" else f"{ratio(r.low)} – {ratio(r.high)}"
            first_s = value.first_s if name == value.way else value.comparison.measurements["eager"].first_s
            rows.append([name, seconds(value.comparison.medians_s[name]), ratio(r.value), interval, seconds(first_s),
                         str(kernels)])  # fmt: skip
        return Table([t("name"), t("median"), t("times as fast"), t("interval"), t("first call"), t("kernels")], rows)

    def figure(self, value: Compiled, guess: float | None):
        pays = value.pays_from.steps
        end = 2 * pays if math.isfinite(pays) and pays > 0 else max(10, round(20 * value.compile_s / value.eager_s))
        x = [round(end * k / 4) for k in range(5)]
        series = {"eager": [steps * value.eager_s for steps in x],
                  value.way: [value.compile_s + steps * value.fast_s for steps in x]}  # fmt: skip
        if guess is not None and guess > 0:
            series[t("your guess")] = [value.compile_s + steps * value.eager_s / guess for steps in x]
        return plots.lines(x, series, xlabel=lambda: t("steps"), ylabel=lambda: t("seconds in all, compiling included"))

    def verdict(self, value: Compiled) -> str:
        return f"{value.comparison.sentence(value.way)} {value.pays_from}"

    def why(self, value: Compiled) -> list[str]:
        reasons = [t("Eager starts {eager} operators; after compiling: {compiled}.", eager=value.eager_operators,
                     compiled=value.kernels_text)]  # fmt: skip
        if value.breaks is not None:
            reasons.append(str(value.breaks))
        if value.fell_back:
            reasons.append(t("The compiled function ran eagerly: the compiler gave it up, so nothing can be gained."))
        if not hardware.has_cuda():
            reasons.append(t("Measured on the CPU: on a GPU the order may be another one."))
        return reasons

    def more(self, value: Compiled) -> str:
        return value.lines.html() if value.lines is not None else ""
