"""What a function changes besides its result: weights, buffers, gradients, optimiser state, random numbers.

A training step cannot be called twice with the same answer, unless what it changes is put back in between. So modules,
optimisers and trainable tensors are looked up where the function can reach them: among its arguments, in its closure,
in the globals it names, and on the object it is a method of.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import sys
import types
from dataclasses import dataclass, field

from labkit import _mxnet_state

_DEPTH = 4  # step() calls loss() calls model: functions are followed this far


@dataclass
class Reach:
    """Modules, optimisers and trainable tensors that a function can reach, by the name it uses for them."""

    modules: dict = field(default_factory=dict)
    optimizers: list = field(default_factory=list)
    tensors: dict = field(default_factory=dict)
    gluon: _mxnet_state.Gluon = field(default_factory=_mxnet_state.Gluon)

    def trainable(self) -> dict:
        """Name -> parameter or leaf tensor that can get a gradient; prefixes that compilers add are dropped."""
        found, seen = {}, set()
        for module in self.modules.values():
            for name, parameter in module.named_parameters():
                name = name.replace("_orig_mod.", "").replace("module.", "")
                if parameter.requires_grad and id(parameter) not in seen:
                    seen.add(id(parameter))
                    found[name if name not in found else f"{name} ({len(found)})"] = parameter
        found.update({name: tensor for name, tensor in self.tensors.items() if id(tensor) not in seen})
        return found | self.gluon.trainable()


def reach(fn, args) -> Reach:
    """Look for modules, optimisers and trainable tensors around ``fn`` and among ``args``: torch's and MXNet's."""
    found = Reach()
    if {"torch", "mxnet"} & sys.modules.keys():
        seen: set[int] = set()
        for index, arg in enumerate(args):
            _visit(arg, f"args[{index}]", found, seen, 1)
        _visit(fn, "f", found, seen, _DEPTH)
    return found


def _visit(thing, name: str, found: Reach, seen: set[int], depth: int) -> None:
    if id(thing) in seen or depth < 0:
        return
    seen.add(id(thing))
    if _is_of_torch(thing, name, found) or found.gluon.take(thing, name):
        return
    if isinstance(thing, dict | list | tuple) and len(thing) <= 1000:
        for key, item in thing.items() if isinstance(thing, dict) else enumerate(thing):
            _visit(item, f"{name}[{key!r}]", found, seen, depth - 1)
    elif isinstance(thing, types.FunctionType):
        for inner_name, inner in _named_by(thing):
            _visit(inner, inner_name, found, seen, depth - 1)
    elif isinstance(thing, types.MethodType):
        _visit(thing.__self__, name, found, seen, depth)
        _visit(thing.__func__, name, found, seen, depth)
    elif isinstance(thing, functools.partial):
        for inner in (thing.func, *thing.args, *thing.keywords.values()):
            _visit(inner, name, found, seen, depth - 1)
    elif hasattr(thing, "__dict__") and not isinstance(thing, type | types.ModuleType):
        for inner_name, inner in vars(thing).items():
            _visit(inner, inner_name, found, seen, min(depth - 1, 1))


def _is_of_torch(thing, name: str, found: Reach) -> bool:
    """Keep ``thing`` when it is one of torch's; says whether it was."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if isinstance(thing, torch.nn.Module):
        found.modules[name] = thing
    elif isinstance(thing, torch.optim.Optimizer):
        found.optimizers.append(thing)
        for group, values in enumerate(thing.param_groups):
            for index, tensor in enumerate(values["params"]):
                found.tensors.setdefault(f"parameter {group}.{index}", tensor)
    elif isinstance(thing, torch.Tensor):
        if thing.requires_grad and thing.is_leaf:
            found.tensors[name] = thing
    else:
        return False
    return True


def _named_by(function):
    """Closure cells, defaults, attributes such as ``__wrapped__``, and the globals whose names stand in the code."""
    for cell_name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            yield cell_name, cell.cell_contents
    yield from ((f"default {index}", value) for index, value in enumerate(function.__defaults__ or ()))
    yield from vars(function).items()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]


class Saved:
    """The state of everything in ``reaches``, to be put back with ``restore()`` and, at the end, ``finish()``."""

    def __init__(self, reaches):
        reaches, tensors = list(reaches), {}
        self._gluon = _mxnet_state.Saved(found.gluon for found in reaches)
        for found in reaches:
            for module in found.modules.values():
                tensors.update({id(x): x for x in [*module.parameters(), *module.buffers()]})
            tensors.update({id(x): x for x in found.tensors.values()})
        optimizers = {id(x): x for found in reaches for x in found.optimizers}
        self._tensors = [(x, x.detach().clone(), x.grad) for x in tensors.values() if not _is_fixed(x)]
        self._optimizers = [(x, copy.deepcopy(x.state_dict())) for x in optimizers.values()]

    def restore(self) -> None:
        """Weights, buffers and optimisers as they were; no gradients, so that the next call makes its own."""
        self._restore_torch()
        self._gluon.restore()

    def _restore_torch(self) -> None:
        if not self._tensors and not self._optimizers:
            return
        import torch

        with torch.no_grad():
            for tensor, value, _ in self._tensors:
                if not torch.equal(tensor, value):  # writing to it would spoil graphs that the learner holds
                    tensor.copy_(value)
                if tensor.grad is not None:
                    tensor.grad = None
        for optimizer, state in self._optimizers:
            optimizer.load_state_dict(copy.deepcopy(state))

    def finish(self) -> None:
        """As before the comparison, the gradients too."""
        self._restore_torch()
        for tensor, _, gradient in self._tensors:
            if gradient is not None:
                tensor.grad = gradient
        self._gluon.finish()


def _is_fixed(tensor) -> bool:
    """Without values yet, or never to be written to."""
    return "Uninitialized" in type(tensor).__name__ or tensor.is_meta or tensor.is_inference()


@contextlib.contextmanager
def seeded():
    """The same random numbers for every call made inside its own ``seeded()``; the generators go on as before."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    kept = random.getstate(), numpy and numpy.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch and torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices) if torch else contextlib.nullcontext(), _mxnet_state.seeded():
        random.seed(0)
        if numpy:
            numpy.random.seed(0)
        if torch:
            torch.manual_seed(0)
        try:
            yield
        finally:
            random.setstate(kept[0])
            if numpy:
                numpy.random.set_state(kept[1])
