"""What a speed-up is worth: steps until it has paid for itself, hours, money and energy.

Rates are the user's to type: no price is built in, because rents differ and change. Sources of the formulas stand with
the functions; published speed claims come from ``data/claims.csv``.
"""

from __future__ import annotations

import csv
import functools
import io
import math
from dataclasses import dataclass

from labkit._energy import Energy, energy
from labkit.language import t
from labkit.units import seconds, significant

__all__ = [
    "BreakEven", "Energy", "PublishedClaim", "Rental", "break_even", "energy", "price_ratio_to_break_even",
    "published_claims", "rental", "second_device_pays",
]  # fmt: skip

HOUR_S = 3600.0


@dataclass(frozen=True)
class BreakEven:
    """How many steps it takes until a one-off cost (compile time) is earned back."""

    once_s: float
    slow_step_s: float
    fast_step_s: float

    @property
    def saved_per_step_s(self) -> float:
        return self.slow_step_s - self.fast_step_s

    @property
    def steps(self) -> float:
        """The first step by which the time spent once is back; infinite when a step saves nothing."""
        if self.saved_per_step_s <= 0:
            return math.inf
        return math.ceil(self.once_s / self.saved_per_step_s)

    def total_s(self, steps: int) -> tuple[float, float]:
        """Seconds for ``steps`` steps: (without the change, with it and what it costs once)."""
        return steps * self.slow_step_s, self.once_s + steps * self.fast_step_s

    def __str__(self) -> str:
        if math.isinf(self.steps):
            if not self.once_s:
                return t("This never pays: a step saves no time.")
            return t("This never pays: a step saves no time, and {once} are spent first.", once=seconds(self.once_s))
        if not self.once_s:
            return t("It pays from the first step on: nothing is spent first, and each step saves {saved}.",
                     saved=seconds(self.saved_per_step_s))  # fmt: skip
        return t(
            "It pays from step {steps} on: {once} are spent once, then each step saves {saved}.",
            steps=f"{self.steps:,.0f}",
            once=seconds(self.once_s),
            saved=seconds(self.saved_per_step_s),
        )

    def _repr_html_(self) -> str:
        return f"<p>{self}</p>"


def break_even(once_s: float, slow_step_s: float, fast_step_s: float) -> BreakEven:
    """Steps after which ``once_s`` seconds (a compile, a conversion) have paid for themselves.

    steps = once / (slow step - fast step), all in seconds; infinite when the step does not get faster. Raises
    ValueError for negative or zero step times.

    >>> break_even(30.0, 0.20, 0.10).steps
    300
    """
    for value, name in ((slow_step_s, "slow_step_s"), (fast_step_s, "fast_step_s")):
        _positive(value, name)
    if once_s < 0:
        raise ValueError(t("{name} must not be negative, but is {value}.", name="once_s", value=once_s))
    return BreakEven(float(once_s), float(slow_step_s), float(fast_step_s))


@dataclass(frozen=True)
class Rental:
    """Hours and money of a training run on rented machines."""

    hours: float
    money: float
    currency: str
    devices: int
    lost_hours: float

    def saved_against(self, other: Rental) -> float:
        """Money that this run saves beside ``other``; negative when it costs more. The currencies must agree."""
        if self.currency != other.currency:
            raise ValueError(
                t("One run is in {one}, the other in {two}: type both rates in one currency.",
                  one=self.currency, two=other.currency)
            )  # fmt: skip
        return other.money - self.money

    def __str__(self) -> str:
        text = t(
            "{hours} hours on {devices} device(s): {money} {currency}",
            hours=significant(self.hours),
            devices=self.devices,
            money=f"{self.money:,.2f}",
            currency=self.currency,
        )
        if self.lost_hours:
            text += " " + t("(of this, {hours} hours of work done twice after interruptions)",
                            hours=significant(self.lost_hours))  # fmt: skip
        return text

    def _repr_html_(self) -> str:
        return f"<p>{self}</p>"


