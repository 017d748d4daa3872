"""``Lab``: a pure function, some controls, a guess, and one button. Every lab of the course is a few methods on top.

A whole lab::

    class SortingLab(Lab):
        key = "90-sorting"                       # guesses are kept under it: the lesson's number first

        def title(self):                         # every text is made here and now, so that it has the language of now
            return t("How long does sorting take?")

        def controls(self):
            return [Choice("n", t("How many numbers"), [1000, 100_000], show="{:,}".format),
                    Number("budget_s", t("Time for measuring (seconds)"), 0.5, 0.1, 10.0)]

        def question(self):                      # None for a lab in which nothing is guessed
            return Question(t("How long will it take, in milliseconds?"), unit="ms")

        @staticmethod
        def measure(*, n, budget_s):             # the pure function: controls in, a value out, no widget in sight
            numbers = [hash(str(i)) for i in range(n)]
            step(t("Sorting …"), 0.2)            # optional: said in the status line; a place where Stop works at once
            return timing.measure(sorted, numbers, budget_s=budget_s)

        def measured(self, value):               # what the guess is held against: number, Ratio or Measurement
            return value

        def table(self, value):
            return Table([t("median"), t("runs")], [[seconds(value.median_s), str(value.n)]])

        def figure(self, value, guess):          # guess: a number in the question's unit, or None
            return with_guess(plots.samples(value), y=guess)

        def verdict(self, value):                # one sentence
            return t("One sort takes {time}.", time=seconds(value.median_s))

        def why(self, value):                    # counted facts that explain it: a text, or a list of texts
            return t("A sort compares each number with about log2(n) others.")

Optional: ``about()`` (a sentence under the title), ``more(value)`` (HTML below the table, such as a linked view),
``beside(outcome)`` (another sentence for the guess beside the measurement, where nothing was measured),
``card(value)`` (provenance; ``value.card()`` unless given), ``limit_s``. Where ``data/measurements/`` holds cards of
this lab with a comparison in them, they are shown beside the result: ``named(name)`` is what a candidate is called,
``packages`` whose versions matter. ``Choice``, ``Number``, ``Text``,
``Question``, ``Table``, ``step``, ``uninterrupted`` and ``with_guess`` all come from this module.

What ``measure`` raises is told to the learner in words; nothing in a lab needs a ``try``. A compile goes inside
``with uninterrupted():``. Never use pyplot. Add the class to the table in `labkit.widgets`, and the lab is there:
``lab.widgets.SortingLab()`` shows it, ``SortingLab(n=100_000)`` with another default, and without widgets
``SortingLab().run(n=1000)`` returns what ``measure`` returns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from labkit import guesses
from labkit._folders import write_whole
from labkit._lab_controls import Choice, Number, Question, Text, settings
from labkit._lab_errors import CellWatch, disturbed_by_a_cell, explained, ran_out_of_time
from labkit._lab_result import LabResult, with_guess
from labkit._lab_table import Table
from labkit._lab_worker import Job, StoppedError, in_turn, step, uninterrupted
from labkit.language import t

__all__ = ["Choice", "Lab", "LabResult", "Number", "Question", "StoppedError", "Table", "Text", "step",
           "uninterrupted", "with_guess"]  # fmt: skip

FOLDER = "labkit-results"
_BENGALI = str.maketrans("০১২৩৪৫৬৭৮৯", "0123456789")


class Lab:
    """A measuring lab; the module's docstring shows how to write one.

    In a notebook the last line of a cell, ``lab.widgets.FusionLab()``, shows it. ``run(**controls)`` works without
    widgets, ``value`` is what the last run returned, ``result`` is how it is shown. ``state`` is ``"ready"``,
    ``"waiting"`` (another lab measures), ``"running"``, ``"stopping"``, ``"done"``, ``"stopped"``, ``"late"``
    (the time limit) or ``"failed"``.
    """

    key = "00-lab"
    limit_s = 120.0
    packages = ("torch", "triton")  # what a recorded run names with its version
    is_measured = True  # False: worked out from the controls alone, the same on every machine

    def __init__(self, *, key: str | None = None, limit_s: float | None = None, **start):
        """``start``: other defaults for the controls. Raises ValueError for a control or value that does not exist."""
        self.key, self.limit_s = key or self.key, limit_s or self.limit_s
        self._start = start
        settings(self.controls(), start)
        self.value = None
        self.result: LabResult | None = None
        self.state, self.said, self.share = "ready", "", None
        self._watchers: list = []
        self._job: Job | None = None
        self._guesses = 0

    # what a lab overrides

    def title(self) -> str:
        raise NotImplementedError

    def about(self) -> str:
        return ""

    def controls(self) -> Sequence[Choice | Number | Text]:
        return []

    def question(self) -> Question | None:
        return None

    @staticmethod
    def measure(**controls):
        raise NotImplementedError

    def measured(self, value):
        return getattr(value, "value", value)

    def beside(self, outcome: guesses.Outcome) -> str:
        """The guess beside what came out, as a sentence."""
        return str(outcome)

    def table(self, value) -> Table:
        raise NotImplementedError

    def figure(self, value, guess: float | None):
        raise NotImplementedError

    def verdict(self, value) -> str:
        raise NotImplementedError

    def why(self, value) -> str | list[str]:
        return ""

    def more(self, value) -> str:
        return ""

    def card(self, value) -> dict:
        return value.card()

    def named(self, name: str) -> str:
        """What a candidate of the comparison is called in the current language."""
        return name

    # what a lab is used by

    def run(self, *, guess=None, **controls):
        """Measure here and now, without widgets, and return what ``measure`` returns.

        Waits while another lab measures. What the function raises comes through unchanged. ``guess`` is kept as if it
        had been typed.
        """
        given = self._settings(controls)
        prediction = self._predict(guess)
        self._tell("running")
        try:
            value = in_turn(self.title(), lambda: self.measure(**given))
        except BaseException:
            self._tell("failed")
            raise
        self._keep(LabResult(self, value, given, prediction))
        self._tell("done")
        return value

    def start(self, *, guess=None, **controls) -> None:
        """Measure in the worker thread, as the Run button does; while a run is under way nothing more is started."""
        if self.is_busy:
            return
        given = self._settings(controls)
        prediction = self._predict(guess)

        def work():
            with CellWatch() as cells:
                result = LabResult(self, self.measure(**given), given, prediction)
            if cells.saw_a_cell:
                result.notes.append(disturbed_by_a_cell())
            result.prepare()  # what the lab makes of a value that it did not expect fails here, where it is caught
            return result

        self._job = Job(self.title(), work, limit_s=self.limit_s, report=self._report, done=self._done)
        self.state = "waiting"
        self._job.start()

    def stop(self) -> None:
        """Ask the run under way to end; the state is ``"stopped"`` two seconds later at most."""
        if self._job is not None and self.is_busy:
            self._job.stop()

    def wait(self, timeout_s: float = 60.0) -> str:
        """Wait for the end of a run that ``start()`` began; returns the state."""
        if self._job is not None:
            self._job.wait(timeout_s)
        return self.state

    @property
    def is_busy(self) -> bool:
        return self.state in ("waiting", "running", "stopping")

    def save(self, folder: str | Path = FOLDER) -> Path:
        """Write the last result's card as JSON into ``folder`` and return its path. Raises ValueError without one."""
        if self.result is None:
            raise ValueError(t("There is no result yet: press Run first."))
        stamp = re.sub(r"\D", "", self.result.utc)[:14]
        path = Path(folder) / f"{type(self).__name__}-{stamp}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(self.result.card(), ensure_ascii=False, indent=1))
        return path

    def defaults(self) -> dict:
        """Every control's value at the start."""
        return settings(self.controls(), self._start)

    def watch(self, watcher) -> None:
        """Call ``watcher(lab)`` at every change of ``state``, ``said`` or ``result``, from whatever thread."""
        self._watchers.append(watcher)

    def __str__(self):
        return self.title() if self.result is None else str(self.result)

    __repr__ = __str__

    def _ipython_display_(self) -> None:
        from labkit._lab_panel import show

        show(self)

    # inside

    def _settings(self, controls: dict) -> dict:
        return settings(self.controls(), self._start | controls)

    def _predict(self, guess):
        """Keep a guess for the notebook's summary: the first under the lab's key, later ones with a number."""
        question = self.question()
        if question is None or guess is None or not str(guess).strip():
            return None
        text = guess.strip().translate(_BENGALI).rstrip("xX×% ") if isinstance(guess, str) else guess
        key = self.key if not self._guesses else f"{self.key} ({self._guesses + 1})"
        prediction = guesses.predict(key, text, unit=question.unit)
        if prediction.value is not None:
            self._guesses += 1
        return prediction

    def _keep(self, result: LabResult) -> None:
        self.value, self.result = result.value, result

    def _report(self, event: str, text: str, share: float | None) -> None:
        if event == "step":
            self._tell("running", text, share)
        elif event == "waiting":
            self._tell("waiting", t("Waiting: “{lab}” is measuring. This one starts by itself afterwards.", lab=text))
        elif event == "elsewhere":
            self._tell("waiting", t("Waiting, half a minute at most: another notebook measures on this machine. This "
                                    "one starts by itself afterwards."))  # fmt: skip
        elif event == "held up":
            self._tell("waiting", t("Waiting, half a minute at most: a part of “{lab}” that could not be interrupted "
                                    "still uses the machine.", lab=text))  # fmt: skip
        else:
            self._tell(event)

    def _done(self, outcome: str, value) -> None:
        if outcome == "done":
            if self._job.beside:
                value.notes.append(
                    t("“{lab}” was stopped but could not be interrupted, and still used this machine: measure again "
                      "later, or restart the kernel for clean numbers.", lab=self._job.beside)
                )  # fmt: skip
            self._keep(value)
            self._tell("done")
        elif outcome == "failed":
            self._tell("failed", explained(value))
        elif outcome == "late":
            self._tell("late", ran_out_of_time(self.limit_s, has_ended=value))
        else:
            self._tell("stopped", "" if value else t(
                "A part that cannot be interrupted runs on to its end; what it gives is thrown away."))

    def _tell(self, state: str, text: str = "", share: float | None = None) -> None:
        self.state, self.said, self.share = state, text, share
        for watcher in list(self._watchers):
            watcher(self)
