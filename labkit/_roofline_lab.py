"""RooflineLab: one operation of a chosen size, placed under this machine's measured roof."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from labkit import hardware
from labkit._lab import Choice, Lab, Number, Question, Table, step, uninterrupted, with_guess
from labkit.ceilings import Roofline, peaks, roofline, roofline_figure
from labkit.language import t
from labkit.units import bandwidth, flop_rate, ratio, seconds, significant, size

OPERATIONS = ("relu", "chain", "softmax", "layer-norm", "matrix-vector", "matrix product")
SIDES = (16, 64, 256, 1024, 2048, 8192)


class RooflineLab(Lab):
    """Is this operation held up by memory, by arithmetic, or by its own start?"""

    key = "02-roofline"

    def title(self) -> str:
        return t("RooflineLab: which ceiling holds it up?")

    def about(self) -> str:
        return t("One operation on a square matrix. The ceilings are measured on this machine when the lab first runs.")

    def controls(self):
        def side(n: int) -> str:
            return f"{n} × {n}"

        return [
            Choice("operation", t("Operation"), OPERATIONS, show=_named),
            Choice("side", t("Size of the matrix"), hardware.pick(cpu=SIDES[:-1], gpu=SIDES), show=side,
                   default=hardware.pick(cpu=2048, gpu=8192)),
            Number("budget_s", t("Time for measuring (seconds)"), 0.6, 0.1, 10.0),
        ]  # fmt: skip

    def question(self) -> Question:
        return Question(t("How many per cent of the nearest ceiling will it reach?"), "%")

    @staticmethod
    def measure(*, operation: str, side: int, budget_s: float) -> Roofline:
        step(t("measuring the ceilings of this machine, once"), 0.1)
        with uninterrupted():
            peaks()
        fn, args = call(operation, side)
        step(t("counting and timing"), 0.6)
        return roofline(fn, *args, name=operation, budget_s=budget_s)

    def measured(self, value: Roofline) -> float:
        return 100 * share(value)

    def table(self, value: Roofline) -> Table:
        top, shares = value.peaks, value.shares
        rows = [
            [t("memory"), bandwidth(value.bytes_per_s), bandwidth(top.copy_bytes_per_s), _percent(shares["memory"])],
            [t("arithmetic"), flop_rate(value.flops_per_s), flop_rate(top.rate(getattr(torch, value.dtype))),
             _percent(shares["compute"])],
            [t("starting operators"), str(value.dispatches), seconds(top.dispatch_s), _percent(shares["overhead"])],
        ]  # fmt: skip
        return Table([t("ceiling"), t("reached"), t("possible here"), t("share")], rows)

    def figure(self, value: Roofline, guess: float | None):
        figure = roofline_figure(value)
        if guess is None or guess <= 0:
            return figure
        floor_s = max(value.floors_s.values())
        return with_guess(figure, x=max(value.intensity, 1e-3), y=max(value.flops / (floor_s / (guess / 100)), 1.0))

    def verdict(self, value: Roofline) -> str:
        time = t("One call takes {time}.", time=seconds(value.time_s))
        said = {
            "memory-bound": t("It waits for data: memory-bound."),
            "compute-bound": t("It waits for arithmetic: compute-bound."),
            "overhead-bound": t("Starting the work takes longer than the work: overhead-bound."),
        }
        return f"{time} {said[value.regime]}"

    def why(self, value: Roofline) -> list[str]:
        reasons = [
            t("It moves {bytes} and does {flops} FLOPs: {intensity} FLOPs for each byte. On this machine memory and "
              "arithmetic are in balance at {ridge}.", bytes=size(value.bytes_moved), flops=f"{value.flops:,}",
              intensity=ratio(value.intensity), ridge=ratio(value.peaks.ridge)),
        ]  # fmt: skip
        if value.is_in_cache and value.shares["memory"] > 1:
            reasons.append(t("Everything it touches fits in the cache, so it beats the copy ceiling of main memory."))
        if value.beats_ceilings:
            reasons.append(t("More than the ceiling itself: something disturbed this machine while the ceilings were "
                             "measured. Type `lab.peaks(refresh=True)` and run again."))  # fmt: skip
        reasons.append(t("Fusing everything would gain at most {ratio} times.", ratio=ratio(value.fusing_at_most, 2)))
        return reasons


def share(value: Roofline) -> float:
    """Of the ceiling that takes longest by itself, how much the call reached: 1 is all of it."""
    return max(value.shares.values())


def _percent(value: float) -> str:
    return f"{significant(100 * value, 2)} %"


def _named(operation: str) -> str:
    if operation == "chain":
        return t("chain of three (times 2, ReLU, plus 1)")
    return {"matrix-vector": t("matrix × vector"), "matrix product": t("matrix × matrix")}.get(operation, operation)


def call(operation: str, side: int):
    """The function and its arguments: ``(side, side)`` matrices of float32."""
    x = torch.randn(side, side, device=hardware.device())
    if operation == "matrix-vector":
        return torch.mv, (x, x[0].clone())
    if operation == "matrix product":
        return torch.mm, (x, x.clone())
    simple = {
        "relu": torch.relu,
        "chain": lambda x: torch.relu(x * 2.0) + 1.0,
        "softmax": lambda x: torch.softmax(x, -1),
        "layer-norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    }
    return simple[operation], (x,)