def rental(
    step_s: float,
    steps: float,
    *,
    rate_per_hour: float,
    currency: str = "BDT",
    devices: int = 1,
    once_s: float = 0.0,
    interruptions_per_hour: float = 0.0,
    lost_per_interruption_s: float = 0.0,
) -> Rental:
    """Hours and money for ``steps`` steps of ``step_s`` seconds at ``rate_per_hour`` for one device.

    ``once_s`` is paid once (a compile). A spot machine is cheaper and may be taken away: give how often that happens
    an hour and how many seconds of work each loses (restart plus what came after the last checkpoint). Every hour of
    work then needs 1 / (1 - interruptions * lost) hours. Raises ValueError for rates, times or counts that make no
    sense, also when interruptions eat all the time.

    >>> run = rental(0.5, 7200, rate_per_hour=150)
    >>> run.hours, run.money, run.currency
    (1.0, 150.0, 'BDT')
    """
    _positive(step_s, "step_s")
    _positive(steps, "steps")
    _positive(devices, "devices")
    for value, name in ((rate_per_hour, "rate_per_hour"), (once_s, "once_s"),
                        (interruptions_per_hour, "interruptions_per_hour"),
                        (lost_per_interruption_s, "lost_per_interruption_s")):  # fmt: skip
        if value < 0:
            raise ValueError(t("{name} must not be negative, but is {value}.", name=name, value=value))
    work_hours = (once_s + step_s * steps) / HOUR_S
    lost_share = interruptions_per_hour * lost_per_interruption_s / HOUR_S
    if lost_share >= 1:
        raise ValueError(
            t("With so many interruptions no work gets done: each hour loses {lost}. Save checkpoints more often.",
              lost=seconds(lost_share * HOUR_S))
        )  # fmt: skip
    hours = work_hours / (1 - lost_share)
    return Rental(hours, hours * rate_per_hour * devices, currency, int(devices), hours - work_hours)


def price_ratio_to_break_even(speed_ratio: float) -> float:
    """How many times the price a machine may cost before its speed stops paying: exactly its speed ratio.

    Money is rate x hours, and hours fall by the speed ratio: 2x speed at 2x the price costs the same.

    >>> price_ratio_to_break_even(2.0)
    2.0
    """
    _positive(speed_ratio, "speed_ratio")
    return float(speed_ratio)


def second_device_pays(scaling_efficiency: float, *, hour_is_worth: float = 0.0, rate_per_hour: float = 1.0,
                       devices: int = 2) -> bool:  # fmt: skip
    """Whether ``devices`` devices cost less than one, counting what an hour of waiting is worth to you.

    The run takes 1 / (devices * efficiency) of the time, at ``devices`` times the rent. By rent alone more devices
    never pay below an efficiency of 1; they pay when the hours saved are worth more to you than the extra rent.

    >>> second_device_pays(0.9), second_device_pays(0.9, hour_is_worth=2.0, rate_per_hour=1.0)
    (False, True)
    """
    _positive(scaling_efficiency, "scaling_efficiency")
    share = 1.0 / (devices * scaling_efficiency)
    return share * (devices * rate_per_hour + hour_is_worth) < rate_per_hour + hour_is_worth


@dataclass(frozen=True)
class PublishedClaim:
    """One published speed claim. Ratios are times faster; below 1 is slower. ``date`` is as precise as the source."""

    id: str
    technique: str
    task: str
    claim_low: float
    claim_high: float
    outcome: str
    measured: str
    hardware: str
    versions: str
    date: str
    source: str
    url: str


@functools.cache
def published_claims() -> tuple[PublishedClaim, ...]:
    """The rows of ``data/claims.csv``: what others published, with hardware, versions and date."""
    from labkit import datasets

    rows = csv.DictReader(io.StringIO(datasets.read("claims.csv").decode("utf-8")))
    ratios = ("claim_low", "claim_high")
    return tuple(PublishedClaim(**row | {name: float(row[name]) for name in ratios}) for row in rows)


def _positive(value: float, name: str) -> None:
    if not value > 0 or not math.isfinite(value):
        raise ValueError(t("{name} must be a positive number, but is {value}.", name=name, value=value))
