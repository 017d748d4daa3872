"""Pictures and tables of pipelines: who works when, and how much of the time nobody does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labkit.language import t
from labkit.lessons.model_memory import Table
from labkit.lessons.schedules import Plan, Span, bubble
from labkit.plots import COLOURS, LabFigure
from labkit.units import size

# Forward and backward differ by colour and by hatch. No labels where the spans get too narrow to read them.
_LOOKS = {"F": (COLOURS[4], ""), "B": (COLOURS[1], "///")}
_MOST_LABELS = 40


def gantt(plans: Mapping[str, Plan], *, seconds: bool = False) -> LabFigure:
    """One picture a schedule, one line a rank, one bar a piece of work; the gaps are the bubbles.

    ``seconds``: the spans were measured; otherwise they are slots.
    """

    def draw(figure: LabFigure) -> None:
        every = figure.subplots(len(plans), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, plan) in zip(every, plans.items(), strict=True):
            begin = min(span.start for row in plan.rows for span in row)
            scale = 1000.0 if seconds else 1.0
            for rank, row in enumerate(plan.rows):
                for span in row:
                    colour, hatch = _LOOKS[span.kind]
                    left, wide = scale * (span.start - begin), scale * (span.end - span.start)
                    axes.barh(rank, wide, left=left, height=0.7, color=colour, hatch=hatch, edgecolor="white")
                    if sum(map(len, plan.rows)) <= _MOST_LABELS:
                        axes.text(left + wide / 2, rank, f"{span.kind}{span.micro}", ha="center", va="center",
                                  backgroundcolor="white", fontsize=7)
            axes.set_yticks(range(len(plan.rows)), [t("rank {rank}", rank=rank) for rank in range(len(plan.rows))])
            axes.invert_yaxis()
            axes.grid(visible=False, axis="y")
            axes.set_title(name)
        every[-1].set_xlabel(t("time (ms)") if seconds else t("slot"))
        said = "; ".join(t("{name}: {share}% idle", name=name, share=round(100 * plan.idle_share))
                         for name, plan in plans.items())
        figure.alt = t("Who works when: one line a rank, F is a forward, B a backward, gaps are bubbles. {rows}",
                       rows=said)

    rows = sum(len(plan.rows) + 1.3 for plan in plans.values())
    return LabFigure(draw, figsize=(6.4, 0.6 + 0.36 * rows))


def measured(results: Sequence[Mapping], name: str, turn: int) -> Plan:
    """The plan that the ranks really carried out in one turn: their reported ``spans`` under ``name``."""
    return Plan(tuple(tuple(Span(*span) for span in result["runs"][name][turn]["spans"]) for result in results))


def idle_shares(results: Sequence[Mapping]) -> dict[str, float]:
    """Each schedule's idle share, the median over the turns; the first turn, which warms up, is left out."""
    import statistics

    return {name: statistics.median(measured(results, name, turn).idle_share for turn in range(1, len(turns)))
            for name, turns in results[0]["runs"].items()}


def typical(results: Sequence[Mapping], name: str) -> Plan:
    """The turn whose idle share is nearest to the median's."""
    share = idle_shares(results)[name]
    turns = [measured(results, name, turn) for turn in range(1, len(results[0]["runs"][name]))]
    return min(turns, key=lambda plan: abs(plan.idle_share - share))


def shares_table(results: Sequence[Mapping]) -> Table:
    """Idle share of each schedule beside the formula, and the micro-batches' usual time on one rank."""
    rows = []
    for name, share in idle_shares(results).items():
        schedule, micro = name.split(" ")
        one_s = sum(s.end - s.start for row in typical(results, name).rows for s in row) / len(results) / int(micro)
        formula = bubble(len(results), int(micro))
        rows.append([schedule, micro, f"{1000 * one_s:.0f} ms", f"{share:.2f}", f"{formula:.2f}"])
    return Table([t("schedule"), "m", t("one micro-batch"), t("idle share"), "(p - 1) / (m + p - 1)"], rows)


def kept_table(results: Sequence[Mapping]) -> Table:
    """The most bytes that each rank kept for backward passes, exact."""
    rows = [[*name.split(" "), *(size(result["runs"][name][-1]["kept_bytes"]) for result in results)]
            for name in results[0]["runs"]]
    return Table([t("schedule"), "m", *(t("rank {rank}", rank=rank) for rank in range(len(results)))], rows)
