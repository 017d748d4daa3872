"""Runs of labs that were recorded elsewhere, read from the cards in ``data/measurements/``.

A file there may hold ``cards`` (lab -> what the lab's ``card()`` returned) and ``runs`` (lab -> the controls it was
given), beside ``machine`` and anything else. What cannot be read, or is no card of a comparison, is skipped: a lab
shows its own result whatever lies in that folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from labkit import datasets

FOLDER = "measurements"
VERDICTS = ("faster", "slower", "same", "undecided")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True)
class Recording:
    """One run: ``machine`` as `hardware.provenance()` writes it, the known ``controls``, and what was compared.

    ``ratios`` are ``(value, low, high)`` by candidate, baseline time / its time; ``device`` is what was measured on.
    """

    machine: dict
    utc: str
    controls: dict
    baseline: str
    ratios: dict[str, list[float]]
    verdicts: dict[str, str]
    device: str


def recordings(lab: str, controls: Iterable[str]) -> list[Recording]:
    """Every recorded run of ``lab``, in the order of the files' names; ``controls`` are the names of its controls."""
    found = []
    for path in sorted((datasets._folder() / FOLDER).glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):  # torn, or nested without an end
            continue
        file = _dict(content)
        card, run = _dict(file.get("cards")).get(lab), _dict(_dict(file.get("runs")).get(lab))
        found.append(recording(card, run, controls, _dict(file.get("machine"))))
    return [one for one in found if one is not None]


def recording(card, run: dict, controls: Iterable[str], machine: dict) -> Recording | None:
    """``card`` as a Recording, None where it holds no comparison.

    ``run`` names only the controls that were changed; the card itself knows others, such as the number type. Those that
    neither of them names stay unknown. ``machine`` is taken where the comparison does not say where it was made.
    """
    inside = [card, *_dict(card).values()]
    compared = next((part for part in inside if _is_comparison(part)), None)
    if compared is None:
        return None
    machine = compared.get("machine", machine)
    if not _is_machine(machine):
        return None
    values = {name: run.get(name, card.get(name)) for name in [*controls, *run]}
    known = {name: value for name, value in values.items() if _is_plain(value)}
    measured = _dict(_dict(compared.get("measurements")).get(compared["baseline"]))
    device = str(measured.get("device") or machine.get("device", ""))
    return Recording(machine, machine["utc"], known, compared["baseline"], compared["ratios"], compared["verdicts"],
                     device)  # fmt: skip


def _dict(value) -> dict:
    return value if isinstance(value, dict) else {}


def _is_plain(value) -> bool:
    return isinstance(value, str) or (isinstance(value, int | float) and -1e300 < value < 1e300)  # json reads NaN too


def _is_comparison(card) -> bool:
    card = _dict(card)
    ratios, verdicts = _dict(card.get("ratios")), _dict(card.get("verdicts"))
    return (card.get("kind") == "comparison" and isinstance(card.get("baseline"), str) and bool(ratios)
            and ratios.keys() == verdicts.keys() and all(map(_is_ratio, ratios.values()))
            and all(verdict in VERDICTS for verdict in verdicts.values()))  # fmt: skip


def _is_ratio(value) -> bool:
    return (isinstance(value, list) and len(value) == 3
            and all(isinstance(x, int | float) and 0 < x < 1e12 for x in value))  # fmt: skip


def _is_machine(machine) -> bool:
    machine = _dict(machine)
    gpus = machine.get("gpus", [])
    return (isinstance(machine.get("cpu"), str) and isinstance(machine.get("cpus"), int)
            and isinstance(machine.get("utc"), str) and bool(_DATE.match(machine["utc"]))
            and isinstance(gpus, list) and all(isinstance(gpu, str) for gpu in gpus))  # fmt: skip
