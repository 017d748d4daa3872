"""What lesson 10 and ScaleLab show of networks of several sizes: the curve with its error bars, and a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.language import t
from labkit.lessons.fusion import Sentence
from labkit.lessons.scaling import PowerLaw, Run
from labkit.plots import COLOURS, LabFigure
from labkit.units import significant

BY = ("examples", "parameters")


def amount(by: str) -> str:
    """What is counted along the axis, in words."""
    return t("examples to learn from") if by == "examples" else t("parameters")


def growth(runs: Sequence[Run], by: str = "examples", law: PowerLaw | None = None, *, known: bool = False,
           title: str = "") -> LabFigure:
    """Errors against ``by``: the mean of the seeds, a bar from the best to the worst, and a law where one is given.

    ``known``: the errors on the examples that were trained on are drawn as well, and the axis is not logarithmic.
    """
    x = [getattr(one, by) for one in runs]

    def draw(figure: LabFigure) -> None:
        axes = figure.subplots()
        if law is not None:
            _law(axes, law, x)
        bars = [[100 * one.spread[k] for one in runs] for k in (0, 1)]
        label = t("unseen examples, {seeds} seeds", seeds=len(runs[0].errors))
        axes.errorbar(x, [100 * one.error for one in runs], yerr=bars, fmt="o-" if law is None else "o", capsize=4,
                      markersize=5, color=COLOURS[0], label=label, zorder=3)
        if known:
            axes.plot(x, [100 * one.known_error for one in runs], "s--", markersize=5, color=COLOURS[1],
                      label=t("the examples it was trained on"))
        axes.set_xscale("log")
        if not known:
            axes.set_yscale("log")
            best = min(min(one.errors) for one in runs)
            axes.set_ylim(60 * best, 100)  # a law that runs away below is cut off
            axes.set_yticks([k for k in (1, 2, 5, 10, 20, 50, 100) if k > 60 * best])
            axes.yaxis.set_major_formatter(lambda value, _position: f"{value:g}")
        axes.set_xticks(x, [f"{value:,}" for value in x])
        axes.minorticks_off()
        axes.set_xlabel(amount(by))
        axes.set_ylabel(t("wrong answers (%)"))
        axes.set_title(title)
        axes.legend(fontsize=8.5)
        said = "; ".join(f"{value:,}: {significant(100 * one.error, 2)}%" for value, one in zip(x, runs, strict=True))
        figure.alt = t("Wrong answers against {what}. {rows}", what=amount(by), rows=said)

    return LabFigure(draw)


def _law(axes, law: PowerLaw, x: Sequence[float]) -> None:
    """The fitted line, solid where it was fitted and dashed beyond, in its 95 % band."""
    steps = 24
    grid = [x[0] * (x[-1] / x[0]) ** (k / steps) for k in range(steps + 1)]
    band = [law.at(n) for n in grid]
    axes.fill_between(grid, [100 * low for _, low, _ in band], [100 * high for *_, high in band], color=COLOURS[2],
                      alpha=0.15, linewidth=0)
    inside = [n for n in grid if n < law.high] + [law.high]
    axes.plot(inside, [100 * law.at(n)[0] for n in inside], "-", color=COLOURS[2], label=t("law, where it was fitted"))
    beyond = [law.high] + [n for n in grid if n > law.high]
    axes.plot(beyond, [100 * law.at(n)[0] for n in beyond], "--", color=COLOURS[2], label=t("the law carried on"))


def verdict(law: PowerLaw, run: Run, by: str = "examples") -> Sentence:
    """Whether the law still holds at ``run``, which it was not fitted to."""
    n = getattr(run, by)
    value, low, high = (significant(100 * share, 2) for share in law.at(n))
    exponent, least, most = (significant(e, 2) for e in law.exponents)
    given = {"what": amount(by), "n": f"{n:,}", "value": value, "low": low, "high": high, "exponent": exponent,
             "least": least, "most": most, "measured": significant(100 * run.error, 2)}
    if law.at(n)[1] <= run.error <= law.at(n)[2]:
        return Sentence(t(
            "Exponent {exponent} ({least} to {most}). At {n} {what} the law expects {value}% wrong answers ({low}% to "
            "{high}%); {measured}% were measured: it holds so far.", **given))
    return Sentence(t(
        "Exponent {exponent} ({least} to {most}). At {n} {what} the law expects {value}% wrong answers ({low}% to "
        "{high}%); {measured}% were measured: it no longer holds.", **given))
