"""Facts that were counted, not timed, and the sentences they make: why one function is faster than another."""

from __future__ import annotations

from labkit.language import t
from labkit.units import size


def of(facts: dict, name: str) -> dict:
    """The facts given for ``name``: a dict, or a function that returns one, called only when someone asks."""
    given = facts.get(name, {})
    return dict(given() if callable(given) else given)


def reasons(baseline: dict, candidate: dict) -> list[str]:
    """One phrase a fact, without any time in it. Known keys: ``bytes, kernels, breaks, regime``; others as they are."""
    return [_phrase(key, value, baseline.get(key)) for key, value in candidate.items() if value is not None]


def _phrase(key: str, value, other) -> str:
    if key == "bytes":
        if other is None:
            return t("it moves {bytes}", bytes=size(value))
        if other == value:
            return t("it moves {bytes}, as much as the baseline", bytes=size(value))
        return t("it moves {bytes} instead of {other}", bytes=size(value), other=size(other))
    if key == "kernels":
        if other is None:
            return t("kernels: {count}", count=value)
        if other == value:
            return t("kernels: {count}, as many as the baseline", count=value)
        return t("kernels: {count} instead of {other}", count=value, other=other)
    if key == "breaks":
        return t("graph breaks: {count}", count=value)
    if key == "regime":
        return _regime(str(value))
    return f"{key}: {value}" if other is None or other == value else t("{key}: {value} instead of {other}",
                                                                       key=key, value=value, other=other)


def _regime(name: str) -> str:
    known = {"memory-bound": t("it is memory-bound: it waits for data"),
             "compute-bound": t("it is compute-bound: it waits for arithmetic"),
             "overhead-bound": t("it is overhead-bound: starting the work takes longer than the work")}
    return known.get(name, name)
