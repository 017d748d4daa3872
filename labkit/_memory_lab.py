"""MemoryLab: what training a known model takes on each rank, and what makes it fit."""

from __future__ import annotations

from dataclasses import dataclass

from labkit._lab import Choice, Lab, Number, Question, Table
from labkit._lab_result import worked_out
from labkit.language import t
from labkit.lessons.model_memory import NETWORKS, OPTIMIZERS, PRECISIONS, RankMemory, rank_memory
from labkit.plots import COLOURS, LabFigure
from labkit.units import size

_HATCHES = ("", "///", "\\\\\\", "xxx")


@dataclass(frozen=True)
class Need:
    """The memory on one of ``ranks`` ranks, and the same with nothing divided: ``alone``. ``card_bytes``: a GPU's."""

    model: str
    ranks: int
    memory: RankMemory
    alone: RankMemory
    card_bytes: float

    @property
    def fits(self) -> bool:
        return self.memory.total <= self.card_bytes

    def card(self) -> dict:
        parts = ("weights", "gradients", "states", "activations")
        return {"format": 1, "kind": "memory lab", "model": self.model, "ranks": self.ranks, "fits": self.fits,
                "bytes": {name: getattr(self.memory, name) for name in parts}, "card_bytes": self.card_bytes}


class MemoryLab(Lab):
    """How much memory does training take on each rank, and does it fit into the GPU?"""

    key = "08-memory"
    is_measured = False

    def title(self):
        return t("Memory of training")

    def about(self):
        return t("Worked out, not measured: weights, gradients, optimizer states and activations on one rank.")

    def controls(self):
        return [
            Choice("model", t("Model"), list(NETWORKS), "GPT-3"),
            Choice("ranks", t("How many ranks"), [1, 2, 4, 8, 64, 512, 1024], 64),
            Choice("stage", t("Stage of ZeRO"), [0, 1, 2, 3], 3),
            Choice("precision", t("Precision"), list(PRECISIONS), "mixed"),
            Choice("optimizer", t("Optimizer"), list(OPTIMIZERS)),
            Number("batch", t("Examples on each rank"), 1, 1, 4096),
            Choice("checkpointing", t("Activation checkpointing"), [False, True], show=_yes_or_no),
            Number("card_gb", t("Memory of one GPU (GB)"), 80.0, 1.0, 1000.0),
        ]

    def question(self):
        return Question(t("How many GB will each rank need?"), unit="GB")

    @staticmethod
    def measure(*, model, ranks, stage, precision, optimizer, batch, checkpointing, card_gb):
        options = {"precision": precision, "optimizer": optimizer, "batch": batch, "checkpointing": checkpointing}
        memory = rank_memory(NETWORKS[model], ranks=ranks, stage=stage, **options)
        return Need(model, ranks, memory, rank_memory(NETWORKS[model], **options), card_gb * 1e9)

    def measured(self, value):
        return value.memory.total / 1e9

    def beside(self, outcome):
        return worked_out(outcome, "{:.3g} GB".format)

    def table(self, value):
        rows = zip(value.memory.rows(), value.alone.rows(), strict=True)
        return Table([t("what"), t("on each rank"), t("with nothing divided")],
                     [[name, size(mine), size(whole)] for (name, mine), (_, whole) in rows])

    def figure(self, value, guess):
        def draw(figure: LabFigure) -> None:
            axes = figure.subplots()
            left = 0.0
            for row, (name, part) in enumerate(value.memory.rows()[:-1]):
                axes.barh(0, part / 1e9, left=left / 1e9, height=0.6, color=COLOURS[row], hatch=_HATCHES[row],
                          edgecolor="white", label=name)
                left += part
            axes.axvline(value.card_bytes / 1e9, color="#1f2328", linestyle="--", linewidth=1.2, label=t("one GPU"))
            if guess is not None:
                axes.axvline(guess, color="#7a2e8e", linestyle=(0, (2, 2)), linewidth=1.8, label=t("your guess"))
            axes.set_yticks([])
            axes.set_xlim(0, 1.1 * max(left / 1e9, value.card_bytes / 1e9, guess or 0.0))
            axes.set_xlabel(t("memory on each rank (GB)"))
            figure.legend(loc="outside lower center", ncols=3, fontsize=8.5)  # inside, it would hide the bar
            figure.alt = t("Memory on each rank: {parts}", parts=str(value.memory))

        return LabFigure(draw, figsize=(6.4, 2.4))

    def verdict(self, value):
        need, card = size(value.memory.total), size(value.card_bytes)
        if value.fits:
            return t("{model} needs {need} on each rank and fits into a GPU of {card}.", model=value.model, need=need,
                     card=card)
        return t("{model} needs {need} on each rank and does not fit into a GPU of {card}.", model=value.model,
                 need=need, card=card)

    def why(self, value):
        *parts, _all = value.memory.rows()
        name, most = max(parts, key=lambda part: part[1])
        texts = [t("The largest part: {name}, {share}% of the memory.", name=name,
                   share=round(100 * most / value.memory.total))]
        if value.fits:
            return texts
        if most == value.memory.activations:
            return [*texts, t("Activations shrink with a smaller batch and with activation checkpointing; ZeRO does "
                              "not touch them.")]
        return [*texts, t("ZeRO divides what hangs on the parameters by the ranks: take a higher stage, or more "
                          "ranks.")]


def _yes_or_no(on: bool) -> str:
    return t("yes") if on else t("no")
