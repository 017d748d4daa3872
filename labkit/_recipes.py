"""The ways of running a model that `advise` tries, and the lines of code that repeat each one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from labkit import hardware
from labkit._torch_private import quiet

CODE = {
    "channels-last": "model = model.to(memory_format=torch.channels_last)",
    "TorchScript": "model = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(model.eval(), inputs)))",
    "scripted": "model = torch.jit.script(model)",
    "compiled": "model = torch.compile(model)",
    "reduce-overhead": 'model = torch.compile(model, mode="reduce-overhead")',
    "max-autotune": 'model = torch.compile(model, mode="max-autotune")',
    "fused optimizer": "optimizer = torch.optim.AdamW(model.parameters(), fused=True)",
    "bf16": 'with torch.autocast("{device}", dtype=torch.bfloat16): ...  # around the forward and the loss',
    "fp16": 'with torch.autocast("{device}", dtype=torch.float16): ...  # and torch.amp.GradScaler for training',
}
_LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}
_MODES = {"compiled": "default", "reduce-overhead": "reduce-overhead", "max-autotune": "max-autotune"}


@dataclass(frozen=True)
class Recipe:
    """A named set of changes to how a model runs; ``changes`` are keys of ``CODE`` or the name of a given kernel."""

    changes: tuple[str, ...]
    given: Callable | None = field(default=None, compare=False)  # model -> model, for hand-fused candidates

    @property
    def name(self) -> str:
        return " + ".join(self.changes) or "eager"

    @property
    def compile_mode(self) -> str | None:
        return next((_MODES[change] for change in self.changes if change in _MODES), None)

    @property
    def low_precision(self) -> torch.dtype | None:
        return next((_LOW[change] for change in self.changes if change in _LOW), None)

    def needs_scaler(self, task) -> bool:
        """fp16 gradients underflow without a GradScaler; bf16 has the exponents of fp32."""
        return task.is_training and self.low_precision is torch.float16

    def precision(self, device: torch.device):
        """The autocast context of this recipe, or one that does nothing."""
        if self.low_precision is None:
            return contextlib.nullcontext()
        return torch.autocast(device.type, dtype=self.low_precision)

    def prepared(self, model, inputs, device: torch.device):
        """What is called instead of ``model``; compiles lazily, at the first call."""
        run = self.given(model) if self.given else model
        if "TorchScript" in self.changes:
            with quiet(), torch.no_grad(), self.precision(device):
                run = _optimized_trace(run, inputs)
        if "scripted" in self.changes:
            with quiet():
                run = torch.jit.script(run)
        return torch.compile(run, mode=self.compile_mode) if self.compile_mode else run

    def code(self, device_type: str) -> str:
        """The lines that do this outside labkit."""
        lines = (CODE.get(change, f"model = {change}(model)") for change in self.changes)
        return "\n".join(lines).replace("{device}", device_type)


EAGER = Recipe(())


def _optimized_trace(model, inputs):
    if isinstance(inputs, Mapping):
        traced = torch.jit.trace(model, example_kwarg_inputs=dict(inputs), check_trace=False, strict=False)
    else:
        arguments = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
        traced = torch.jit.trace(model, arguments, check_trace=False, strict=False)
    return torch.jit.optimize_for_inference(torch.jit.freeze(traced.eval()))


def recipes_for(model, device: torch.device, *, is_training: bool, kernels: dict[str, Callable],
                even_impossible: bool = False) -> list[Recipe]:
    """What can help this model on this machine: what is tried in a second first, then what has to be compiled, likely
    winners first in each. A budget that one long compilation eats up has then tried all the rest.

    What has to be compiled is left out where this machine cannot compile, unless ``even_impossible``."""
    low = "bf16" if hardware.bf16_native() else "fp16" if device.type == "cuda" else None
    low = low if device.type in ("cpu", "cuda") else None
    has_images = any(isinstance(m, torch.nn.Conv2d | torch.nn.ConvTranspose2d) for m in model.modules())
    compiled = ["compiled"] if even_impossible or hardware.can_compile(device) else []
    optimizer = ("fused optimizer",) if is_training else ()
    layout = ("channels-last",) if has_images else ()
    wanted: list[tuple[str, ...]] = [(name,) for name in kernels]
    if low:
        wanted += [(*layout, low), (low,)]
    wanted += [(mode,) for mode in compiled]
    if low:
        wanted += [(*layout, low, mode, *optimizer) for mode in compiled]
        wanted += [(low, mode, *optimizer) for mode in compiled]
        wanted += [(*layout, low, *optimizer)]
    wanted += [layout, optimizer, (*layout, *optimizer)]
    wanted += [(*layout, mode, *optimizer) for mode in compiled]
    wanted += [("scripted",)] if is_training else [("TorchScript",)]
    if device.type == "cuda" and compiled:
        for mode in ("reduce-overhead", "max-autotune"):
            wanted += [(mode,), (*layout, *([low] if low else []), mode, *optimizer)]
    unique = dict.fromkeys(changes for changes in wanted if changes)
    recipes = [Recipe(changes, kernels.get(changes[0])) for changes in unique]
    return sorted(recipes, key=lambda recipe: recipe.compile_mode is not None)
