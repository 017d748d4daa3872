"""ScaleLab: do more data help, do more parameters, and does the law of the small ones still hold for the largest?"""

from __future__ import annotations

from dataclasses import dataclass

from labkit._lab import Choice, Lab, Number, Question, Table, step, with_guess
from labkit.language import t
from labkit.lessons.scaling import TASKS, PowerLaw, Run, fit, run
from labkit.lessons.scaling_view import BY, amount, growth, verdict
from labkit.units import significant

FITTED = 3  # the law is found on so many of the smallest, and held against the largest
WIDTHS = (4, 8, 16, 32, 64, 128)
SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)


@dataclass(frozen=True)
class Growth:
    """Networks that differ in ``by`` alone, from the smallest to the largest, and the law of the first three."""

    by: str
    runs: tuple[Run, ...]
    law: PowerLaw

    @property
    def largest(self) -> Run:
        return self.runs[-1]

    @property
    def last_doubling(self) -> float:
        """Errors of the last but one / errors of the last: above 1 where the last doubling still helped."""
        return self.runs[-2].error / self.runs[-1].error

    def card(self) -> dict:
        return {"format": 1, "kind": "scale lab", "by": self.by, "exponents": list(self.law.exponents),
                "runs": [one.card() for one in self.runs]}  # fmt: skip


class ScaleLab(Lab):
    """How many mistakes are left when parameters or examples are doubled again and again?"""

    key = "10-scale"

    def title(self):
        return t("Bigger, or more data?")

    def about(self):
        return t("Small networks are trained with several seeds each. Only one thing grows: examples or parameters.")

    def controls(self):
        return [
            Choice("task", t("Task"), list(TASKS), show=_task),
            Choice("by", t("What grows"), list(BY), show=amount),
            Choice("width", t("Hidden units, where examples grow"), list(WIDTHS), 64),
            Number("seeds", t("How many seeds"), 4, 2, 12),
            Number("steps", t("Training steps"), 200, 50, 1000),
        ]

    def question(self):
        return Question(t("What percentage will the largest get wrong?"), unit="%")

    @staticmethod
    def measure(*, task, by, width, seeds, steps):
        data, runs = TASKS[task](), []
        sizes = WIDTHS if by == "parameters" else [round(share * len(data.y)) for share in SHARES]
        for k, size in enumerate(sizes):
            step(t("Training {k} of {count} …", k=k + 1, count=len(sizes)), k / len(sizes))
            what = {"width": size} if by == "parameters" else {"width": width, "examples": size}
            runs.append(run(data, seeds=seeds, steps=steps, **what))
        return Growth(by, tuple(runs), fit(runs[:FITTED], by))

    def measured(self, value):
        return 100 * value.largest.error

    def table(self, value):
        heads = [amount(value.by), t("wrong answers"), t("best to worst seed"), t("wrong on known examples")]
        return Table(heads, [[f"{getattr(one, value.by):,}", _percent(one.error),
                              f"{_percent(min(one.errors))} – {_percent(max(one.errors))}", _percent(one.known_error)]
                             for one in value.runs])  # fmt: skip

    def figure(self, value, guess):
        return with_guess(growth(value.runs, value.by, value.law), y=guess)

    def verdict(self, value):
        return str(verdict(value.law, value.largest, value.by))

    def why(self, value):
        low, high = value.largest.spread
        texts = [t("The last doubling divided the mistakes by {ratio}.", ratio=significant(value.last_doubling, 3))]
        if abs(value.last_doubling - 1) * value.largest.error < low + high:
            texts.append(t("That is less than what the seeds differ by: one seed alone could not tell."))
        if value.largest.known_error < value.largest.error / 4:
            texts.append(t("What it was trained on it hardly gets wrong any more: it knows that by heart, and more "
                           "parameters cannot add what the examples do not say."))
        return texts


def _task(name: str) -> str:
    return t("digits -> 0 to 9") if name == "digits" else t("place name -> division")


def _percent(share: float) -> str:
    return f"{significant(100 * share, 3)}%"
