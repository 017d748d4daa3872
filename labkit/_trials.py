"""One candidate of `advise`: a private copy of the learner's model, set up one way, run on copies of the inputs."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from labkit import _torch_private as private
from labkit._recipes import Recipe
from labkit._undisturbed import copied
from labkit.language import t


class CannotCopyError(RuntimeError):
    """The model cannot be copied, so nothing can be tried without touching the learner's own."""


@dataclass(frozen=True)
class Task:
    """What every candidate does: a model, its inputs, and for training a loss and an optimiser."""

    model: torch.nn.Module
    inputs: object
    loss: Callable | None
    optimizer: Callable
    device: torch.device

    @property
    def is_training(self) -> bool:
        return self.loss is not None


class Trial:
    """A copy of the task's model prepared by ``recipe``; ``step()`` runs it once and returns its output or loss.

    ``calm`` switches dropout off in the copy, so that results can be compared. Training: the copy is in the mode of the
    learner's model, and a step is forward, loss, backward and the optimiser. Inference: the copy is in eval mode.
    """

    def __init__(self, task: Task, recipe: Recipe, *, calm: bool = False):
        self.task, self.recipe = task, recipe
        try:
            self.model = copy.deepcopy(private.original(task.model))
        except Exception as error:
            raise CannotCopyError(_cannot_copy(error)) from error
        if not task.is_training:
            self.model.eval()
        for parameter in self.model.parameters():
            parameter.grad = None
        if calm:
            without_dropout(self.model)
        if "channels-last" in recipe.changes:
            self.model = self.model.to(memory_format=torch.channels_last)
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in self.model.buffers()]
        self.put(task.inputs)
        self.run = recipe.prepared(self.model, self.inputs, task.device)
        self.optimizer = self._optimizer() if task.is_training else None
        self.scaler = torch.amp.GradScaler(task.device.type) if recipe.needs_scaler(task) else None

    def put(self, inputs) -> None:
        """Take a copy of other inputs, and put the buffers back to where they began."""
        self.inputs = copied((inputs,))[0]
        if "channels-last" in self.recipe.changes:
            self.inputs = _channels_last(self.inputs)
        with torch.no_grad():
            for buffer, value in self._buffers:
                buffer.copy_(value)

    def _optimizer(self):
        trained = [p for p in self.model.parameters() if p.requires_grad]
        return self.task.optimizer(trained, fused="fused optimizer" in self.recipe.changes)

    def step(self):
        """One whole training step (returns the loss), or one forward (returns the output)."""
        if not self.task.is_training:
            with torch.no_grad(), self.recipe.precision(self.task.device):
                return call(self.run, self.inputs)
        self.optimizer.zero_grad(set_to_none=True)
        with self.recipe.precision(self.task.device):
            loss = self.task.loss(call(self.run, self.inputs))
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss.detach()

    def observed(self) -> dict:
        """Run once and give all that can be seen from outside: output, inputs afterwards, buffers, gradients."""
        seen = {}
        if self.task.is_training:
            self.optimizer.zero_grad(set_to_none=True)
            with self.recipe.precision(self.task.device):
                output = call(self.run, self.inputs)
                loss = self.task.loss(output)
            # Unscaled: fp16 gradients are checked as they come, where they do not under- or overflow.
            (loss * 1024.0 if self.scaler else loss).backward()
            scale = 1024.0 if self.scaler else 1.0
            seen |= {"loss": loss.detach()}
            seen |= {f"grad:{n}": p.grad / scale for n, p in self.model.named_parameters() if p.grad is not None}
        else:
            with torch.no_grad(), self.recipe.precision(self.task.device):
                output = call(self.run, self.inputs)
        seen |= {"output": copied((output,))[0], "input": copied((self.inputs,))[0]}
        return seen | {f"buffer:{n}": b.detach().clone() for n, b in self.model.named_buffers()}


def call(run, inputs):
    """``run`` on a tensor, a tuple of arguments, or a dict of keyword arguments."""
    if isinstance(inputs, Mapping):
        return run(**inputs)
    return run(*inputs) if isinstance(inputs, tuple | list) else run(inputs)


def without_dropout(model: torch.nn.Module) -> None:
    """Set every dropout probability in ``model`` to 0: modules, attention, recurrent nets, ``…dropout…`` numbers."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            if ("dropout" in name or "drop_path" in name or "drop_prob" in name) and isinstance(value, float):
                setattr(module, name, 0.0)


@contextlib.contextmanager
def untouched(model: torch.nn.Module):
    """Put the learner's model back exactly, whatever a candidate reached: weights, buffers, gradients, modes, RNG.

    Hooks that the learner registered also run on the copies; what they record in the learner's own lists stays.
    """
    from labkit._training_state import seeded

    model = private.original(model)
    tensors = [*model.parameters(), *model.buffers()]
    values = [(x, x._version, x.detach().clone()) for x in tensors]
    gradients = [(x, x.grad, None if x.grad is None else x.grad.clone()) for x in tensors]
    modes = [(module, module.training) for module in model.modules()]
    with seeded(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            with torch.no_grad():
                for x, version, value in values:
                    if x._version != version:
                        x.copy_(value)
                for x, gradient, value in gradients:
                    x.grad = gradient
                    if gradient is not None and not torch.equal(gradient, value):
                        gradient.copy_(value)
            for module, mode in modes:
                module.training = mode


def shaken(inputs):
    """The inputs with other values of the same shape and kind: floats mirrored and shifted, whole numbers moved on.

    A trace that baked one branch of the model's control flow in gives itself away on them.
    """
    def moved(value):
        if not isinstance(value, torch.Tensor) or value.numel() < 2 or value.dtype == torch.bool:
            return value
        flat = value.detach().reshape(-1).roll(1).reshape(value.shape)
        return (-flat if value.is_floating_point() else flat).clone().requires_grad_(value.requires_grad)

    return torch.utils._pytree.tree_map(moved, inputs)


def _channels_last(inputs):
    def moved(value):
        if isinstance(value, torch.Tensor) and value.dim() == 4:
            return value.detach().to(memory_format=torch.channels_last).requires_grad_(value.requires_grad)
        return value

    return torch.utils._pytree.tree_map(moved, inputs)


def _cannot_copy(error: Exception) -> str:
    return t(
        "lab.advise tries everything on copies, and this model cannot be copied ({kind}: {text}). Give a function that "
        "builds it instead: lab.advise(lambda: MyModel(), inputs).",
        kind=type(error).__name__,
        text=str(error).splitlines()[0] if str(error) else "",
    )
