"""One attempt at one exercise: what a check may ask of the learner's answer. ``labkit.exercises`` explains the use."""

from __future__ import annotations

import contextlib
import math
import random
import reprlib
from dataclasses import dataclass, field

from labkit import attempts
from labkit.language import t

_brief = reprlib.Repr()
_brief.maxother = _brief.maxstring = _brief.maxlong = 60


class End(Exception):  # noqa: N818  (no error: the check has its verdict)
    def __init__(self, status, hint):
        super().__init__(hint)
        self.status, self.hint = status, hint


@dataclass
class Task:
    """One attempt at one exercise, as the check sees it."""

    answer: object
    seed: int
    points: int = 0
    rng: random.Random = None
    last_call: str = ""
    returned: bool = False  # the function has given a value at least once, so it is no untouched stub
    cost_of: tuple[float, str] | None = None
    parts: list = field(default_factory=list)  # (points, label, hint or "")

    def __post_init__(self):
        self.rng = random.Random(self.seed)

    def call(self, *args, returns: type | tuple | None = None, may_be_infinite: bool = False, **kwargs):
        """The learner's function on these arguments; a result that no check can use ends the check kindly."""
        if not callable(self.answer):
            hint = t(
                "This exercise needs the function itself, but got a value of type {got}. You probably wrote f(x), which"
                " Python runs first. Give the name alone: f.",
                got=type(self.answer).__name__,
            )
            raise End("error", hint)
        shown = [_short(a) for a in args] + [f"{k}={_short(v)}" for k, v in kwargs.items()]
        name = getattr(self.answer, "__name__", "f")
        self.last_call = f"{name}({', '.join(shown)})"
        try:
            value = self.answer(*args, **kwargs)
        except NotImplementedError:
            raise End("todo", "") from None
        except (attempts.TimeUpError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise End("error", _story(error, self)) from error
        if value is None or value is Ellipsis:
            if not self.returned:
                raise End("todo", "")
            self.fail(t("This call returned None: does every path through your function end in a return?"))
        self.returned = True
        self.last_call += f" -> {_short(value)}"
        if returns is not None and not isinstance(value, returns):
            wanted = returns if isinstance(returns, tuple) else (returns,)
            self._wrong_type(value, " / ".join(kind.__name__ for kind in wanted))
        if _has_nan(value) and not (may_be_infinite and math.isinf(value)):
            self.fail(_not_finite())
        return value

    def number(self, *args, **kwargs) -> float:
        """Like ``call()``, and the result must be one finite number (0-dimensional arrays and tensors count)."""
        return self._plain_number(self.call(*args, **kwargs))

    def given_number(self) -> float:
        """The answer itself, which must be one finite number."""
        return self._plain_number(self.answer)

    def _plain_number(self, value):
        if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self._wrong_type(value, t("a number"))
        self.expect(math.isfinite(value), _not_finite())
        return value

    def _wrong_type(self, value, wanted):
        self.fail(t("Needed: {wanted}. Given: a value of type {got}.", wanted=wanted, got=type(value).__name__))

    def expect(self, condition, hint: str) -> None:
        """End with ``hint`` unless ``condition`` holds."""
        if not condition:
            self.fail(hint)

    def fail(self, hint: str) -> None:
        """End the check, or the part, with a hint in the learner's language."""
        raise End("wrong", hint)

    @contextlib.contextmanager
    def part(self, points: int, label: str):
        """A share of the points that can be won or lost by itself."""
        try:
            yield
        except End as end:
            if end.status == "todo":
                raise
            self.parts.append((points, label, end.hint))
        else:
            self.points += points
            self.parts.append((points, label, ""))

    def cost(self, value: float, unit: str) -> None:
        """Give the answer a score by something counted, smaller is better; shown beside the learner's own best."""
        self.cost_of = (value, unit)


def _not_finite() -> str:
    return t("The result is NaN or infinite: somewhere a number is divided by zero or overflows.")


def _short(value) -> str:
    return " ".join(_brief.repr(value).split())


def _story(error, task):
    place = attempts.place_of(error, task.answer)
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    if place is None:
        return t("Your function stopped with an error: {error}.", error=text)
    return t("Your function stopped in line {line}, `{code}`: {error}.", line=place[0], code=place[1], error=text)


def _has_nan(value) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, (list, tuple)):
        return any(_has_nan(item) for item in value)
    if hasattr(value, "isnan"):  # a torch tensor
        return bool(value.isnan().any())
    if getattr(getattr(value, "dtype", None), "kind", "") == "f":  # a NumPy array or number
        return bool((value != value).any())
    return False
