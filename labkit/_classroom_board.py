"""The class board: what the students' machines measured in one lesson, merged from their provenance cards."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import statistics
from collections import Counter
from html import escape
from pathlib import Path

from labkit import _classroom_course as courses
from labkit._classroom_page import page, table
from labkit._classroom_table import harmless
from labkit.language import bengali_digits, current_language, t
from labkit.units import significant

_LIMIT_BYTES = 5_000_000  # of one file of cards
_VERDICTS = ("faster", "slower", "same", "undecided")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One candidate of one comparison on one machine."""

    who: str
    machine: str
    threads: int
    torch: str
    name: str
    baseline: str
    verdict: str
    ratio: float
    low: float
    high: float
    cer: tuple[float, ...] = ()  # of a report card: mean character error rate of the baseline, of the candidate


def read_cards(folder: Path) -> tuple[list[Entry], list[str]]:
    """Entries of every ``*.json`` below ``folder``, and a line about each file that holds no comparison.

    A file holds one card of ``comparison.card()`` or of a report card, or a list of them. Its name in the folder,
    without the ending, is whose it is.
    """
    entries, refused = [], []
    for path in sorted(folder.rglob("*.json")):
        shown = path.relative_to(folder).as_posix()
        try:
            if path.stat().st_size > _LIMIT_BYTES:
                raise ValueError(t("too large for cards"))
            loaded = json.loads(path.read_text(encoding="utf-8-sig"))
            found = [entry for card in (loaded if isinstance(loaded, list) else [loaded])
                     for entry in _entries(card, shown.removesuffix(path.suffix))]
            if not found:
                raise ValueError(t("no comparison in it"))
            entries += found
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            refused.append(t("✗ {file}: not a card ({error})", file=shown, error=error))
    return entries, refused


def _entries(card: dict, who: str) -> list[Entry]:
    if card.get("kind") != "comparison":
        return []
    machine = card["machine"]
    place = ", ".join(map(str, machine.get("gpus") or [])) or str(machine["cpu"])
    found = []
    for name, ratio in card["ratios"].items():
        value, low, high = map(float, ratio)
        verdict = card["verdicts"][name]
        if verdict not in _VERDICTS or not all(map(math.isfinite, (value, low, high))):
            raise ValueError(t("a ratio or verdict that lab.compare does not write"))
        rates = card.get("cer", {})
        cer = tuple(statistics.fmean(map(float, rates[label])) for label in (card["baseline"], name) if label in rates)
        found.append(Entry(who, place, int(machine.get("threads") or 0), str(machine.get("torch")), str(name),
                           str(card["baseline"]), verdict, value, low, high, cer))
    return found


def board(folder: Path, out: Path, *, names: bool = False) -> tuple[Path, list[str]]:
    """Write ``out/board.html`` and ``out/board.csv``; without ``names`` nothing in them says whose machine it was.

    Raises ClassroomError when no card is found.
    """
    entries, refused = read_cards(folder)
    if not entries:
        raise courses.ClassroomError(t(
            "No card was found in {folder}. A learner writes one like this: "
            'import json; open("card.json", "w").write(json.dumps(comparison.card()))', folder=folder))
    # By name of the machine, not of the file: the order must not give anybody away.
    entries.sort(key=lambda e: (e.name, e.baseline, -e.ratio, e.machine, e.threads))
    people = list(dict.fromkeys(entry.who for entry in entries))
    shown = {who: who if names else t("student {number}", number=_digits(i)) for i, who in enumerate(people, 1)}
    head = [t("candidate"), t("machine"), t("threads"), "PyTorch", t("verdict"), t("ratio"), t("interval"), t("whose")]
    rows = [[f"{e.name} / {e.baseline}", e.machine, str(e.threads), e.torch, _word(e.verdict), significant(e.ratio, 3),
             f"{significant(e.low, 3)} – {significant(e.high, 3)}", shown[e.who]] for e in entries]
    if any(len(e.cer) == 2 for e in entries):  # report cards of the project
        head += [t("character error rate"), t("of the baseline")]
        for row, e in zip(rows, entries, strict=True):
            row += [f"{e.cer[1]:.3f}", f"{e.cer[0]:.3f}"] if len(e.cer) == 2 else ["", ""]
    courses.write_text(out / "board.html", page(t("Class board"), current_language(), _summary(entries) +
                                                table(head, rows)))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerows([head, *([harmless(cell) for cell in row] for row in rows)])
    courses.write_text(out / "board.csv", text.getvalue(), encoding="utf-8-sig")
    return out / "board.html", refused


def _summary(entries: list[Entry]) -> str:
    """By candidate: on how many machines each verdict came out."""
    counts: dict[str, Counter] = {}
    for entry in entries:
        counts.setdefault(f"{entry.name} / {entry.baseline}", Counter())[entry.verdict] += 1
    rows = [[name, *(str(count[verdict]) for verdict in _VERDICTS)] for name, count in counts.items()]
    note = t("One lesson, many machines. A ratio above 1 means faster than the baseline on that machine.")
    return f"<p>{escape(note)}</p>" + table([t("candidate"), *map(_word, _VERDICTS)], rows)


def _word(verdict: str) -> str:
    if verdict == "faster":
        return t("faster")
    if verdict == "slower":
        return t("slower")
    return t("the same") if verdict == "same" else t("undecided")


def _digits(number: int) -> str:
    return bengali_digits(str(number)) if current_language() == "bn" else str(number)
