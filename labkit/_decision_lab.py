"""DecisionLab: what ``lab.advise()`` finds for a model, as a picture and a table."""

from __future__ import annotations

import html

from labkit import advisor, hardware, models, plots
from labkit._advice_view import cells, heads, sentence, summary
from labkit._lab import Choice, Lab, Number, Question, Table, step, with_guess
from labkit.language import t
from labkit.units import ratio

TASKS = ("inference", "training")
_SHOWN = (0, 1, 2, 4, 5, 7)  # columns of the advice: all but the distance and the memory, which make it too wide


class DecisionLab(Lab):
    """Which optimisation pays for this model, on this machine?

    ``DecisionLab()`` offers the course's models. ``DecisionLab(model=…, inputs=…, loss=…)`` takes your own, as
    ``lab.advise()`` does.
    """

    key = "06-decision"
    limit_s = 420.0

    def __init__(self, *, model=None, inputs=None, loss=None, **start):
        self._own = None if model is None else (model, inputs, loss)
        super().__init__(**start)

    def title(self) -> str:
        return t("DecisionLab: which optimisation pays?")

    def about(self) -> str:
        return t("Every candidate runs on a copy, is checked against eager, and is timed beside it. The budget is "
                 "shared by all of them.")  # fmt: skip

    def controls(self):
        own = [] if self._own else [
            Choice("family", t("Model"), tuple(models.FAMILIES), default="mlp"),
            Choice("task", t("Task"), TASKS, show={"inference": t("inference"), "training": t("training step")}.get),
        ]  # fmt: skip
        return [*own, Number("budget_s", t("Budget for all candidates (seconds)"), 10.0, 3.0, 300.0)]

    def question(self) -> Question:
        return Question(t("How many times as fast as eager will the best one be?"), "x")

    def measure(self, *, budget_s: float, family: str = "", task: str = "") -> advisor.Advice:
        if self._own:
            model, inputs, loss = self._own
        else:
            made = models.FAMILIES[family]()
            model, inputs = made.model.train(task == "training"), made.inputs
            loss = made.loss if task == "training" else None
        tried = iter(range(1, 1000))
        return advisor.advise(model, inputs, loss=loss, budget_s=budget_s,
                              progress=lambda line: step(line, min(0.95, next(tried) / 12)))  # fmt: skip

    def measured(self, value: advisor.Advice):
        return value.best.ratio

    def table(self, value: advisor.Advice) -> Table:
        rows = []
        for row in value.rows:
            texts = cells(row)
            mark = "▶ " if row.name == value.best.name else ""
            rows.append([mark + texts[0], *(texts[k] for k in _SHOWN[1:])])
        return Table([heads()[k] for k in _SHOWN], rows)

    def figure(self, value: advisor.Advice, guess: float | None):
        timed = {f"{row.name} ({cells(row)[1]})": row.ratio for row in value.rows if row.ratio is not None}
        figure = plots.intervals(timed, xlabel=lambda: t("times as fast as eager (above 1 is faster)"), reference=1.0)
        return with_guess(figure, x=guess)

    def verdict(self, value: advisor.Advice) -> str:
        return sentence(value)

    def why(self, value: advisor.Advice) -> list[str]:
        best = value.best
        reasons = [summary(value)]
        if best.name != "eager" and best.peak_bytes and value.rows[0].peak_bytes:
            reasons.append(t("Its peak memory is {ratio} times that of eager.",
                             ratio=ratio(best.peak_bytes / value.rows[0].peak_bytes)))  # fmt: skip
        if not hardware.has_cuda():
            reasons.append(t("Measured on the CPU: on a GPU the order may be another one."))
        return reasons

    def more(self, value: advisor.Advice) -> str:
        if not value.best.code:
            return ""
        return f'<pre lang="en">{html.escape(value.best.code)}</pre>'
