"""The graded project: how much faster does a learner's function train the transliterator, and as well as before?

    card = report_card.make(train)      a learner's ``train(names, seed) -> Transliterator`` beside the naive training
    card.save("report_card.json")       the numbers, where they come from and the function's text; and a picture, .png
    python -m labkit.report_card verify report_card.json     run it again: other seeds, other names, other letters

``train`` gets ``names.train`` and ``names.val``, lists of ``Pair(bn, en)``, and a seed. It returns a
``transliteration.Transliterator`` of the usual width; only its weights count. How it gets them is its own affair:
batches, order, precision, compiling, steps. It stands by itself: functions, classes, numbers and imports of its
notebook it may use, objects made before it may not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from labkit import _card_check, _folders, _handed_in, _project_trials, _stopwatch
from labkit import transliteration as tl
from labkit._project_trials import PROJECT, TrainingFailedError
from labkit.language import LANGUAGES, t, use_language

__all__ = ["CardError", "ReportCard", "TrainingFailedError", "make", "read", "verify"]

PROJECT_ID = "transliteration"
ROUNDS = 3  # of four trainings
QUICK_PAIRS = 256
LARGEST_BYTES = 1_000_000  # of a card; what is longer is cut and then no JSON
TABLE = "table"  # the rule that was never trained


class CardError(ValueError):
    """A file that is not a report card, or a card that cannot be made; the message says what to do."""


@dataclass(frozen=True, repr=False)
class ReportCard:
    """``content``: plain JSON values. It is a card of ``lab.compare`` too, so the class board reads it."""

    content: dict

    @property
    def ratio(self) -> tuple[float, float, float]:
        """Naive time / own time: value, low, high; above 1 is faster."""
        return tuple(self.content["ratios"][PROJECT])

    @property
    def verdict(self) -> str:
        return self.content["verdicts"][PROJECT]

    def cer(self, label: str) -> float:
        """Mean character error rate on held-out names of ``"naive"``, ``"project"`` or ``"table"``."""
        return statistics.fmean(self.content["cer"][label])

    def figure(self):
        """Time, errors and some names as a picture."""
        from labkit import _card_view

        return _card_view.figure(self)

    def save(self, path: str | Path = "report_card.json") -> Path:
        """Write the card to ``path`` and the picture beside it; gives the card's path."""
        path = Path(path)
        _folders.write_whole(path, json.dumps(self.content, ensure_ascii=False, indent=1) + "\n")
        path.with_suffix(".png").write_bytes(self.figure().png())
        return path

    def __str__(self) -> str:
        from labkit import _card_view

        return "\n".join(_card_view.lines(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from labkit import _card_view

        return _card_view.as_html(self)


def make(train, *, rounds: int = ROUNDS, quick: bool = False, seed: int = 0,
         say: Callable[[str], None] | None = print) -> ReportCard:
    """Measure ``train`` against the naive training and give the report card.

    Both take turns, ``rounds`` times naive, project, project, naive or the other way round, each training in a process
    of its own; some minutes in all. ``quick`` trains on few names, to see that it works; such a card is not for handing
    in. ``say`` hears about each training.

    Raises HandInError when the function does not stand by itself, TrainingFailedError when it fails, ValueError for
    fewer than 3 rounds.
    """
    if rounds < ROUNDS:
        raise ValueError(t("A card needs {least} rounds or more, not {rounds}.", least=ROUNDS, rounds=rounds))
    text = _handed_in.text_of(train)
    names = tl.names(train=QUICK_PAIRS if quick else None)
    setting = _project_trials.Setting(rounds=rounds, epochs=tl.EPOCHS, threads=_stopwatch.threads(),
                                      data=lambda k: names, seed=lambda k: 1000 * seed + k)
    project = _project_trials.Candidate(PROJECT, text, train.__name__)
    with _project_trials.Host() as host:
        counts = _project_trials.count(project, host.run, setting)
        race = _project_trials.race(project, host.run, setting, say or (lambda line: None))
    return ReportCard(content(race, counts, names, setting, text=text, name=train.__name__, quick=quick))


def content(race, counts: dict, names, setting, **more) -> dict:
    """A card's content from what was found; ``more`` says what was measured."""
    card = race.comparison.card()
    card["facts"] = {label: {"operators": counted["operators"]} for label, counted in counts.items()}
    return card | {
        "project": PROJECT_ID, "quick": more["quick"], "cer": {**race.cer, TABLE: [_card_check.rule_rate()]},
        "rounds_s": race.rounds, "naive_first": race.naive_first, "epochs": setting.epochs,
        "seeds": [setting.seed(k) for k in range(2 * setting.rounds)],
        "names": {part: len(pairs) for part, pairs in names._asdict().items()},
        "examples": race.examples, "function": {"name": more["name"], "text": more["text"]},
    }


def read(path: str | Path) -> ReportCard:
    """The card of a file. Raises CardError when it is not one, or when its numbers do not fit together."""
    try:
        with Path(path).open("rb") as file:
            content = json.loads(file.read(LARGEST_BYTES).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise CardError(t("{file} cannot be read as a report card: {error}", file=path, error=error)) from error
    faults = _card_check.faults(content)
    if faults:
        raise CardError("\n".join([t("{file} is not a report card as it was written:", file=path), *faults]))
    return ReportCard(content)


def verify(
    card: ReportCard | str | Path, *, walls: bool = True, notebook: str | Path | None = None, rounds: int = ROUNDS,
    limit_s: float = 300.0, memory_gb: float = 4.0, as_root: bool = False, quick: bool = False,
    seed: int | None = None, say: Callable[[str], None] = print,
):
    """Run a card's claims again with fresh seeds, names and letters; gives a ``Verification``.

    With ``walls`` each training is closed in as in ``labkit.classroom``: no network, no other files, limits on time and
    memory (Linux); without them only run a card of your own. ``notebook``: the function must stand in it. ``quick``
    accepts quick cards, to try the command.

    Raises CardError for a file that is no card, a quick card, or a function that the notebook does not have.
    """
    from labkit import _card_runs, _card_verify

    card = card if isinstance(card, ReportCard) else read(card)
    if card.content["quick"] and not quick:
        raise CardError(t("This is a quick card of few names, which proves nothing. Make a whole one: "
                          "report_card.make(train)"))
    if notebook is not None and (missing := _handed_in.missing_in(card.content["function"]["text"], Path(notebook))):
        raise CardError(t("The notebook does not hold what was measured: {names}.", names=", ".join(missing)))
    with _card_runs.runner(walls=walls, limit_s=limit_s, memory_gb=memory_gb, as_root=as_root, say=say) as run:
        return _card_verify.verify(card, run=run, rounds=rounds, seed=seed, say=say)


def main(arguments: list[str] | None = None) -> int:
    """``verify CARD…``: 0 when every number of every card could be repeated, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m labkit.report_card", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = commands.add_parser("verify")
    one.add_argument("cards", nargs="+", type=Path, metavar="CARD")
    one.add_argument("--notebook", type=Path)
    one.add_argument("--mine", action="store_true")
    one.add_argument("--limit-s", type=float, default=300.0)
    one.add_argument("--memory-gb", type=float, default=4.0)
    one.add_argument("--as-root", action="store_true")
    one.add_argument("--quick", action="store_true")
    one.add_argument("--csv", type=Path)
    one.add_argument("--lang", choices=LANGUAGES)
    options = parser.parse_args(arguments)
    if options.lang:
        use_language(options.lang)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a Windows console may lack Bengali letters
    from labkit import _card_runs

    return _card_runs.verify_all(options)


if __name__ == "__main__":
    sys.exit(main())
