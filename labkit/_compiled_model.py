"""One of the course's models, eager beside compiled: first call, kernels, graph breaks, and the ratio."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from labkit import _enough_time, comparison, cost, graphs, hardware, models
from labkit import _torch_private as private
from labkit._breaks import Breaks
from labkit._first_look import first_look
from labkit._graph_values import Kernels
from labkit._kernel_lines import KernelLines, kernel_lines
from labkit._lab import step, uninterrupted
from labkit._statistics import Ratio
from labkit._wrapper_code import read_wrapper
from labkit.language import t
from labkit.units import seconds

DEFAULT = "torch.compile"
SCRIPT = "TorchScript"
TASKS = ("inference", "training")
WAYS = (DEFAULT, "reduce-overhead", "max-autotune", SCRIPT)
FEWEST = 10  # rounds of the comparison, at least
TOLERANCE = 2e-3  # fused sums round differently; batch-norm divides by small spreads


@dataclass(frozen=True)
class Compiled:
    """A model's step in eager mode and compiled. Seconds; ``kernels`` and ``breaks`` are None for TorchScript."""

    family: str
    task: str
    way: str
    batch: int
    comparison: comparison.Comparison
    first_s: float
    eager_operators: int
    kernels: Kernels | None
    script_kinds: dict[str, int]
    breaks: Breaks | None
    fell_back: bool
    lines: KernelLines | None

    @property
    def ratio(self) -> Ratio:
        return self.comparison.ratio(self.way)

    @property
    def eager_s(self) -> float:
        return self.comparison.medians_s["eager"]

    @property
    def fast_s(self) -> float:
        """A compiled step, by the paired ratio, so that it agrees with the verdict."""
        return self.eager_s / self.ratio.value

    @property
    def compile_s(self) -> float:
        return max(0.0, self.first_s - self.fast_s)

    @property
    def pays_from(self) -> cost.BreakEven:
        return cost.break_even(self.compile_s, self.eager_s, self.fast_s)

    @property
    def kernels_text(self) -> str:
        if self.kernels is not None:
            return t("{fused} generated + {extern} of a library", fused=self.kernels.fused, extern=self.kernels.extern)
        if self.script_kinds:
            return ", ".join(f"{name} × {count}" for name, count in self.script_kinds.items())
        return t("none fused")

    def card(self) -> dict:
        return {"format": 1, "kind": "compile lab", "family": self.family, "task": self.task, "way": self.way,
                "batch": self.batch, "first_s": self.first_s, "compile_s": self.compile_s,
                "eager_operators": self.eager_operators, "fell_back": self.fell_back,
                "kernels": None if self.kernels is None else [self.kernels.fused, self.kernels.extern],
                "breaks": None if self.breaks is None else len(self.breaks),
                "script_kinds": dict(self.script_kinds), "comparison": self.comparison.card()}  # fmt: skip


def compile_and_compare(family: str, task: str, way: str, *, share: float, with_lines: bool,
                        budget_s: float) -> Compiled:  # fmt: skip
    """Measure one combination. Raises ValueError for a way that this machine or task does not have."""
    _require(family, task, way)
    eager_model, inputs = made(family, task, share)
    model, _ = made(family, task, share)
    start = copy.deepcopy(model.state_dict())
    eager = step_of(eager_model, inputs, task)
    look_s = first_look(eager)
    step(t("eager: {time} a step. Counting …", time=seconds(look_s)), 0.1)
    breaks = lines = None
    with uninterrupted():
        operators = graphs.operators(eager).total
        if way != SCRIPT and task == "inference":
            with torch.no_grad():
                breaks = graphs.breaks(model, *inputs)
        elif way != SCRIPT:
            breaks = graphs.breaks(model, *inputs)
        if with_lines and way != SCRIPT:
            lines = kernel_lines(model, *inputs)
    step(t("eager: {time} a step. Compiling; this takes a while the first time …", time=seconds(look_s)), 0.3)
    with uninterrupted(), private.quiet(), private.captured_wrappers() as wrappers:
        private.reset_dynamo()
        begin = time.perf_counter()
        run = _compiled(model, inputs, task, way)
        fast = step_of(run, inputs, task)
        fast()
        hardware.sync()
        first_s = time.perf_counter() - begin
    step(t("compiled in {time}. Comparing …", time=seconds(first_s)), 0.8)
    for one in (eager_model, model):  # training steps have moved the weights, of one more often than of the other
        one.load_state_dict(start)
    budget_s = max(budget_s, FEWEST * 2 * look_s)  # a slow model still gets enough rounds
    found = _enough_time.compare({"eager": eager, way: fast}, budget_s=budget_s, tolerance=TOLERANCE)
    kinds = graphs.fused_kinds(run) if way == SCRIPT and task == "inference" else {}
    kernels = None if way == SCRIPT else Kernels(tuple(read_wrapper(code) for code in wrappers))
    fell_back = way != SCRIPT and graphs.fell_back(fast)
    return Compiled(family, task, way, len(inputs[0]), found, first_s, operators, kernels, kinds, breaks, fell_back,
                    lines)  # fmt: skip


def made(family: str, task: str, share: float) -> tuple[torch.nn.Module, tuple]:
    """A fresh model in the right mode, dropout off, and its inputs with a share of the batch; equal every time."""
    built = (models.FAMILIES | {"conv_stack": models.conv_stack})[family]()
    model = built.model.train(task == "training")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = 0.0
    return model, tuple(x[: max(1, round(share * len(x)))] for x in built.inputs)


def step_of(run: Callable, inputs: tuple, task: str) -> Callable:
    """``run`` as inference, or a whole training step of it with plain SGD and the mean square as loss."""
    if task == "inference":
        def infer():
            with torch.no_grad():
                return run(*inputs)

        return infer
    optimizer = torch.optim.SGD(run.parameters(), lr=1e-3)
    return models.training_step(run, inputs, lambda output: output.float().square().mean(), optimizer=optimizer)


def _compiled(model: torch.nn.Module, inputs: tuple, task: str, way: str):
    if way != SCRIPT:
        return torch.compile(model, mode=None if way == DEFAULT else way)
    if task == "training":
        return torch.jit.script(model)
    with torch.no_grad():
        traced = torch.jit.trace(model, inputs, check_trace=False)
        return torch.jit.optimize_for_inference(torch.jit.freeze(traced.eval()))


def _require(family: str, task: str, way: str) -> None:
    if family == "conv_stack" and task == "training":
        raise ValueError(t("`conv_stack` is there for inference only: choose inference, or another model."))
    if way in ("reduce-overhead", "max-autotune") and not hardware.has_cuda():
        raise ValueError(t("The mode {way} is for a GPU, and there is none here: choose {other}.", way=way,
                           other=DEFAULT))  # fmt: skip
    if way != SCRIPT and not hardware.can_compile():
        if hardware.has_cuda():
            raise ValueError(t("torch.compile needs Triton on this GPU, and Triton does not work here. lab.machine() "
                               "says what is missing and how to get it; until then choose TorchScript."))  # fmt: skip
        raise ValueError(t("torch.compile needs a C++ compiler here, and none works. lab.machine() says what is "
                           "missing and how to get it; until then choose TorchScript."))  # fmt: skip
