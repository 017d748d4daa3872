"""DataParallelLab: what a second rank really brings, for a model and a batch of one's choice."""

from __future__ import annotations

from labkit import _launch_setup
from labkit._lab import Choice, Lab, Number, Question, Table, step
from labkit.language import t
from labkit.lessons import ddp_scaling
from labkit.lessons.ddp_scaling import AFTER, DDP, ONE, SILENT, Scaling
from labkit.plots import COLOURS, LabFigure
from labkit.units import ratio, seconds, significant, size

LAYERS = 6
_HATCHES = {ONE: "", DDP: "///", SILENT: "", AFTER: "xxx"}


class DataParallelLab(Lab):
    """Real ranks are launched; each trains the same layers on a batch of its own, alone and together in turns."""

    key = "07-lab"
    limit_s = 150.0

    def title(self) -> str:
        return t("DataParallelLab: what does a second rank bring?")

    def about(self) -> str:
        return t("Real ranks are started on this machine, so a run takes some seconds. Each of them trains six linear "
                 "layers on its own batch.")

    def controls(self):
        return [
            Choice("width", t("Width of a layer"), [64, 128, 256, 512, 1024], 256),
            Choice("batch", t("Batch size of each rank"), [16, 64, 256, 1024, 2048], 256),
            Choice("ranks", t("How many ranks"), _numbers_of_ranks()),
            Number("rounds", t("Rounds of measuring"), 5, 3, 30),
        ]

    def question(self) -> Question:
        return Question(t("How many times as much will all ranks together get done as one rank?"), unit="x")

    @staticmethod
    def measure(*, width: int, batch: int, ranks: int, rounds: int) -> Scaling:
        step(t("Starting {ranks} ranks …", ranks=ranks), 0.1)
        return ddp_scaling.measure(width=width, batch=batch, ranks=ranks, layers=LAYERS, rounds=rounds)

    def measured(self, value: Scaling):
        return value.speed.ratio(DDP)

    def table(self, value: Scaling) -> Table:
        rows = []
        for name, step_s in value.step_s.items():
            shown = "" if name == ONE else ratio(value.speed.ratio(name).value)
            rows.append([names()[name], seconds(step_s), shown])
        return Table([t("way"), t("one step"), t("times as much done as one rank")], rows)

    def figure(self, value: Scaling, guess: float | None) -> LabFigure:
        def draw(figure: LabFigure) -> None:
            axes, said = figure.subplots(), []
            for row, (name, step_s) in enumerate(value.step_s.items()):
                colour = COLOURS[row % len(COLOURS)]
                axes.barh(row, 1e3 * step_s, height=0.6, color=colour, hatch=_HATCHES[name], edgecolor="white")
                axes.annotate(seconds(step_s), (1e3 * step_s, row), (6, 0), textcoords="offset points", va="center")
                said.append(f"{names()[name]}: {seconds(step_s)}")
            axes.set_yticks(range(len(value.step_s)), [names()[name] for name in value.step_s])
            axes.invert_yaxis()
            axes.grid(visible=False, axis="y")
            axes.set_xlim(0, 1.25e3 * max(value.step_s.values()))
            axes.set_xlabel(t("one step (ms)"))
            figure.alt = t("Bars: time of one step. {rows}", rows="; ".join(said))

        return LabFigure(draw, figsize=(6.4, 2.8))

    def verdict(self, value: Scaling) -> str:
        return str(value.sentence())

    def why(self, value: Scaling) -> list[str]:
        per_rank = 2 * (value.ranks - 1) / value.ranks * value.gradient_bytes
        waits = value.step_s[DDP] - value.step_s[SILENT]
        texts = [t("Counted: {size} of gradients a step; in a ring each rank sends {sent} of them, however large the "
                   "batch is.", size=size(value.gradient_bytes), sent=size(per_rank))]
        if waits > 0:
            texts.append(t("A step of DDP is {time} longer than the same step without communication: {percent}% of it "
                           "is waiting for the others.", time=seconds(waits),
                           percent=significant(100 * waits / value.step_s[DDP], 2)))
        shared = value.step_s[SILENT] / value.step_s[ONE]
        if shared > 1.1:
            texts.append(t("Even without communication a step takes {ratio} times as long as alone: the ranks share "
                           "the memory and the cores of one machine.", ratio=ratio(shared)))
        return texts

    def named(self, name: str) -> str:
        return names().get(name, name)


def names() -> dict[str, str]:
    """How the ways of making a step are called in the language of the moment."""
    return {ONE: t("one rank alone"), DDP: t("DDP"), SILENT: t("without communication"),
            AFTER: t("communication after the backward pass")}


def _numbers_of_ranks() -> list[int]:
    """2, and 3 or 4 where there are cores for them."""
    return [ranks for ranks in (2, 3, 4) if ranks == 2 or ranks <= _launch_setup.cores()]
