"""Run a report card's claims again where its maker cannot reach: other seeds, other names, other letters, closed in.

Each training gets names that were cut anew and whose letters were exchanged for each other at random, Bengali for
Bengali and English for English. To a function that learns from the pairs it is given, nothing has changed. A model that
was trained before, an answer that was kept, a list of the held-out names: all that is worth nothing there.

Not caught: a function that finds out which letters were exchanged. It would have to carry the list of all names, for
which its text has no room, or read it from a file, which the walls prevent where the system has any.
"""

from __future__ import annotations

import functools
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from labkit import _card_marks, _project_trials, _stopwatch, hardware
from labkit import transliteration as tl
from labkit._project_trials import NAIVE, PROJECT, TrainingFailedError
from labkit._statistics import Ratio
from labkit.datasets import Split
from labkit.language import t
from labkit.units import ratio as shown_ratio

SLACK = 1.2  # between a ratio's intervals, of two days on one machine
RATE_SLACK = 0.03  # between error rates on names that were cut differently
NAIVE_SLACK = 0.05
COUNTED_SLACK = 0.25  # between error rates after a small training
COUNT_SLACK = 1.15  # between ratios of counts; batches hold other names
SAME_MACHINE = ("cpu", "cpus", "os", "device", "gpus", "threads")


@dataclass(frozen=True)
class Verification:
    """What came of running a card again. ``refusals`` is empty when every number could be repeated."""

    refusals: list[str]
    notes: list[str]
    claimed: dict
    found: dict
    marks: list = field(default_factory=list)  # (points, of, for what), from what was found here
    machine: dict = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        return not self.refusals

    @property
    def points(self) -> int:
        """Out of ``_card_marks.MOST``; none when a number was refused."""
        return sum(points for points, _, _ in self.marks) if self.accepted else 0

    def __str__(self) -> str:
        return "\n".join(lines(self))


def verify(card, *, run: Callable[[dict, float], dict], rounds: int = 3, seed: int | None = None,
           say: Callable[[str], None] = lambda line: None) -> Verification:
    """Repeat the trainings of ``card`` by ``run`` (see ``_project_trials.race``) and compare.

    ``seed`` is for tests; without it nobody can know the names, letters and seeds.
    """
    content = card.content
    draw = random.Random(seed) if seed is not None else random.SystemRandom()
    seeds = [draw.getrandbits(31) for _ in range(2 * rounds)]
    names = functools.cache(lambda k: fresh(draw, len_train(content)))
    setting = _project_trials.Setting(rounds=rounds, epochs=tl.EPOCHS, threads=_stopwatch.threads(), data=names,
                                      seed=seeds.__getitem__)
    function = content["function"]
    project = _project_trials.Candidate(PROJECT, function["text"], function["name"])
    claimed = _numbers(content["ratios"][PROJECT], content["verdicts"][PROJECT], content["cer"], content["facts"])
    here = hardware.provenance()
    try:
        facts = _project_trials.count(project, run, setting)
        race = _project_trials.race(project, run, setting, say)
    except TrainingFailedError as error:
        return Verification([t("The function could not be run again: {error}", error=error)], [], claimed, {},
                            machine=here)
    ratio = race.comparison.ratio(PROJECT)
    found = _numbers([ratio.value, ratio.low, ratio.high], race.comparison.verdict(PROJECT), race.cer, facts)
    foreign = [name for name in SAME_MACHINE if content["machine"].get(name) != here.get(name)]
    refusals = [*_of_errors(claimed, found), *_of_the_counted(facts), *_of_counts(claimed, found)]
    notes = []
    if _card_marks.too_few(found):
        notes.append(t("Hardly any operators were counted: the work is done in another thread, in another process or "
                       "by another library. Counting earns no marks then. Read the function."))
    if foreign:
        notes.append(t("The card was made on another machine ({names} differ), so its ratio was not judged. The speed "
                       "was verified here anew; both are shown.", names=", ".join(foreign)))
    else:
        refusals += _of_speed(claimed, found)
    return Verification(refusals, notes, claimed, found, _card_marks.marks(found), here)


def len_train(content: dict) -> int | None:
    """How many pairs to train on: all, or as few as a quick card did."""
    return content["names"]["train"] if content["quick"] else None


def fresh(draw: random.Random, train: int | None = None) -> Split:
    """Names cut anew, in another order, with their letters exchanged."""
    names = tl.names(seed=draw.getrandbits(31), train=train)
    exchange = str.maketrans({**_exchanged(tl.BENGALI, draw), **_exchanged(tl.ENGLISH, draw)})
    parts = [[tl.Pair(bn.translate(exchange), en.translate(exchange)) for bn, en in part] for part in names]
    for part in parts:
        draw.shuffle(part)
    return Split(*parts)


