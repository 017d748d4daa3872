"""How a report card is shown: lines of text, a table, and the picture beside the card."""

from __future__ import annotations

import html
import statistics

from labkit import _statistics, _verdict_view
from labkit._figure import LabFigure, bengali_text
from labkit._measurement_view import CELL, TEXT
from labkit._project_trials import NAIVE, PROJECT
from labkit.language import t
from labkit.units import ratio as shown_ratio
from labkit.units import seconds

TABLE = "table"
_COLOURS = {NAIVE: "#555555", PROJECT: "#0072b2", TABLE: "#d55e00"}
_HATCHES = {NAIVE: "---", PROJECT: "", TABLE: "///"}


def label(name: str) -> str:
    """What a candidate is called in the current language."""
    if name == NAIVE:
        return t("naive training")
    return t("your training") if name == PROJECT else t("rule, no training")


def lines(card) -> list[str]:
    """The card in words: speed, quality, counted facts, what it is not."""
    value, low, high = card.ratio
    found = [
        t("Speed: naive time / your time = {ratio} (probably between {low} and {high}), verdict: {verdict}.",
          ratio=shown_ratio(value), low=shown_ratio(low), high=shown_ratio(high),
          verdict=_verdict_view.label(card.verdict)),
        t("Character error rate on {count} held-out names: yours {own:.3f}, naive {naive:.3f}, rule without training "
          "{table:.3f}.", count=card.content["names"]["test"], own=card.cer(PROJECT), naive=card.cer(NAIVE),
          table=card.cer(TABLE)),
        t("Operators called in a small training: yours {own:,}, naive {naive:,}.",
          own=card.content["facts"][PROJECT]["operators"], naive=card.content["facts"][NAIVE]["operators"]),
    ]
    if card.content["quick"]:
        found.append(t("This is a quick card of few names: only to see that it works. Make a whole one to hand in."))
    return found


def as_html(card) -> str:
    heads = (t("training"), t("median"), t("character error rate"), t("operators"))
    head = "".join(f'<th scope="col" style="{CELL}">{html.escape(text)}</th>' for text in heads)
    rows = ""
    for name in (NAIVE, PROJECT, TABLE):
        times = [one for pair in card.content["rounds_s"].get(name, []) for one in pair]
        cells = [label(name), seconds(_statistics.median_and_iqr(times)[0]) if times else "", f"{card.cer(name):.3f}",
                 f"{card.content['facts'][name]['operators']:,}" if times else ""]
        rows += "<tr>" + "".join(f'<td style="{CELL}">{html.escape(cell)}</td>' for cell in cells) + "</tr>"
    below = "".join(f"<p>{html.escape(line)}</p>" for line in lines(card))
    return (f'<div style="{TEXT}"><table style="border-collapse:collapse"><thead><tr>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table>{below}</div>")


def figure(card) -> LabFigure:
    """Seconds a training, errors, and what both models make of some held-out names."""

    def draw(figure: LabFigure) -> None:
        with_names = bengali_text() == "shaped"
        grid = figure.add_gridspec(2, 2 if with_names else 1, width_ratios=(3, 2) if with_names else None)
        _times(figure.add_subplot(grid[0, 0]), card)
        _errors(figure.add_subplot(grid[1, 0]), card)
        if with_names:
            _names(figure.add_subplot(grid[:, 1]), card)
        figure.alt = " ".join(lines(card))

    return LabFigure(draw, figsize=(9.0, 4.2))


def _times(axes, card) -> None:
    for row, name in enumerate((NAIVE, PROJECT)):
        times = [one for pair in card.content["rounds_s"][name] for one in pair]
        median = statistics.median(times)
        axes.barh(row, median, height=0.6, color=_COLOURS[name], hatch=_HATCHES[name], edgecolor="white")
        axes.plot(times, [row] * len(times), "|", color="#1f2328", markersize=9)
        axes.annotate(seconds(median), (max(times), row), (8, 0), textcoords="offset points", va="center")
    _tidy(axes, (NAIVE, PROJECT))
    axes.set_xlabel(t("seconds a training"))
    value, low, high = card.ratio
    axes.set_title(t("{ratio} times as fast ({low} – {high}): {verdict}", ratio=shown_ratio(value),
                     low=shown_ratio(low), high=shown_ratio(high), verdict=_verdict_view.label(card.verdict)))


def _errors(axes, card) -> None:
    order = (TABLE, NAIVE, PROJECT)
    for row, name in enumerate(order):
        axes.barh(row, card.cer(name), height=0.6, color=_COLOURS[name], hatch=_HATCHES[name], edgecolor="white")
        axes.plot(card.content["cer"][name], [row] * len(card.content["cer"][name]), "|", color="#1f2328", markersize=9)
        text = f"{card.cer(name):.3f}"
        axes.annotate(text, (max(card.content["cer"][name]), row), (8, 0), textcoords="offset points", va="center")
    _tidy(axes, order)
    axes.set_xlabel(t("character error rate on held-out names (smaller is better)"))


def _tidy(axes, names) -> None:
    axes.set_yticks(range(len(names)), [label(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.margins(x=0.2)
    axes.set_xlim(left=0)
    axes.grid(visible=False, axis="y")


def _names(axes, card) -> None:
    """Some held-out names: the Bengali, how it is spelled, and what the learner's model wrote."""
    rows = [[t("name"), t("English"), t("yours")], *([bn, en, own] for bn, en, _, own in card.content["examples"])]
    axes.axis("off")
    for row, cells in enumerate(rows):
        for column, cell in enumerate(cells):
            axes.text(column / 3, 1 - (row + 0.5) / len(rows), cell, va="center", transform=axes.transAxes,
                      weight="bold" if row == 0 else "normal")
