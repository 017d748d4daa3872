"""Facts about compiled code that can be counted: they do not depend on the clock, so a test may compare them.

Each function says what it runs and what it leaves behind. Counting resets Dynamo: functions that were compiled before
compile again at their next call (quickly, from Inductor's cache on disk). Inputs are cloned, a module's parameters,
buffers and gradients are put back, and so is the random state; what a plain function changes outside stays changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils._pytree import tree_leaves, tree_map

from labkit import _torch_private as private
from labkit._graph_values import Kernels
from labkit._lab_source import LabSource
from labkit._wrapper_code import read_wrapper

__all__ = ["Kernels", "LabSource", "generated_source", "kernels"]


def kernels(fn, *args, backward: bool = False, as_is: bool = False, **compile_options) -> Kernels:
    """Count the kernel calls that ``torch.compile`` makes of ``fn(*args)``, generated ("fused") and library ("extern").

    ``fn`` is a function or module, and is compiled here with ``compile_options`` (``dynamic=``, ``mode=``, …), or
    something that came out of ``torch.compile``. ``backward=True`` also counts the backward of the sum of its floating
    outputs. ``as_is=True`` runs a plain ``fn`` that calls compiled parts itself, such as a whole training step.

    Counted in the wrapper code that Inductor generates, each compiled graph once: a graph that one call of ``fn`` runs
    five times still counts once. ``torch._inductor.metrics.generated_kernel_count`` and ``counters["inductor"]`` count
    something else, and differ between a cold and a warm cache.
    """
    call = fn if as_is or private.is_compiled(fn) else torch.compile(fn, **compile_options)
    # A second torch.compile of the same function must not find the first one's graphs, here or afterwards.
    private.reset_dynamo()
    try:
        with _undisturbed(fn), private.quiet(), private.captured_wrappers() as wrappers:
            result = call(*copied(args))
            if backward:
                backward_of_sum(result)
    finally:
        private.reset_dynamo()
    return Kernels(tuple(read_wrapper(code) for code in wrappers))


def generated_source(fn, *args, backward: bool = False, as_is: bool = False, **compile_options) -> LabSource:
    """The C++ or Triton kernels that Inductor generates for ``fn(*args)``, shown readably. Arguments as `kernels`."""
    return kernels(fn, *args, backward=backward, as_is=as_is, **compile_options).source


def copied(args):
    """``args`` with every tensor replaced by a detached clone; a tensor that occurs twice is cloned once."""
    clones: dict[int, torch.Tensor] = {}

    def clone(value):
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in clones:
            clones[id(value)] = value.detach().clone().requires_grad_(value.requires_grad)
        return clones[id(value)]

    return tree_map(clone, args)


def backward_of_sum(result) -> None:
    """Run the backward of the sum of the floating outputs into the void: no ``.grad`` changes.

    Raises ValueError when no output depends on a tensor that requires a gradient.
    """
    outputs = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not outputs:
        from labkit.language import t

        raise ValueError(
            t(
                "There is nothing to run backward: no output depends on a tensor that requires a gradient. Perhaps the "
                "call stood under torch.no_grad(). Give an input with requires_grad=True, or leave backward=True out."
            )
        )
    loss = sum(x.float().sum() for x in outputs)
    torch.autograd.grad(loss, leaves(loss), allow_unused=True)


def leaves(loss: torch.Tensor) -> list[torch.Tensor]:
    """The leaf tensors into which ``loss.backward()`` would accumulate."""
    found, seen, stack = [], set(), [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        stack.extend(next_node for next_node, _ in node.next_functions)
    return found


@contextlib.contextmanager
def _undisturbed(fn) -> Iterator[None]:
    """Put back the random state, and the parameters, buffers and gradients of ``fn`` where it is a module."""
    module = fn if isinstance(fn, torch.nn.Module) else None
    tensors = [*module.parameters(), *module.buffers()] if module is not None else []
    values = [x.detach().clone() for x in tensors]
    grads = [None if x.grad is None else x.grad.clone() for x in tensors]
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() and torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for x, value, grad in zip(tensors, values, grads, strict=True):
                    x.copy_(value)
                    x.grad = grad
