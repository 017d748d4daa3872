"""Pictures of measurements: each function returns a ``LabFigure``, which a notebook shows by itself. Never pyplot.

    bars(comparison)         how many times as fast, with intervals and the line at 1
    samples(measurements)    every run, in the order it happened
    histogram(measurements)  how often each time occurred
    lines(x, {"eager": y})   one quantity against another
    intervals(ratios)        values with their intervals

A series is told apart by its marker, dash or hatch as well as by its colour. Labels that a caller passes are shown as
they are; a label may be a function without arguments, such as ``lambda: t("…")``, so that it can be asked again in
another language.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from labkit import _verdict_view
from labkit._figure import LabFigure, bengali_text
from labkit.language import t
from labkit.units import ratio, seconds, size

__all__ = ["LabFigure", "bars", "bengali_text", "histogram", "intervals", "lines", "samples"]

# Okabe and Ito's colours, told apart by colour-blind readers too; the two palest are left out, as they fade on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#555555")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (1, 1)))
# Colour and hatch of a verdict. No hatch has dots: each would be a circle, 100 KB of SVG in all.
_VERDICTS = {"faster": (2, ""), "slower": (1, "///"), "same": (5, "---"), "undecided": (4, "xxx")}

Label = str | Callable[[], str]


def _text(label: Label) -> str:
    return label() if callable(label) else label


def _style(index: int) -> dict:
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[index % len(MARKERS)],
        "linestyle": DASHES[index % len(DASHES)],
    }


def _triple(entry) -> tuple[float, float, float]:
    """(value, low, high) of a Ratio, of three numbers, or of one number, which is its own interval."""
    if hasattr(entry, "low"):
        return entry.value, entry.low, entry.high
    value, low, high = entry if isinstance(entry, Sequence) else (entry, entry, entry)
    return float(value), float(low), float(high)


def _named(measurements) -> dict:
    """Name -> seconds, from a Measurement, a list or dict of them, a Comparison, or plain numbers."""
    measurements = getattr(measurements, "measurements", measurements)
    if hasattr(measurements, "times_s"):
        measurements = [measurements]
    if not isinstance(measurements, Mapping):
        measurements = {item.name: item for item in measurements}
    return {str(name): list(getattr(item, "times_s", item)) for name, item in measurements.items()}


def _time_unit(times_s: Sequence[float]) -> tuple[float, str]:
    """The unit in which the median reads well, as (seconds in it, its sign)."""
    middle = sorted(times_s)[len(times_s) // 2]
    return next(((s, sign) for s, sign in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if middle >= s), (1e-9, "ns"))


def bars(comparison) -> LabFigure:
    """How many times as fast as the baseline each candidate is: bar, 95 % interval, verdict, and a line at 1."""

    def draw(figure: LabFigure) -> None:
        axes = figure.subplots()
        names = [name for name in comparison.names if name != comparison.baseline]
        said = []
        for row, name in enumerate(names):
            r, verdict = comparison.ratio(name), comparison.verdict(name)
            colour, hatch = _VERDICTS[verdict]
            axes.barh(row, r.value, height=0.6, color=COLOURS[colour], hatch=hatch, edgecolor="white")
            spread = [[r.value - r.low], [r.high - r.value]]
            axes.errorbar(r.value, row, xerr=spread, color="#1f2328", capsize=4, linewidth=1.5)
            text = f"{ratio(r.value)}, {_verdict_view.label(verdict)}"
            axes.annotate(text, (max(1.0, r.high), row), (8, 0), textcoords="offset points", va="center")
            said.append(f"{name}: {text} ({ratio(r.low)} – {ratio(r.high)})")
        axes.axvline(1.0, color="#1f2328", linestyle="--", linewidth=1)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, 1.45 * max([1.0, *(comparison.ratio(name).high for name in names)]))
        axes.set_xlabel(t("times as fast as {baseline} (above 1 is faster)", baseline=comparison.baseline))
        figure.alt = t("Bars: times as fast as {baseline}. {rows}", baseline=comparison.baseline, rows="; ".join(said))

    return LabFigure(draw, figsize=(6.4, 1.1 + 0.5 * max(1, len(comparison.names) - 1)))


def samples(measurements, *, title: Label = "") -> LabFigure:
    """Every run's time in the order the runs happened, and each median as a line: drift and outliers show.

    ``measurements``: a Measurement, several, a Comparison, or a dict of name -> times in seconds.
    """

    def draw(figure: LabFigure) -> None:
        axes = figure.subplots()
        series = _named(measurements)
        unit_s, unit = _time_unit([time_s for times_s in series.values() for time_s in times_s])
        said = []
        for index, (name, times_s) in enumerate(series.items()):
            look = _style(index)
            shown = [time_s / unit_s for time_s in times_s]
            middle = sorted(times_s)[len(times_s) // 2]
            axes.plot(range(1, len(shown) + 1), shown, look["marker"], color=look["color"], markersize=4)
            axes.axhline(middle / unit_s, color=look["color"], linestyle=look["linestyle"], linewidth=1.2)
            axes.plot([], [], **look, markersize=4, linewidth=1.2, label=name)  # the legend's entry: both signs in one
            row = t("{name}: {count} runs, median {median}", name=name, count=len(times_s), median=seconds(middle))
            said.append(row)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(t("run"))
        axes.set_ylabel(t("time ({unit})", unit=unit))
        axes.set_title(_text(title))
        axes.legend(loc="lower right")
        figure.alt = t("Every run's time, in order. {rows}", rows="; ".join(said))

    return LabFigure(draw)


def histogram(measurements, *, bins: int = 30, title: Label = "") -> LabFigure:
    """How often each time occurred, for the same things as ``samples()``; all series share their bins."""

    def draw(figure: LabFigure) -> None:
        axes = figure.subplots()
        series = _named(measurements)
        every = [time_s for times_s in series.values() for time_s in times_s]
        unit_s, unit = _time_unit(every)
        low, high = min(every) / unit_s, max(every) / unit_s
        for index, (name, times_s) in enumerate(series.items()):
            look = _style(index)
            axes.hist(
                [time_s / unit_s for time_s in times_s],
                bins=bins,
                range=(low, high),
                histtype="stepfilled",
                facecolor=look["color"] + "44",
                edgecolor=look["color"],
                linestyle=look["linestyle"],
                linewidth=1.5,
                label=name,
            )
        axes.set_xlabel(t("time ({unit})", unit=unit))
        axes.set_ylabel(t("how many runs"))
        axes.set_title(_text(title))
        axes.legend()
        rows = "; ".join(f"{name}: {seconds(min(ts))} – {seconds(max(ts))}" for name, ts in series.items())
        figure.alt = t("How often each time occurred. {rows}", rows=rows)

    return LabFigure(draw)


def lines(
    x: Sequence[float],
    series: Mapping[str, Sequence],
    *,
    xlabel: Label,
    ylabel: Label,
    title: Label = "",
    log_x: bool = False,
    log_y: bool = False,
    byte_x: bool = False,
) -> LabFigure:
    """One line a series. An entry is a number, or (value, low, high) or a ``Ratio``, whose interval is drawn too.

    ``x`` has as many entries as each series; ``byte_x`` prints them as sizes (kB, MB). Numbers on a logarithmic axis
    are printed in full, not as powers.
    """

    def draw(figure: LabFigure) -> None:
        axes = figure.subplots()
        for index, (name, values) in enumerate(series.items()):
            look = _style(index)
            middle, low, high = zip(*map(_triple, values), strict=True)
            axes.plot(x, middle, markersize=5, label=str(name), **look)
            if low != high:
                axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        axes.set_xscale("log" if log_x else "linear")
        axes.set_yscale("log" if log_y else "linear")
        axes.set_xticks(list(x), [size(value) if byte_x else f"{value:g}" for value in x])
        axes.minorticks_off()
        if log_y:
            axes.yaxis.set_major_formatter(lambda value, _position: f"{value:g}")
        axes.set_xlabel(_text(xlabel))
        axes.set_ylabel(_text(ylabel))
        axes.set_title(_text(title))
        if len(series) > 1:
            axes.legend()
        figure.alt = t(
            "Lines: {y} against {x}. {names}", y=_text(ylabel), x=_text(xlabel), names=", ".join(map(str, series))
        )

    return LabFigure(draw)


def intervals(
    rows: Mapping[str, object], *, xlabel: Label, title: Label = "", reference: float | None = None, margin: float = 0.0
) -> LabFigure:
    """Values with their intervals, one a line: ``rows`` maps a name to (value, low, high) or to a ``Ratio``.

    ``reference`` draws a line to compare with, such as 1.0 for ratios, and ``margin`` a band of that share around it.
    """

    def draw(figure: LabFigure) -> None:
        axes = figure.subplots()
        found = {str(name): _triple(row) for name, row in rows.items()}
        if reference is not None:
            axes.axvline(reference, color="#1f2328", linestyle="--", linewidth=1)
            axes.axvspan(reference * (1 - margin), reference * (1 + margin), color="#1f2328", alpha=0.08, linewidth=0)
        for index, (value, low, high) in enumerate(found.values()):
            look = _style(0 if reference is None else (value < reference))
            look.pop("linestyle")
            axes.errorbar(value, index, xerr=[[value - low], [high - value]], capsize=4, markersize=6, **look)
        axes.set_yticks(range(len(found)), list(found))
        axes.set_ylim(len(found) - 0.5, -0.5)  # the first on top, and none cut by the edge
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(_text(xlabel))
        axes.set_title(_text(title))
        said = "; ".join(f"{name}: {ratio(v)} ({ratio(low)} – {ratio(high)})" for name, (v, low, high) in found.items())
        figure.alt = t("Intervals: {x}. {rows}", x=_text(xlabel), rows=said)

    return LabFigure(draw, figsize=(6.4, 1.2 + 0.35 * max(1, len(rows))))