def _exchanged(letters: str, draw: random.Random) -> dict[str, str]:
    others = list(letters)
    draw.shuffle(others)
    return dict(zip(letters, others, strict=True))


def _numbers(ratio, verdict: str, cer: dict, facts: dict) -> dict:
    return {
        "ratio": [float(one) for one in ratio], "verdict": verdict,
        "cer": {label: statistics.fmean(cer[label]) for label in (NAIVE, PROJECT)},
        "operators": {label: facts[label]["operators"] for label in (NAIVE, PROJECT)},
    }


def _of_the_counted(facts: dict) -> list[str]:
    """The training whose operators are counted is small, so a function could tell it from the others and do nothing."""
    own, naive = facts[PROJECT]["cer"], facts[NAIVE]["cer"]
    if own > naive + COUNTED_SLACK:
        return [t("Where operators were counted, the function learned far less than the naive training: character "
                  "error rate {own:.3f}, naive {naive:.3f}.", own=own, naive=naive)]
    return []


def _of_errors(claimed: dict, found: dict) -> list[str]:
    own, naive = found["cer"][PROJECT], found["cer"][NAIVE]
    if own > naive + 0.15 and own > claimed["cer"][PROJECT] + 0.15:
        return [t("With other names and exchanged letters the character error rate is {found:.3f}, not {claimed:.3f}: "
                  "the function does not learn from the pairs it is given, or has seen the held-out names before.",
                  found=own, claimed=claimed["cer"][PROJECT])]
    refused = []
    gap = claimed["cer"][PROJECT] - claimed["cer"][NAIVE]
    if claimed["cer"][PROJECT] < own - RATE_SLACK or gap < own - naive - RATE_SLACK:
        refused.append(t("The claimed character error rate {claimed:.3f} could not be repeated: it is {found:.3f} "
                         "here.", claimed=claimed["cer"][PROJECT], found=own))
    if abs(claimed["cer"][NAIVE] - naive) > NAIVE_SLACK:
        refused.append(t("The naive training's character error rate is {found:.3f} here, not {claimed:.3f}.",
                         claimed=claimed["cer"][NAIVE], found=naive))
    return refused


def _of_counts(claimed: dict, found: dict) -> list[str]:
    def saved(numbers):
        return numbers["operators"][NAIVE] / max(1, numbers["operators"][PROJECT])

    if saved(claimed) > COUNT_SLACK * saved(found):
        return [t("The card says that the function calls {claimed:,} operators and the naive training {naive:,}; "
                  "counted here: {found:,} and {naive_found:,}.", claimed=claimed["operators"][PROJECT],
                  naive=claimed["operators"][NAIVE], found=found["operators"][PROJECT],
                  naive_found=found["operators"][NAIVE])]
    return []


def _of_speed(claimed: dict, found: dict) -> list[str]:
    if claimed["ratio"][1] > SLACK * found["ratio"][2]:
        return [t("The claimed ratio could not be repeated on a machine of the same kind: {claimed} claimed, {found} "
                  "found.", claimed=_interval(claimed), found=_interval(found))]
    return []


def _interval(numbers: dict) -> str:
    ratio = Ratio(*numbers["ratio"])
    return f"{shown_ratio(ratio.value)} ({shown_ratio(ratio.low)} – {shown_ratio(ratio.high)})"


def lines(done: Verification) -> list[str]:
    """The outcome in words: claimed beside found, what was refused and why, the marks."""
    said = [t("Accepted: every number could be repeated.") if done.accepted else t("Refused.")]
    said += [f"✗ {refusal}" for refusal in done.refusals] + [f"– {note}" for note in done.notes]
    if done.found:
        said.append(t("Ratio: {claimed} claimed, {found} found here.", claimed=_interval(done.claimed),
                      found=_interval(done.found)))
        said.append(t("Character error rate: {claimed:.3f} claimed, {found:.3f} found here; naive {naive:.3f}.",
                      claimed=done.claimed["cer"][PROJECT], found=done.found["cer"][PROJECT],
                      naive=done.found["cer"][NAIVE]))
    if done.accepted:
        said += [t("{points} of {most}: {what}", points=got, most=most, what=what) for got, most, what in done.marks]
        said.append(t("Marks: {points} of {most}.", points=done.points, most=_card_marks.MOST))
    return said
