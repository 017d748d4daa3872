"""What a learner can set in a lab, described without any widget: ``Choice``, ``Number``, ``Question``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labkit.language import t
from labkit.units import significant


@dataclass(frozen=True)
class Choice:
    """One of a few values. ``show(value)`` is the text for it, ``str`` unless given; the first is the default.

    ``elsewhere(value)`` is the text for a run on another machine, where that of ``show`` is about this one.
    """

    name: str
    label: str
    options: Sequence
    default: object = None
    show: Callable[[object], str] = str
    elsewhere: Callable[[object], str] | None = None

    @property
    def start(self):
        return self.options[0] if self.default is None else self.default

    def read(self, value):
        """``value`` when it is one of the options. Raises ValueError that lists them."""
        if value in self.options:
            return value
        raise ValueError(t("`{name}` can be {options}, not {value!r}.", name=self.name, value=value,
                           options=", ".join(map(repr, self.options))))  # fmt: skip


@dataclass(frozen=True)
class Number:
    """A number from ``low`` to ``high``, whole where ``default`` is."""

    name: str
    label: str
    default: float
    low: float
    high: float

    @property
    def start(self) -> float:
        return self.default

    def read(self, value):
        """``value`` as a number; text may be written with Bengali digits. Raises ValueError outside the bounds."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not self.low <= number <= self.high:
            raise ValueError(t("`{name}` is a number from {low} to {high}, not {value!r}.", name=self.name,
                               value=value, low=_plain(self.low), high=_plain(self.high)))  # fmt: skip
        return round(number) if isinstance(self.default, int) else number


@dataclass(frozen=True)
class Text:
    """A short word, such as a currency's code."""

    name: str
    label: str
    default: str

    @property
    def start(self) -> str:
        return self.default

    def read(self, value) -> str:
        """``value`` without spaces around it. Raises ValueError for nothing, or for more than 12 letters."""
        word = str(value).strip()
        if 1 <= len(word) <= 12:
            return word
        raise ValueError(t("`{name}` is a short word, not {value!r}.", name=self.name, value=value))


@dataclass(frozen=True)
class Question:
    """What to guess before pressing Run; ``unit`` as in ``lab.predict()``: ``"x"`` for times, ``"%"``, ``"ms"``, …"""

    text: str
    unit: str = ""


def _plain(value: float) -> str:
    return f"{value:g}" if abs(value) < 1e15 else significant(value)


def settings(controls: Sequence, given: dict) -> dict:
    """Every control's value: the one in ``given``, else its default. Raises ValueError for a name that is none."""
    names = [control.name for control in controls]
    for name in given:
        if name not in names:
            raise ValueError(t("This lab has no control {name!r}; it has: {names}.", name=name,
                               names=", ".join(names)))  # fmt: skip
    return {control.name: control.read(given.get(control.name, control.start)) for control in controls}
