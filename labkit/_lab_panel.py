"""A lab's controls and results as widgets. Core ipywidgets only, of release 7.7 as well as 8.1.

Widgets are changed from the worker's threads by setting traits, which both releases allow. Sliders have no accessible
name and progress bars no role, so there are none: menus, number fields, buttons, and a status line as HTML.
"""

from __future__ import annotations

import html
import json
import os
import sys
from urllib.parse import quote

import ipywidgets as widgets

from labkit._folders import reason
from labkit._lab_controls import Choice, Number
from labkit._measurement_view import TEXT
from labkit.language import current_language, t

WIDE = {"description_width": "initial"}
SAVE_RUNS = "LABKIT_SAVE_RUNS"


def show(lab) -> None:
    """Display ``lab``: its panel in a notebook, text elsewhere.

    With the environment's ``LABKIT_SAVE_RUNS=1`` the lab runs once and its result is displayed without any widget: so
    are notebooks built that are read where no kernel runs.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None or not hasattr(shell, "kernel"):
        print(lab)
        return
    from IPython.display import display

    if os.environ.get(SAVE_RUNS):
        if lab.result is None:
            lab.run()
            lab.result.outcome = None  # nobody was there to guess
        display(saved(lab), raw=True)
        return
    panel = Panel(lab)
    display(panel.box)
    panel.kept = display({"text/html": "", "text/plain": ""}, raw=True, display_id=True)


def saved(lab) -> dict:
    """The last result as a bundle of plain HTML and text."""
    from labkit import hardware

    if lab.is_measured:
        where = hardware.provenance()
        line = t("A saved run of {utc} on {machine}. Run this cell to get the lab itself and to measure on your "
                 "machine.", utc=lab.result.utc[:10], machine=where.get("gpus", [where["cpu"]])[0])  # fmt: skip
    else:
        line = t("Worked out from the choices above. Run this cell to get the lab itself and to choose for yourself.")
    head = f"<h4>{html.escape(lab.title())}</h4><p>{html.escape(line)}</p>"
    shown = f'<div lang="{current_language()}" style="{TEXT}">{head}{lab.result.html(png=True)}</div>'
    return {"text/html": shown, "text/plain": f"{lab.result}\n{line}"}


class Panel:
    """The widgets of one lab; ``box`` is what is displayed."""

    def __init__(self, lab):
        self.lab, self.kept = lab, None
        start = lab.defaults()
        self.controls = {control.name: _widget(control, start[control.name]) for control in lab.controls()}
        question = lab.question()
        self.guess = None
        if question is not None:
            unit = "" if question.unit in ("", "x") else f" ({question.unit})"
            self.guess = widgets.Text(
                description=f"{t('Your guess:')} {question.text}{unit}", style=WIDE, layout={"width": "auto"},
                placeholder=t("a number"),
            )  # fmt: skip
            self.guess.continuous_update = False
        self.run = _button(t("Run"), self._on_run, style="primary")
        self.stop = _button(t("Stop"), self._on_stop)
        self.save = _button(t("Save result"), self._on_save, disabled=True)
        self.status, self.result = widgets.HTML(), widgets.HTML()
        about = f"<p>{html.escape(lab.about())}</p>" if lab.about() else ""
        title = widgets.HTML(f'<div lang="{current_language()}" style="{TEXT}"><h4>{html.escape(lab.title())}</h4>'
                             f"{about}</div>")  # fmt: skip
        wrap = {"display": "flex", "flex_flow": "row wrap", "align_items": "center"}
        rows = [title, widgets.Box(list(self.controls.values()), layout=wrap)]
        rows += [self.guess] if self.guess is not None else []
        rows += [widgets.Box([self.run, self.stop, self.save], layout=wrap), self.status, self.result]
        self.box = widgets.VBox(rows)
        self._shown = lab.result
        if lab.result is not None:
            self.result.value, self.save.disabled = lab.result.html(), False
        self._say(t("Set the controls, write your guess, then press Run.") if question else
                  t("Set the controls, then press Run."))  # fmt: skip
        lab.watch(self._on_change)

    def _on_run(self, _button) -> None:
        values = {name: widget.value for name, widget in self.controls.items()}
        try:
            self.lab.start(guess=self.guess.value if self.guess is not None else None, **values)
        except ValueError as error:
            self._say(str(error), "✗")

    def _on_stop(self, _button) -> None:
        if not self.lab.is_busy:
            self._say(t("Nothing is running."))
        self.lab.stop()

    def _on_save(self, _button) -> None:
        """Write the card as a file, offer it as a download, and keep a copy of the result in the notebook."""
        try:
            path = self.lab.save()
        except OSError as error:
            self._say(t("The file could not be written: {error}.", error=reason(error)), "✗")
            return
        data = quote(json.dumps(self.lab.result.card(), ensure_ascii=False, indent=1))
        link = (f'<a download="{html.escape(path.name)}" href="data:application/json;charset=utf-8,{data}">'
                f"{html.escape(t('download'))}</a>")  # fmt: skip
        self._say(t("Saved as {file}. A copy of the result stays in the notebook, below.", file=str(path)), "✓", link)
        if self.kept is not None:
            shown = {"text/html": self.lab.result.html(png=True), "text/plain": str(self.lab.result)}
            self.kept.update(shown, raw=True)

    def _on_change(self, lab) -> None:
        busy = lab.is_busy
        self.run.disabled = busy
        sign, text = _status(lab)
        if lab.state == "done" and lab.result is not self._shown:
            self._shown = lab.result
            self.result.value = lab.result.html()
            self.save.disabled = False
        bar = ""
        if lab.state == "running" and lab.share is not None:
            bar = f'<progress aria-hidden="true" value="{lab.share:.2f}" max="1"></progress>'
        self._say(text, sign, bar)

    def _say(self, text: str, sign: str = "○", more: str = "") -> None:
        self.status.value = (f'<div role="status" lang="{current_language()}" style="{TEXT};min-height:1.6em">'
                             f'<span aria-hidden="true">{sign}</span> {html.escape(text)} {more}</div>')  # fmt: skip


def _status(lab) -> tuple[str, str]:
    """A sign and a text for the lab's state."""
    if lab.state == "done":
        return "✓", t("Done.") + " " + lab.verdict(lab.value)
    if lab.state == "running":
        return "●", t("Measuring …") + (f" {lab.said}" if lab.said else "")
    if lab.state == "stopping":
        return "■", t("Stopping …")
    if lab.state == "stopped":
        return "■", (t("Stopped.") + " " + lab.said).strip()
    if lab.state == "late":
        return "✗", t("Time is up.") + " " + lab.said
    return ("✗", lab.said) if lab.state == "failed" else ("○", lab.said)


def _widget(control, value):
    look = {"description": control.label, "style": WIDE, "layout": {"width": "auto", "margin": "2px 16px 2px 0"}}
    if isinstance(control, Choice):
        return widgets.Dropdown(options=[(control.show(v), v) for v in control.options], value=value, **look)
    if isinstance(control, Number):
        kind = widgets.BoundedIntText if isinstance(control.default, int) else widgets.BoundedFloatText
        look["layout"]["max_width"] = "24em"
        return kind(value=value, min=control.low, max=control.high, **look)
    return widgets.Text(value=value, **look)


def _button(text: str, on_click, *, style: str = "", disabled: bool = False):
    # No icon: it is a letter of a symbol font, and becomes a part of the name that a screen reader says.
    button = widgets.Button(description=text, button_style=style, disabled=disabled, layout={"width": "auto"})
    button.on_click(on_click)
    return button
