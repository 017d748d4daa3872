"""Guess first, then measure: ``predict()`` keeps a learner's number and later sets it beside the measurement.

    lab.predict("01-a", 2.0, unit="x")        # before: commit to a number (None asks for one)
    lab.predict("01-a").beside(c.ratio("g"))  # after: a sentence, generated in the notebook's language
    lab.predictions("01")                     # at the end of lesson 01: the table of all guesses

Guesses live as long as the notebook's kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

from labkit import marks, units
from labkit.language import t

_UNGIVEN = object()
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_CLOSE = 1.25  # a guess within this factor is called close
_session: dict[str, Prediction] = {}


@dataclass(repr=False)
class Prediction:
    """One guess. ``value`` is None until a number is given; ``measured`` is None until ``beside()``."""

    key: str
    value: float | None
    unit: str = ""
    problem: str = ""
    measured: float | None = None

    def beside(self, measured) -> Outcome:
        """Compare with what came out: a number in the guess's unit, a ``Ratio`` or a ``Measurement`` (its median)."""
        self.measured = _number_of(measured, self.unit)
        return Outcome(self)

    def __str__(self):
        if self.problem:
            return f"○ {self.problem}"
        if self.value is None:
            return "○ " + t(
                "No guess yet: write a number in place of None, then run the cell again. It need not be right."
            )
        return "✎ " + t("Your guess: {value}. Now measure.", value=_with_unit(self.value, self.unit))

    __repr__ = __str__

    def _repr_html_(self):
        return marks.box(str(self), "", "#57606a" if self.value is None else "#0b57d0")


@dataclass(frozen=True, repr=False)
class Outcome:
    """A guess beside a measurement; shows itself as one sentence."""

    prediction: Prediction

    def __str__(self):
        guess, got = self.prediction.value, self.prediction.measured
        if got is None or not math.isfinite(got):
            return t("There is no usable measurement to compare with.")
        shown = _with_unit(got, self.prediction.unit)
        if guess is None:
            return t("The measurement says {got}. You had not written a guess; next time write one first.", got=shown)
        texts = {"guess": _with_unit(guess, self.prediction.unit), "got": shown}
        if guess == got:
            return t("You guessed {guess}, and that is what came out.", **texts)
        factor = _factor(guess, got)
        if factor is None:
            return t("You guessed {guess}; the measurement says {got}.", **texts)
        if max(factor, 1 / factor) <= _CLOSE:
            return t("You guessed {guess}; the measurement says {got}. That is close.", **texts)
        texts["factor"] = units.significant(max(factor, 1 / factor), 2)
        if factor > 1:
            return t("You guessed {guess}; the measurement says {got}: {factor} times as much.", **texts)
        return t("You guessed {guess}; the measurement says {got}: your guess was {factor} times too high.", **texts)

    __repr__ = __str__

    def _repr_html_(self):
        return marks.box(str(self), "", "#0b57d0")


class Predictions(list):
    """The guesses of a lesson in the order they were made; shows itself as a table."""

    def rows(self) -> list[tuple[str, str, str]]:
        """(key, guess, measured) as text; a missing one is a dash."""
        return [
            (p.key, *("–" if v is None else _with_unit(v, p.unit) for v in (p.value, p.measured))) for p in self
        ]

    def __str__(self):
        head = (t("Question"), t("Your guess"), t("Measured"))
        return "\n".join(" | ".join(row) for row in [head, *self.rows()])

    __repr__ = __str__

    def _repr_html_(self):
        head = "".join(f'<th scope="col">{escape(h)}</th>' for h in (t("Question"), t("Your guess"), t("Measured")))
        body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in self.rows())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def predict(key: str, value=_UNGIVEN, *, unit: str = "") -> Prediction:
    """Write down a guess under ``key`` (``"01-a"``), or recall it when only the key is given.

    ``value`` is a number; text that reads as one is accepted, Bengali digits too. None, or text that is no number,
    gives a Prediction that asks for one. Never raises for a value.
    """
    if value is _UNGIVEN:
        return _session.get(key) or Prediction(key, None, unit)
    number, problem = None, ""
    if value is not None and value is not Ellipsis:
        try:
            number = float(value)
            if not math.isfinite(number):
                raise ValueError
        except (TypeError, ValueError):
            number = None
            problem = t("{value} is not a number. Write it without a unit, for instance 2.5.", value=repr(value))
    _session[key] = Prediction(key, number, unit, problem)
    return _session[key]


def predictions(lesson: str) -> Predictions:
    """All guesses of a lesson (``"01"``) made since the kernel started."""
    return Predictions(p for key, p in _session.items() if key.partition("-")[0] == lesson)


def _number_of(measured, unit):
    if hasattr(measured, "median_s"):
        return measured.median_s / _SECONDS.get(unit, 1.0)
    value = getattr(measured, "value", measured)
    return None if value is None else float(value)  # None: the row of an advice that was not tried


def _factor(guess, got):
    return got / guess if guess > 0 and got > 0 else None


def _with_unit(value, unit):
    number = str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else units.significant(value, 3)
    if unit in ("x", "times"):
        return t("{ratio} times", ratio=number)
    return number + (unit if unit == "%" else f" {unit}" if unit else "")
