"""Run a learner's function for counting and leave no trace: cloned inputs, state put back, no ``.grad`` changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.utils._pytree import tree_leaves, tree_map

from labkit.language import t


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
def undisturbed(fn) -> Iterator[None]:
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
