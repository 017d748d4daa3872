"""Lesson 05: a model family timed eager and compiled, training and inference, with the facts that explain the times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from labkit import _enough_time, comparison, cost, graphs, hardware, models, units
from labkit import _torch_private as private
from labkit._cpp_kernels import patience
from labkit._enough_time import budget, timed
from labkit._graph_values import html_table
from labkit._peak_memory import peak_bytes
from labkit.language import t
from labkit.lessons.fusion import Sentence

FEWEST_CALLS = 6  # of each, where steps are long: three rounds A B B A


@dataclass(frozen=True)
class Side:
    """One family in training or in inference."""

    comparison: comparison.Comparison
    first_s: float  # first compiled call: Dynamo, AOTAutograd, Inductor, the C++ compiler or the cache
    graphs: int
    breaks: int
    fell_back: bool  # whether the compiled function silently ran eager
    peak_bytes: tuple[int, int]  # eager, compiled

    @property
    def break_even(self) -> cost.BreakEven:
        # The compiled step by way of the paired ratio: two medians drift apart on a busy machine.
        eager_s = self.comparison.medians_s["eager"]
        compiled_s = eager_s / self.comparison.ratio("compiled").value
        return cost.break_even(max(0.0, self.first_s - compiled_s), eager_s, compiled_s)


@dataclass(frozen=True)
class FamilyRun:
    """Training and inference of one family, eager against compiled."""

    name: str
    training: Side
    inference: Side

    @property
    def facts(self) -> dict:
        """What does not depend on the clock."""
        sides = {"training": self.training, "inference": self.inference}
        return {key: (side.graphs, side.breaks, side.fell_back) for key, side in sides.items()}

    def _rows(self):
        for kind, side in ((t("training"), self.training), (t("inference"), self.inference)):
            ratio = side.comparison.ratio("compiled")
            shown = f"{units.ratio(ratio.value)} ({units.ratio(ratio.low)}–{units.ratio(ratio.high)})"
            steps = side.break_even.steps
            yield (self.name, kind, shown, units.seconds(side.first_s),
                   t("never") if steps == float("inf") else f"{steps:,.0f}", *map(units.size, side.peak_bytes))

    def __str__(self):
        return "\n".join("  ".join(row) for row in (_heads(), *self._rows()))

    __repr__ = __str__

    def _repr_html_(self):
        return html_table(_heads(), self._rows())


@dataclass(frozen=True)
class FamilyTable:
    """Several families below each other."""

    runs: tuple[FamilyRun, ...]

    def __str__(self):
        return "\n".join("  ".join(row) for row in (_heads(), *(row for run in self.runs for row in run._rows())))

    __repr__ = __str__

    def _repr_html_(self):
        return html_table(_heads(), [row for run in self.runs for row in run._rows()])


def _heads() -> tuple[str, ...]:
    return (t("family"), t("work"), t("times as fast as eager"), t("first call"), t("steps to pay"),
            t("peak memory, eager"), t("peak memory, compiled"))  # fmt: skip


def family(name: str, *, budget_s: float = 0.8) -> FamilyRun:
    """Compile ``labkit.models.FAMILIES[name]`` and time it: whole training steps, then inference.

    Dynamo is reset first: models that come one after the other through the same code would use up its recompile limit
    and then run eager without a word. Raises ValueError when the losses or outputs disagree.
    """
    torch.compiler.reset()
    eager, other = models.FAMILIES[name](), models.FAMILIES[name]()
    compiled = torch.compile(other.model)
    steps = {"eager": models.training_step(eager.model, eager.inputs, eager.loss),
             "compiled": models.training_step(compiled, other.inputs, other.loss)}  # fmt: skip
    training = _side(steps, budget_s, losses_agree)
    for model in (eager.model, other.model):
        model.load_state_dict(models.FAMILIES[name]().model.state_dict())
        model.eval()
    calls = {"eager": inference(eager.model, eager.inputs), "compiled": inference(compiled, other.inputs)}
    return FamilyRun(name, training, _side(calls, budget_s, outputs_agree))


def inference(model: Callable, inputs: tuple) -> Callable[[], torch.Tensor]:
    """One forward pass without gradients, as a function without arguments."""

    def call():
        with torch.no_grad():
            return model(*inputs)

    return call


def _side(steps: Mapping[str, Callable], budget_s: float, check) -> Side:
    known = len(private.graph_break_reasons())
    with patience("torch.compile"), graphs.watching() as seen:
        first_s = timed(steps["compiled"])
    breaks = len(private.graph_break_reasons()) - known
    steps["eager"]()  # the optimiser's state is there from now on, as it is for the compiled step
    peaks = tuple(peak_bytes(step, hardware.device()) for step in steps.values())
    found = _enough_time.compare(dict(steps), budget_s=budget(steps, budget_s, calls=FEWEST_CALLS), check=check)
    return Side(found, first_s, seen.compiles, breaks, graphs.fell_back(steps["compiled"]), peaks)


def losses_agree(eager, compiled) -> bool:
    """Dropout draws other numbers when it is compiled, so that losses agree only roughly."""
    return torch.allclose(eager, compiled, rtol=0.05)


def outputs_agree(eager, compiled) -> bool:
    """float32 rounding may differ, and no more."""
    return torch.allclose(eager, compiled, rtol=1e-3, atol=1e-4)


def answer(runs: Mapping[str, FamilyRun], contest) -> Sentence:
    """What the two statements became here. ``contest`` compares ``"by hand, …"`` with ``"naive, compiled"``."""
    ratios = {name: run.training.comparison.ratio("compiled").value for name, run in runs.items()}
    by_hand = contest.ratio("by hand, eager").value
    return Sentence(t(
        'The claim says "2-3x faster". Compiling the training step gave here: {shown}. Twice as fast or more: {above} '
        "of {count} models. And with another algorithm, eager mode was {by_hand} times as fast as the compiled naive "
        "one.", shown="; ".join(f"{name} {units.ratio(value)}" for name, value in ratios.items()),
        above=sum(value >= 2 for value in ratios.values()), count=len(ratios), by_hand=units.ratio(by_hand)))
