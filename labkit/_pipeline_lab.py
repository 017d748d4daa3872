"""PipelineLab: who works when in a pipeline, on paper: the bubbles, and the micro-batches that wait."""

from __future__ import annotations

from dataclasses import dataclass

from labkit._lab import Choice, Lab, Number, Question, Table
from labkit._lab_result import worked_out
from labkit.language import t
from labkit.lessons.pipeline_view import gantt
from labkit.lessons.schedules import SCHEDULES, Plan, bubble, plan


@dataclass(frozen=True)
class Pipeline:
    """Every schedule's plan for ``ranks`` equal stages and ``micro`` micro-batches; ``schedule`` is the one chosen."""

    ranks: int
    micro: int
    schedule: str
    backward: int
    plans: dict[str, Plan]

    @property
    def chosen(self) -> Plan:
        return self.plans[self.schedule]

    def card(self) -> dict:
        return {"format": 1, "kind": "pipeline lab", "ranks": self.ranks, "micro": self.micro,
                "schedule": self.schedule, "backward": self.backward,
                "idle": {name: it.idle_share for name, it in self.plans.items()},
                "waiting": {name: it.waiting for name, it in self.plans.items()}}  # fmt: skip


class PipelineLab(Lab):
    """How much of a pipeline's time is idle, and how many micro-batches wait in memory?"""

    key = "08-pipeline"
    is_measured = False

    def title(self):
        return t("A pipeline on paper")

    def about(self):
        return t("All stages take equally long, and sending takes no time: what is left is the bubble that no faster "
                 "network can take away.")

    def controls(self):
        return [
            Choice("schedule", t("Schedule"), list(SCHEDULES)),
            Choice("ranks", t("How many ranks"), [2, 3, 4, 8], 4),
            Number("micro", t("Micro-batches"), 4, 1, 32),
            Choice("backward", t("A backward takes as long as … forwards"), [1, 2], 2),
        ]

    def question(self):
        return Question(t("What percentage of the time is idle?"), unit="%")

    @staticmethod
    def measure(*, schedule, ranks, micro, backward):
        plans = {name: plan(order, ranks, micro, backward=backward) for name, order in SCHEDULES.items()}
        return Pipeline(ranks, micro, schedule, backward, plans)

    def measured(self, value):
        return 100 * value.chosen.idle_share

    def beside(self, outcome):
        return worked_out(outcome, "{:.0f}%".format)

    def table(self, value):
        rows = [[name, f"{100 * it.idle_share:.0f}%", str(round(it.length)), ", ".join(map(str, it.waiting))]
                for name, it in value.plans.items()]
        return Table([t("schedule"), t("idle"), t("slots"), t("micro-batches that wait, by rank")], rows)

    def figure(self, value, guess):
        return gantt({value.schedule: value.chosen})

    def verdict(self, value):
        return t("With {ranks} ranks and {micro} micro-batches, {share}% of the time is idle.", ranks=value.ranks,
                 micro=value.micro, share=round(100 * value.chosen.idle_share))

    def why(self, value):
        most = {name: it.waiting[0] for name, it in value.plans.items()}
        return [
            t("The formula (p - 1) / (m + p - 1) gives {share}%, for both schedules: more micro-batches make it "
              "smaller, more ranks larger.", share=round(100 * bubble(value.ranks, value.micro))),
            t("On rank 0, {gpipe} micro-batches wait at the same time with GPipe and {other} with 1F1B: that many "
              "times the activations of one micro-batch lie in memory.", gpipe=most["GPipe"], other=most["1F1B"]),
        ]
