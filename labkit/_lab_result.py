"""What a lab shows of one run: verdict, guess beside measurement, picture, table, why, and what was recorded
elsewhere. HTML and plain text."""

from __future__ import annotations

import base64
import datetime
import functools
import html
from collections.abc import Callable

from labkit import _recorded_view
from labkit._figure import LabFigure
from labkit._measurement_view import TEXT
from labkit.language import current_language, t

_GUESS = "#7a2e8e"


def with_guess(figure: LabFigure, *, x: float | None = None, y: float | None = None) -> LabFigure:
    """``figure`` with the learner's guess drawn in: a dashed line at ``x`` or at ``y``, a star where both are given.

    The figure itself comes back when both are None, as they are where nothing was guessed.
    """
    if x is None and y is None:
        return figure

    def draw(picture: LabFigure) -> None:
        figure._draw(picture)
        axes, look = picture.axes[0], {"color": _GUESS, "label": t("your guess"), "zorder": 5}
        if x is not None and y is not None:
            axes.plot([x], [y], "*", markersize=13, **look)
        elif x is not None:
            axes.axvline(x, linestyle=(0, (2, 2)), linewidth=1.8, **look)
            low, high = axes.get_xlim()
            axes.set_xlim(min(low, x), high if x < high else x * 1.1)
        else:
            axes.axhline(y, linestyle=(0, (2, 2)), linewidth=1.8, **look)
            low, high = axes.get_ylim()
            axes.set_ylim(min(low, y), high if y < high else y * 1.1)
        # Above the axes, where it covers no point.
        axes.legend(fontsize=8.5, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2)
        picture.alt = f"{picture.alt} {t('Your guess is drawn in.')}"

    return LabFigure(draw, **figure._options)


class LabResult:
    """One run of a lab: ``value``, the controls' ``settings``, the guess, and how all of it is shown."""

    def __init__(self, lab, value, settings: dict, prediction=None):
        self.lab, self.value, self.settings = lab, value, settings
        self.notes: list[str] = []
        self.utc = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.prediction = prediction
        question = lab.question()
        self.outcome = None
        if prediction is not None and prediction.value is not None:
            self.outcome = prediction.beside(lab.measured(value))
        elif question is not None:
            from labkit.guesses import Outcome, Prediction

            self.outcome = Outcome(Prediction(lab.key, None, question.unit, measured=_number(lab, value, question)))

    @property
    def guess(self) -> float | None:
        return None if self.prediction is None else self.prediction.value

    @functools.cached_property
    def figure(self) -> LabFigure:
        """The picture; the guess is drawn in where there is one."""
        return self.lab.figure(self.value, self.guess)

    def numbers(self) -> str:
        """Verdict, guess beside measurement, table and why as HTML: all but the picture, which takes longer."""
        return self._html("")

    def html(self, *, png: bool = False) -> str:
        """Everything as HTML. ``png=True`` is a smaller, coarser picture, for a notebook that is kept."""
        return self._html(_image(self.figure) if png else self.figure.html())

    def _html(self, picture: str) -> str:
        lab, value = self.lab, self.value
        parts = [f"<p><strong>▶ {html.escape(lab.verdict(value))}</strong></p>"]
        if self.outcome is not None:
            parts.append(f"<p>✎ {html.escape(self.lab.beside(self.outcome))}</p>")
        parts += [picture, lab.table(value).html()]
        parts += [f"<p><em>{html.escape(t('Why?'))}</em> {html.escape(text)}</p>" for text in self.reasons()]
        parts += [f"<p>⚠ {html.escape(note)}</p>" for note in self.notes]
        parts += [self.recorded.html()] if self.recorded else []
        return f'<div lang="{current_language()}" style="{TEXT}">{"".join(parts)}{lab.more(value)}</div>'

    @functools.cached_property
    def _runs(self):
        return _recorded_view.runs(self)

    @property
    def recorded(self) -> _recorded_view.Beside | None:
        """This run beside those that were recorded elsewhere; None where there are none."""
        return _recorded_view.Beside(self.lab, *self._runs) if self._runs else None

    def reasons(self) -> list[str]:
        why = self.lab.why(self.value)
        return [text for text in ([why] if isinstance(why, str) else why) if text]

    def prepare(self) -> None:
        """Make everything that can fail, so that it fails where it is told to the learner."""
        self.numbers()
        _ = self.figure

    def card(self) -> dict:
        """Provenance as plain JSON values: the lab, its controls, the guess, and the card of what was measured."""
        return {
            "format": 1, "kind": "lab", "lab": type(self.lab).__name__, "utc": self.utc,
            "controls": {name: _plain(value) for name, value in self.settings.items()}, "guess": self.guess,
            "unit": self.prediction.unit if self.prediction else None, "notes": list(self.notes),
            "result": self.lab.card(self.value),
        }  # fmt: skip

    def __str__(self):
        parts = [self.lab.title(), self.lab.verdict(self.value)]
        parts += [] if self.outcome is None else [self.lab.beside(self.outcome)]
        recorded = [str(self.recorded)] if self.recorded else []
        return "\n".join([*parts, str(self.lab.table(self.value)), *self.reasons(), *self.notes, *recorded])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.html()


def _number(lab, value, question) -> float | None:
    from labkit.guesses import _number_of

    return _number_of(lab.measured(value), question.unit)


def _plain(value):
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _image(figure: LabFigure) -> str:
    try:
        data = base64.b64encode(figure.png()).decode()
    except RuntimeError:  # a matplotlib that cannot set Bengali: in an SVG the browser does it
        return figure.html()
    return f'<img alt="{html.escape(figure.alt)}" src="data:image/png;base64,{data}" style="max-width:100%">'


def worked_out(outcome, show: Callable[[float], str]) -> str:
    """The guess beside a value that was computed and not measured; ``show`` writes either with its unit."""
    guess, got = outcome.prediction.value, outcome.prediction.measured
    if guess is None:
        return t("It comes to {got}. You had not written a guess; next time write one first.", got=show(got))
    return t("You guessed {guess}; it comes to {got}.", guess=show(guess), got=show(got))
