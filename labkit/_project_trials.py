"""The project's measurement: the naive training and a learner's take turns, each training in a process of its own.

The watch is in the process that asks, the weights are evaluated there too, and the function that is measured never runs
there. A training's time is from handing over the pairs to having the weights, so whatever the function compiles, loads
or leaves running until then counts; importing torch does not.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass

from labkit import _statistics, _stopwatch
from labkit import transliteration as tl
from labkit._project_host import Host
from labkit._project_run import unpacked
from labkit.comparison import Comparison
from labkit.datasets import Split
from labkit.language import t
from labkit.timing import Measurement

__all__ = ["NAIVE", "PROJECT", "Candidate", "Host", "Race", "Setting", "TrainingFailedError", "count", "race", "train"]

NAIVE, PROJECT = "naive", "project"
COUNTED_PAIRS = 512  # operators are counted in a whole, but smaller training
LIMIT_S = 1800.0  # of one training
MARGIN = 0.0  # a verdict is what the 95 % interval says; marks ask for far more
EXAMPLES = 6


class TrainingFailedError(RuntimeError):
    """A training ended without usable weights; the message says why."""


@dataclass(frozen=True)
class Candidate:
    """What is trained: ``text`` as ``_handed_in.text_of`` gives it and the function's ``name``; None for the naive."""

    label: str
    text: str | None = None
    name: str = ""


@dataclass(frozen=True)
class Race:
    """What ``race()`` found: a Comparison of the times, and the error rates in the order of the trainings."""

    comparison: Comparison
    cer: dict[str, list[float]]
    rounds: dict[str, list[tuple[float, float]]]  # seconds, the two halves of each round
    naive_first: list[bool]
    examples: list[list[str]]  # Bengali, English, by the last naive model, by the last of the project


@dataclass(frozen=True)
class Setting:
    """Sizes and data of a race. ``data(k)`` are the names of half round k, ``seed(k)`` its seed."""

    rounds: int
    epochs: int
    threads: int
    data: Callable[[int], Split]
    seed: Callable[[int], int]


def race(project: Candidate, run: Callable[[dict, float], dict], setting: Setting, say: Callable[[str], None]) -> Race:
    """Train both candidates in rounds A B B A or B A A B, with the same names and seed in each half.

    ``run(job, limit_s)`` does one training: ``Host.run``, or that of a closed-in one. Raises TrainingFailedError.
    """
    both = (Candidate(NAIVE), project)
    seconds: dict[str, list[list[float]]] = {one.label: [] for one in both}
    error_rates: dict[str, list[float]] = {one.label: [] for one in both}
    shuffle, naive_first, models = random.Random(setting.seed(0)).shuffle, [], {}
    with _stopwatch.undisturbed() as disturbed:
        for number in range(setting.rounds):
            order = list(both)
            shuffle(order)
            naive_first.append(order[0].label == NAIVE)
            for half in (0, 1):
                k = 2 * number + half
                for one in order if half == 0 else reversed(order):
                    answer = models[one.label] = train(one, run, setting, setting.data(k), setting.seed(k))
                    seconds[one.label].append(answer["seconds"])
                    error_rates[one.label].append(answer["cer"])
                    say(t("training {done} of {all}: {name}, {seconds:.1f} s, character error rate {cer:.3f}",
                          done=sum(map(len, seconds.values())), all=4 * setting.rounds, name=one.label,
                          seconds=answer["seconds"], cer=answer["cer"]))
    rounds = {label: list(zip(times[::2], times[1::2], strict=True)) for label, times in seconds.items()}
    return Race(_comparison(rounds, naive_first, setting, disturbed), error_rates, rounds, naive_first,
                _examples(models, setting.data(2 * setting.rounds - 1).test))


def count(project: Candidate, run, setting: Setting) -> dict[str, dict]:
    """Operators that each candidate calls in a whole training on few names, by candidate: ``operators``, ``cer``."""
    names, found = setting.data(0), {}
    names = names._replace(train=names.train[:COUNTED_PAIRS])
    for one in (Candidate(NAIVE), project):
        answer = train(one, run, setting, names, setting.seed(0), count=True)
        found[one.label] = {"operators": answer["operators"], "cer": answer["cer"]}
    return found


def train(one: Candidate, run, setting: Setting, names: Split, seed: int, *, count: bool = False) -> dict:
    """One training: ``seconds``, ``cer`` on the test part, which is not given to it, and ``operators`` if asked for."""
    job = {"source": one.text, "name": one.name, "train": names.train, "val": names.val, "seed": seed,
           "epochs": setting.epochs, "threads": setting.threads, "count": count}
    answer = run(job, LIMIT_S)
    if answer.get("timeout"):
        raise TrainingFailedError(t("Not finished after {seconds:g} seconds.", seconds=answer["timeout"]))
    if "weights" not in answer:
        raise TrainingFailedError(answer.get("error") or t("the training ended without a model"))
    try:
        model = unpacked(answer.pop("weights"))
    except ValueError as error:
        raise TrainingFailedError(t("The weights are not those of a Transliterator: {error}", error=error)) from error
    return {**answer, "cer": tl.evaluate(model, names.test), "model": model}


def _examples(models: dict, pairs: list) -> list[list[str]]:
    some = pairs[:: max(1, len(pairs) // EXAMPLES)][:EXAMPLES]
    words = [pair.bn for pair in some]
    written = [tl.written(models[label]["model"], words) for label in (NAIVE, PROJECT)]
    return [[pair.bn, pair.en, *both] for pair, *both in zip(some, *written, strict=True)]


def _comparison(rounds, naive_first, setting: Setting, disturbed) -> Comparison:
    """The times as ``lab.compare`` would hold them; there is no first call, as every process is new."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

    def measured(label: str) -> Measurement:
        times = tuple(one for pair in rounds[label] for one in pair)
        return Measurement(name=label, times_s=times, first_s=times[0], device=str(_device()), threads=setting.threads,
                           calls=1, cache="warm", stopped="settled", inputs=(), utc=now, noted=tuple(disturbed))

    ratio = _statistics.ratio_interval(rounds[NAIVE], rounds[PROJECT], naive_first)
    total_s = sum(sum(pair) for label in rounds for pair in rounds[label])
    return Comparison({label: measured(label) for label in (NAIVE, PROJECT)}, {PROJECT: ratio}, NAIVE, MARGIN, total_s,
                      True)


def _device():
    from labkit import hardware

    return hardware.device()
