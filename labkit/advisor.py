"""Which optimisation pays for *your* model: ``advise()`` tries them on copies and measures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch

from labkit import _compiling, _enough_time, cost, hardware
from labkit._advice_gate import Gate
from labkit._callables import is_out_of_memory
from labkit._compile_note import noting
from labkit._enough_time import timed
from labkit._peak_memory import peak_bytes
from labkit._recipes import EAGER, Recipe, recipes_for
from labkit._statistics import Ratio
from labkit._torch_private import original, reset_dynamo, roomy_dynamo
from labkit._trials import Task, Trial, untouched
from labkit.attempts import TimeUpError, run_limited
from labkit.language import t

SCREEN_S, FINAL_S = 0.6, 1.5  # seconds of interleaved timing: a first look at each, and the last word on the best
# Where steps are long these seconds hold few of them. Then a first look takes so many steps of eager's, and the last
# word is taken again, each time for longer, as long as it leaves open what is best; within these shares of the budget,
# the last word's of what exceeds SHORT_S: with a short budget somebody sits and waits.
SCREEN_STEPS, SCREEN_SHARE, FINAL_SHARE, LONGER = 48, 1 / 60, 1 / 3, 3
SHORT_S = 45.0
FINALISTS = 3


@dataclass(frozen=True)
class Row:
    """One candidate. ``ratio`` is eager time / its time with an interval (None when it was not timed)."""

    name: str
    status: str  # "measured", "wrong", "failed" or "not tried"
    ratio: Ratio | None = None
    verdict: str = ""
    error: float | None = None  # largest relative distance of any tensor from eager's
    first_s: float | None = None  # first call: compile and lazy initialisation
    break_even_steps: float | None = None
    peak_bytes: int | None = None
    note: str = ""
    code: str = ""


@dataclass(frozen=True, repr=False)
class Advice:
    """What `advise` found: ``.rows``, ``.best`` (eager's row when nothing wins by verdict), ``.card()``."""

    rows: tuple[Row, ...]
    is_training: bool
    device: str
    eager_step_s: float
    is_complete: bool
    spent_s: float

    @property
    def best(self) -> Row:
        """The row with the highest ratio among those whose verdict is ``faster``; eager's when there is none."""
        winners = [row for row in self.rows if row.verdict == "faster"]
        return max(winners, key=lambda row: row.ratio.value, default=self.rows[0])

    def row(self, name: str) -> Row:
        """The row called ``name``. Raises KeyError that lists the names."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(t("There is no candidate {name!r} here; there are: {names}.", name=name,
                         names=", ".join(row.name for row in self.rows)))  # fmt: skip

    def count(self, status: str) -> int:
        """How many rows are ``"measured"``, ``"wrong"``, ``"failed"`` or ``"not tried"``."""
        return sum(row.status == status for row in self.rows)

    def card(self) -> dict:
        """Provenance as plain JSON values."""
        rows = [{k: (list(v) if isinstance(v, tuple) else v) for k, v in vars(row).items() if k != "ratio"} | {
            "ratio": row.ratio and [row.ratio.value, row.ratio.low, row.ratio.high]} for row in self.rows]  # fmt: skip
        for row in rows:
            if row["break_even_steps"] is not None and math.isinf(row["break_even_steps"]):
                row["break_even_steps"] = None
        return {"format": 1, "kind": "advice", "is_training": self.is_training, "device": self.device,
                "eager_step_s": self.eager_step_s, "best": self.best.name, "rows": rows,
                "is_complete": self.is_complete, "machine": hardware.provenance()}  # fmt: skip

    def __str__(self) -> str:
        from labkit._advice_view import as_text

        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from labkit._advice_view import as_html

        return as_html(self)


def adamw(parameters, *, fused: bool) -> torch.optim.Optimizer:
    """The optimiser `advise` uses unless told otherwise; a small rate, so that timed steps do not run away."""
    return torch.optim.AdamW(parameters, lr=1e-5, fused=fused)


def advise(
    model,
    inputs,
    *,
    loss: Callable | None = None,
    budget_s: float = 120,
    optimizer: Callable = adamw,
    kernels: Mapping[str, Callable] | None = None,
    only: list[str] | None = None,
    progress: Callable[[str], None] | None = print,
) -> Advice:
    """Try the optimisations that can help ``model`` on this machine, and say which pays.

    ``inputs`` is a tensor, a tuple of arguments or a dict of keyword arguments. Without ``loss`` the forward pass is
    timed in eval mode; with ``loss(output) -> scalar`` whole training steps are (forward, backward, optimiser), in the
    mode the model is in. ``optimizer(parameters, fused=…)`` builds the optimiser. ``kernels={"mine": change}`` adds
    your own: ``change(copy_of_model)`` returns the model to run. ``model`` may be a function that builds it.
    ``only=["compiled", …]`` names the candidates to try. ``progress`` gets one line a candidate; None for silence.

    Your model is never touched: candidates run on copies, and weights, buffers, gradients, modes and random state are
    put back. A candidate whose results differ from eager's is never timed (`labkit._advice_gate` has the rule). One
    that crashes, runs out of memory, falls back to eager or exceeds ``budget_s`` becomes a row that says so. Of more
    than three candidates each is looked at alone and the best are timed together; up to three are timed together at
    once. Interrupt the cell and the rows so far come back. Compiled functions of this process compile again at their
    next call.

    Raises TypeError for a model or loss that is none, CannotCopyError, and what eager itself raises.
    """
    task = _task(model, inputs, loss, optimizer)
    say = progress or (lambda _line: None)
    begin = time.monotonic()
    with untouched(task.model), roomy_dynamo():
        gate = Gate(task)
        recipes = recipes_for(
            original(task.model), task.device, is_training=task.is_training, kernels=dict(kernels or {}),
            even_impossible=bool(only),  # who asks for it by name gets a row that says why not
        )
        recipes = _named(recipes, only) if only else recipes
        search = _Search(task, gate, begin, budget_s, is_short=len(recipes) <= FINALISTS)
        is_complete = True
        try:
            for number, recipe in enumerate(recipes, 1):
                say(t("[{number}/{total}] {name}", number=number, total=len(recipes), name=recipe.name))
                search.try_one(recipe)
            say(t("Timing them together …") if search.is_short else t("Comparing the best of them once more …"))
            search.decide()
        except KeyboardInterrupt:
            is_complete = False
            search.skip(recipes, t("interrupted before its turn"))
        finally:
            reset_dynamo()
            search.close()
    return Advice(tuple(search.rows.values()), task.is_training, task.device.type, search.eager_step_s, is_complete,
                  time.monotonic() - begin)  # fmt: skip


class _Search:
    """The rows so far, and the clock they are bought with. ``is_short``: all candidates can be compared at the end, so
    none is looked at before; until then their rows have no ratio."""

    def __init__(self, task: Task, gate: Gate, begin: float, budget_s: float, *, is_short: bool):
        self.task, self.gate, self.begin, self.budget_s, self.is_short = task, gate, begin, budget_s, is_short
        eager = Trial(task, EAGER)
        self.trials = {"eager": eager}
        first_s, step_s = timed(eager.step), timed(eager.step)
        self.eager_step_s = step_s
        self.rows = {"eager": Row("eager", "measured", Ratio(1.0, 1.0, 1.0), "same", 0.0, first_s, 0,
                                  peak_bytes(eager.step, task.device))}  # fmt: skip

    @property
    def left_s(self) -> float:
        return self.budget_s - (time.monotonic() - self.begin)

    def try_one(self, recipe: Recipe) -> None:
        """Check ``recipe``, time it, and add its row, whatever happens."""
        row = Row(recipe.name, "not tried", code=recipe.code(self.task.device.type))
        if recipe.compile_mode and not hardware.can_compile(self.task.device):
            self.rows[recipe.name] = replace(row, note=_compiling.lacks(self.task.device))
            return
        self.rows[recipe.name] = self._guarded(row, lambda: self._measured(recipe, row))
        self.likely()

    def _guarded(self, row: Row, work: Callable[[], Row]) -> Row:
        """What ``work`` makes of ``row`` within the budget, or why that came to nothing."""
        if self.left_s <= FINAL_S:
            return replace(row, note=t("the budget was spent before its turn"))
        try:
            return run_limited(work, self.left_s)
        except TimeUpError:
            return replace(row, status="failed", note=t("did not end within the budget"))
        except KeyboardInterrupt:
            raise
        except Exception as error:
            return replace(row, status="failed", note=_why_it_failed(error))

    def _measured(self, recipe: Recipe, row: Row) -> Row:
        with noting() as compile_note:
            ruling = self.gate.rule(recipe)
            if not ruling.is_right:
                return replace(row, status="wrong", error=ruling.error, note=ruling.reason)
            trial, first_s = ruling.trial, ruling.first_s
            if trial is None:
                trial = Trial(self.task, recipe)
                first_s = timed(trial.step)
        note = compile_note(trial.step) if recipe.compile_mode else ""
        row = replace(row, error=ruling.error, note=note, first_s=first_s)
        row = replace(row, status="measured") if self.is_short else self._looked_at(row, trial)
        self.trials[recipe.name] = trial
        return replace(row, peak_bytes=peak_bytes(trial.step, self.task.device))

    def _looked_at(self, row: Row, trial: Trial) -> Row:
        """A first look at one candidate beside eager."""
        steps = {"eager": self.trials["eager"].step, row.name: trial.step}
        look_s = max(SCREEN_S, min(SCREEN_STEPS * self.eager_step_s, SCREEN_SHARE * self.budget_s))
        found = _compared(steps, min(look_s, max(self.left_s, 0.2)))
        self.eager_step_s = found.medians_s["eager"]
        return _with_result(replace(row, status="measured"), found)

    def likely(self) -> list[Row]:
        """The measured rows that may turn out fastest, best first; the copies of all others are let go."""
        timed = [row for row in self.rows.values() if row.status == "measured" and row.name != "eager"]
        if not self.is_short:
            timed = sorted((row for row in timed if row.ratio.high > 1), key=lambda row: -row.ratio.value)
        best = timed[:FINALISTS]
        kept = {"eager", *(row.name for row in best)}
        self.trials = {name: trial for name, trial in self.trials.items() if name in kept}
        return best

    def decide(self) -> None:
        """Time the likely best together with eager, interleaved; their rows get these ratios, and one of them wins."""
        likely = self.likely()
        if not likely:
            return
        steps = {name: trial.step for name, trial in self.trials.items()}
        begin, wanted_s = time.monotonic(), FINAL_S * len(steps) / 2
        longest_s = FINAL_SHARE * (self.budget_s - SHORT_S)
        found = self._last_word(steps, wanted_s)
        if found is None:  # somebody spoilt it: each beside eager then, and those that are left once more
            self.is_short = False
            for row in likely:
                blank = replace(row, status="not tried", peak_bytes=None)
                look = partial(self._looked_at, row, self.trials[row.name])
                self.rows[row.name] = self._guarded(blank, look)
            return self.decide()
        while _leaves_open(found, likely):
            spare_s = min(self.left_s, longest_s - (time.monotonic() - begin))
            if spare_s < wanted_s:  # less than last time would show less
                break
            wanted_s = min(LONGER * wanted_s, spare_s)
            found = _compared(steps, wanted_s)
        self.eager_step_s = found.medians_s["eager"]
        for row in likely:
            self.rows[row.name] = _with_result(row, found)
        best_ratio = max(found.ratio(row.name).value for row in likely)
        for row in self.rows.values():
            if row.name not in steps and row.verdict == "faster" and row.ratio.value > best_ratio:
                # Screened behind the finalists, yet above what they reached in the final: no ground to prefer it.
                self.rows[row.name] = replace(row, verdict="undecided")

    def _last_word(self, steps: dict[str, Callable], seconds: float):
        """All together, or None where one of those that nobody has looked at yet fails or does not return."""
        if not self.is_short:
            return _compared(steps, seconds)
        try:
            return run_limited(lambda: _compared(steps, seconds), max(self.left_s, FINAL_SHARE * self.budget_s))
        except (TimeUpError, Exception):
            return None

    def close(self) -> None:
        """Rows that were to be timed at the end, and it never came to that."""
        for row in self.rows.values():
            if row.status == "measured" and row.ratio is None:
                self.rows[row.name] = replace(row, status="not tried", note=t("interrupted before its turn"))

    def skip(self, recipes: list[Recipe], note: str) -> None:
        for recipe in recipes:
            if recipe.name not in self.rows:
                code = recipe.code(self.task.device.type)
                self.rows[recipe.name] = Row(recipe.name, "not tried", note=note, code=code)


def _task(model, inputs, loss, optimizer) -> Task:
    if not isinstance(model, torch.nn.Module) and callable(model):
        model = model()
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            t("`lab.advise` needs a model (an nn.Module), or a function that builds one, but was given {kind}.",
              kind=type(model).__name__)
        )  # fmt: skip
    if loss is not None and not callable(loss):
        raise TypeError(
            t("`loss` must be a function of the model's output, such as `loss=lambda out: F.cross_entropy(out, y)`, "
              "but was {kind}. For inference leave it out.", kind=type(loss).__name__)
        )  # fmt: skip
    tensors = [*original(model).parameters(), *original(model).buffers()]
    tensors += [x for x in torch.utils._pytree.tree_leaves(inputs) if isinstance(x, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    return Task(model, inputs, loss, optimizer, device)


def _named(recipes: list[Recipe], names: list[str]) -> list[Recipe]:
    known = {recipe.name: recipe for recipe in recipes}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise KeyError(t("There is no candidate {name!r} here; there are: {names}.", name=unknown[0],
                         names=", ".join(known)))  # fmt: skip
    return [known[name] for name in names]


def _leaves_open(found, likely: list[Row]) -> bool:
    """Whether by more than the margin one of them may be faster than eager, and was not shown to be, or than the one
    that looks best."""
    ratios = {row.name: found.ratio(row.name) for row in likely}
    best = max(ratios, key=lambda name: ratios[name].value)
    unsure = any(found.verdict(name) == "undecided" and ratio.high > 1 + found.margin for name, ratio in ratios.items())
    return unsure or any(ratio.high > (1 + found.margin) * ratios[best].low
                         for name, ratio in ratios.items() if name != best)  # fmt: skip


def _compared(steps: dict[str, Callable], budget_s: float):
    """Interleaved times; results were checked by the gate, with dropout off, and need not agree here."""
    budget_s = _enough_time.budget(steps, budget_s)
    return _enough_time.compare(steps, budget_s=budget_s, check=lambda _expected, _got: True)


def _with_result(row: Row, found) -> Row:
    ratio = found.ratio(row.name)
    once_s = max(0.0, row.first_s - found.medians_s[row.name])
    steps = cost.break_even(once_s, found.medians_s["eager"], found.medians_s[row.name]).steps
    return replace(row, ratio=ratio, verdict=found.verdict(row.name), break_even_steps=steps)


def _why_it_failed(error: Exception) -> str:
    if is_out_of_memory(error):
        return t("ran out of memory")
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text[:160]}"
