"""CostLab: what a speed-up is worth in hours, money and energy; computed from the learner's numbers, not measured."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from labkit import cost, hardware, plots
from labkit._lab import Lab, Number, Question, Table, Text
from labkit._lab_result import worked_out
from labkit.language import t
from labkit.units import seconds, significant

HOUR_S = 3600.0


@dataclass(frozen=True)
class Costs:
    """A run before and after a change; ``power_money`` are what electricity costs for each, in the same currency."""

    before: cost.Rental
    after: cost.Rental
    pays_from: cost.BreakEven
    steps: int
    rate_per_hour: float
    power_per_hour: float  # money for electricity in an hour
    step_s: float
    fast_step_s: float
    once_s: float

    @property
    def currency(self) -> str:
        return self.before.currency

    def money(self, run: cost.Rental) -> float:
        """Rent and electricity of one run."""
        return run.money + run.hours * self.power_per_hour

    @property
    def saved(self) -> float:
        """Money saved by the change; negative when it costs more."""
        return self.money(self.before) - self.money(self.after)

    def spent(self, steps: float) -> tuple[float, float]:
        """Money after ``steps`` steps: (without the change, with it)."""
        an_hour = self.rate_per_hour + self.power_per_hour
        return (steps * self.step_s / HOUR_S * an_hour, (self.once_s + steps * self.fast_step_s) / HOUR_S * an_hour)

    def card(self) -> dict:
        return {"format": 1, "kind": "cost lab", "is_computed": True, "before": asdict(self.before),
                "after": asdict(self.after), "steps": self.steps, "step_s": self.step_s,
                "fast_step_s": self.fast_step_s, "once_s": self.once_s, "rate_per_hour": self.rate_per_hour,
                "power_per_hour": self.power_per_hour, "saved": self.saved,
                "machine": hardware.provenance()}  # fmt: skip


class CostLab(Lab):
    """Hours, money and energy of a training run before and after a change, at your own rates.

    ``CostLab(advice)`` takes step times and compile time from what ``lab.advise()`` measured; else type them.
    """

    key = "06-cost"
    is_measured = False

    def __init__(self, advice=None, **start):
        if advice is not None:
            best = advice.best
            measured = {"step_s": advice.eager_step_s, "ratio": best.ratio.value,
                        "once_s": 0.0 if best.name == "eager" else
                        max(0.0, (best.first_s or 0.0) - advice.eager_step_s)}  # fmt: skip
            start = {**measured, **start}
        super().__init__(**start)

    def title(self) -> str:
        return t("CostLab: what is it worth? (computed from your numbers)")

    def about(self) -> str:
        return t("Nothing is measured here. Type the times that you measured, and the rates that you really pay.")

    def controls(self):
        return [
            Number("step_s", t("Seconds a step now"), 0.2, 1e-6, 3600.0),
            Number("ratio", t("Times as fast after the change"), 1.6, 0.01, 100.0),
            Number("once_s", t("Seconds spent once (compiling)"), 30.0, 0.0, 36000.0),
            Number("steps", t("Steps of the training"), 100_000, 1, 1_000_000_000),
            Number("rate_per_hour", t("Rent for an hour"), 150.0, 0.0, 1e6),
            Text("currency", t("Currency"), "BDT"),
            Number("watts", t("Watts that you pay for yourself"), 0.0, 0.0, 1e5),
            Number("price_kwh", t("Price of a kWh"), 0.0, 0.0, 1e4),
        ]

    def question(self) -> Question:
        return Question(t("How much money will the change save?"))

    @staticmethod
    def measure(*, step_s: float, ratio: float, once_s: float, steps: int, rate_per_hour: float, currency: str,
                watts: float, price_kwh: float) -> Costs:  # fmt: skip
        fast_s = step_s / ratio
        before = cost.rental(step_s, steps, rate_per_hour=rate_per_hour, currency=currency)
        after = cost.rental(fast_s, steps, rate_per_hour=rate_per_hour, currency=currency, once_s=once_s)
        return Costs(before, after, cost.break_even(once_s, step_s, fast_s), steps, rate_per_hour,
                     watts / 1000 * price_kwh, step_s, fast_s, once_s)  # fmt: skip

    def measured(self, value: Costs) -> float:
        return value.saved

    def beside(self, outcome) -> str:
        return worked_out(outcome, "{:z,.2f}".format)

    def table(self, value: Costs) -> Table:
        rows = [[name, seconds(step_s), significant(run.hours), _money(value.money(run), value.currency)]
                for name, step_s, run in ((t("now"), value.step_s, value.before),
                                          (t("after the change"), value.fast_step_s, value.after))]  # fmt: skip
        hours = round(value.before.hours - value.after.hours, 4) or 0.0  # to a third of a second, and never -0
        rows.append([t("saved"), "", significant(hours), _money(value.saved, value.currency)])
        return Table([t("training run"), t("a step"), t("hours"), t("money")], rows)

    def figure(self, value: Costs, guess: float | None):
        most = value.steps if math.isinf(value.pays_from.steps) else max(value.steps, 2 * value.pays_from.steps)
        x = [round(most * k / 5) for k in range(6)]
        before, after = zip(*map(value.spent, x), strict=True)
        series = {t("now"): before, t("after the change"): after}
        if guess is not None:  # where the money after the change would be, had it saved what was guessed
            end = value.spent(value.steps)[0]
            series[t("your guess")] = [money * (end - guess) / end if end else money for money in before]
        currency = value.currency
        return plots.lines(x, series, xlabel=lambda: t("steps"),
                           ylabel=lambda: t("money spent ({currency})", currency=currency))  # fmt: skip

    def verdict(self, value: Costs) -> str:
        money = _money(abs(value.saved), value.currency)
        hours = significant(abs(value.before.hours - value.after.hours))
        saved = round(value.saved, 2)
        if saved > 0:
            return t("The change saves {money} and {hours} hours.", money=money, hours=hours)
        if saved < 0:
            return t("The change costs {money} more.", money=money)
        return t("In money the change makes no difference.")

    def why(self, value: Costs) -> list[str]:
        return [str(value.pays_from), t("Money is hours times the rate: a machine of twice the speed at twice the "
                                        "rent costs the same.")]  # fmt: skip


def _money(amount: float, currency: str) -> str:
    return f"{amount:z,.2f} {currency}"
