"""Is a report card complete, do its numbers follow from each other: what can be said without running anything."""

from __future__ import annotations

import ast
import functools
import math

from labkit import _handed_in, _statistics
from labkit import transliteration as tl
from labkit._project_trials import MARGIN, NAIVE, PROJECT
from labkit.language import t

_FIELDS = {
    "format": int, "kind": str, "project": str, "quick": bool, "baseline": str, "ratios": dict, "verdicts": dict,
    "measurements": dict, "facts": dict, "cer": dict, "rounds_s": dict, "naive_first": list, "seeds": list,
    "epochs": int, "examples": list, "function": dict, "machine": dict,
}  # fmt: skip
_MACHINE = ("cpu", "cpus", "os", "python", "torch", "labkit", "device", "threads", "utc")
_SHARE = 1e-6  # how far two numbers that should be equal may lie apart: what printing and reading can cost


def faults(content) -> list[str]:
    """What is wrong with a card, one sentence each; empty for a card as ``make()`` writes it."""
    if not isinstance(content, dict):
        return [t("It does not hold a card.")]
    found = [t("The field {name} is missing or of another kind.", name=name) for name, kind in _FIELDS.items()
             if type(content.get(name)) is not kind]
    if found:
        return found
    try:
        return [*_of_machine(content), *_of_function(content), *_of_times(content), *_of_errors(content)]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        return [t("A field does not hold what it should: {error}", error=f"{type(error).__name__}: {error}")]


def _of_machine(content) -> list[str]:
    missing = [name for name in _MACHINE if content["machine"].get(name) in (None, "")]
    return [t("Nothing says {names} of the machine that measured.", names=", ".join(missing))] if missing else []


def _of_function(content) -> list[str]:
    name, text = content["function"]["name"], content["function"]["text"]
    try:
        short = text[: _handed_in.LONGEST_BYTES]
        defined = [node.name for node in ast.parse(short).body if isinstance(node, ast.FunctionDef)]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [t("The function's text is not Python: {error}", error=error)]
    if name not in defined or len(text.encode()) > _handed_in.LONGEST_BYTES:
        return [t("The function's text does not define {name}, or is longer than {most} bytes.", name=name,
                  most=_handed_in.LONGEST_BYTES)]
    return []


def _of_times(content) -> list[str]:
    """Ratio, verdict and medians are worked out anew from the times."""
    rounds, first = content["rounds_s"], content["naive_first"]
    times = [one for label in (NAIVE, PROJECT) for pair in rounds[label] for one in pair]
    if not all(type(one) is float and 0 < one < math.inf for one in times):
        return [t("A time is not a number of seconds above 0.")]
    if not len(rounds[NAIVE]) == len(rounds[PROJECT]) == len(first) >= 3 or len(times) != 4 * len(first):
        return [t("A card needs the times of 3 whole rounds or more.")]
    found = []
    ratio = _statistics.ratio_interval(rounds[NAIVE], rounds[PROJECT], first)
    if not _equal(content["ratios"][PROJECT], [ratio.value, ratio.low, ratio.high]):
        found.append(t("The ratio {said} does not follow from the card's own times, which give {ratio}.",
                       said=_short(content["ratios"][PROJECT][0]), ratio=_short(ratio.value)))
    if content["verdicts"][PROJECT] != _statistics.verdict(ratio, MARGIN):
        found.append(t("The verdict {said} does not follow from the card's own times.",
                       said=content["verdicts"][PROJECT]))
    for label in (NAIVE, PROJECT):
        median = _statistics.median_and_iqr([one for pair in rounds[label] for one in pair])[0]
        if not _equal([content["measurements"][label]["result"]["median_s"]], [median]):
            found.append(t("The median of {name} does not follow from the card's own times.", name=label))
    return found


def _of_errors(content) -> list[str]:
    rates, halves = content["cer"], 2 * len(content["naive_first"])
    both = (rates[NAIVE], rates[PROJECT])
    if not all(len(one) == halves and all(0 <= rate < 10 for rate in one) for one in both):
        return [t("A card needs one character error rate for each training.")]
    if not all(type(content["facts"][label]["operators"]) is int for label in (NAIVE, PROJECT)):
        return [t("A field does not hold what it should: {error}", error="operators")]
    table = rule_rate()
    if not _equal(rates["table"], [table]):
        return [t("The rule has a character error rate of {rate} on the held-out names, not {said}. Other names were "
                  "used, or another labkit.", rate=_short(table), said=_short(rates["table"][0]))]
    return []


@functools.cache
def rule_rate() -> float:
    """Character error rate of the rule that was never trained, on the held-out names that everybody has."""
    wanted = tl.spellings(tl.names().test)
    return tl.cer([tl.by_table(name) for name in wanted], list(wanted.values()))


def _equal(some, others) -> bool:
    return len(some) == len(others) and all(
        math.isclose(a, b, rel_tol=_SHARE) for a, b in zip(map(float, some), others, strict=True))


def _short(value) -> str:
    return f"{float(value):.3g}"
