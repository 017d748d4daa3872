"""``claim()``: a statement about speed whose printed line does not depend on the clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from labkit import _facts
from labkit.language import t
from labkit.units import significant

REPEATS = 2  # an undecided "faster" is measured again at most so often, each time with twice the budget


@dataclass(frozen=True, repr=False)
class Claim:
    """The outcome of a claim: true in a condition when it holds. ``comparison`` is the one that decided."""

    holds: bool
    text: str
    name: str
    kind: str
    bound: float
    comparison: object = field(compare=False)

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def _ipython_display_(self) -> None:
        """Nothing more to show at the end of a cell: ``claim()`` has printed the line."""


def claim(comparison, name: str, kind: str, *, at_least: float | None = None, at_most: float | None = None) -> Claim:
    """Print whether a claim about speed holds here, and why; return it as a ``Claim``.

    ``claim(c, "fused", "faster", at_least=1.3)`` holds when the whole 95 % interval of the ratio lies at or above 1.3.
    While the interval straddles 1.3 it is measured again, at most twice, with doubled budget.
    ``claim(c, "fused", "not faster", at_most=1.1)`` fails only when the whole interval lies above 1.1.

    The line holds no measured number, so a notebook test can compare it; the reasons are the facts given to
    ``compare(..., facts=)``. Raises ValueError for another kind or a missing bound, KeyError for an unknown name.
    """
    bound = _bound(kind, at_least, at_most)
    ratio = comparison.ratio(name)
    if kind == "faster":
        for _ in range(REPEATS):
            if not ratio.low < bound <= ratio.high:
                break
            comparison = comparison.again(2 * comparison.budget_s)
            ratio = comparison.ratio(name)
        holds = ratio.low >= bound
    else:
        holds = ratio.low <= bound
    text = _line(comparison, name, kind, bound, holds)
    print(text)
    return Claim(holds, text, name, kind, bound, comparison)


def _bound(kind: str, at_least, at_most) -> float:
    bound, other = (at_least, at_most) if kind == "faster" else (at_most, at_least)
    if kind not in ("faster", "not faster") or bound is None or other is not None:
        raise ValueError(
            t('A claim is "faster" with `at_least`, or "not faster" with `at_most`. Write for example '
              '`lab.claim(c, {name!r}, "faster", at_least=1.3)` or `lab.claim(c, {name!r}, "not faster", '
              'at_most=1.1)`.',
              name="fused"))
    if not bound > 0:
        raise ValueError(t("The bound of a claim is a ratio above zero, such as 1.3; it was {bound!r}.", bound=bound))
    return float(bound)


def _said(name: str) -> str:
    """Quoted where its last figure would run into the figures that follow: “x * 2” 1.3 times."""
    return f"“{name}”" if name[-1:].isdigit() else name


def _line(comparison, name: str, kind: str, bound: float, holds: bool) -> str:
    said = {"name": _said(name), "baseline": _said(comparison.baseline),
            "bound": significant(bound, 3).rstrip("0").rstrip(".")}  # fmt: skip
    if kind == "faster" and holds:
        line = t("Holds: {name} is at least {bound} times as fast as {baseline}.", **said)
    elif kind == "faster":
        line = t("Does not hold here: {name} was not shown to be {bound} times as fast as {baseline} on this machine.",
                 **said)
    elif holds:
        line = t("Holds: nothing shows that {name} is more than {bound} times as fast as {baseline}.", **said)
    else:
        line = t("Does not hold here: {name} is more than {bound} times as fast as {baseline} on this machine.", **said)
    counted = _facts.reasons(_facts.of(comparison.facts, comparison.baseline), _facts.of(comparison.facts, name))
    return line + (" " + t("Counted: {facts}.", facts="; ".join(counted)) if counted else "")
