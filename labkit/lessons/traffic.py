"""Count what a chain of torch operations moves: which kernels run, and the bytes that each reads and writes.

The count is of what the operations ask for, tensor by tensor. What a cache keeps, and the extra read that a processor
makes before it writes a line of memory, are not in it.
"""

from __future__ import annotations

import html
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.language import t
from labkit.units import size

# These write every element of their first argument without reading it.
_ONLY_WRITE = ("copy_", "fill_", "zero_")
# These hand out memory or another view of it; nothing is moved.
_NO_WORK = ("empty", "empty_like", "empty_strided", "new_empty", "detach", "alias", "lift_fresh")


@dataclass(frozen=True)
class Step:
    """One kernel: bytes and number of tensors read and written."""

    name: str
    read_bytes: int
    written_bytes: int
    reads: int
    writes: int


@dataclass(frozen=True)
class Traffic:
    """The kernels of one call, in order."""

    steps: tuple[Step, ...]

    @property
    def kernels(self) -> int:
        return len(self.steps)

    @property
    def trips(self) -> int:
        """How often a tensor travelled from memory or to it."""
        return sum(step.reads + step.writes for step in self.steps)

    @property
    def bytes(self) -> int:
        return sum(step.read_bytes + step.written_bytes for step in self.steps)

    def _rows(self) -> list[tuple[str, str, str]]:
        rows = [(step.name, size(step.read_bytes), size(step.written_bytes)) for step in self.steps]
        read, written = (sum(getattr(s, what) for s in self.steps) for what in ("read_bytes", "written_bytes"))
        return [(t("operation"), t("read"), t("written")), *rows, (t("in all"), size(read), size(written))]

    def __str__(self):
        rows = self._rows()
        widths = [max(len(row[k]) for row in rows) for k in range(3)]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)

    __repr__ = __str__

    def _repr_html_(self):
        head, *rows = self._rows()
        cells = "".join(f'<th scope="col">{html.escape(text)}</th>' for text in head)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows)
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def traffic(fn, *args, **kwargs) -> Traffic:
    """Run ``fn`` once and count every torch operation that moves data, also those of its backward pass.

    A tensor of one element (a scalar, mostly) is left out. Kernels that torch does not dispatch (a C++ loop, compiled
    code) are not seen.
    """
    with _Counter() as counter:
        fn(*args, **kwargs)
    return Traffic(tuple(counter.steps))


class _Counter(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.steps: list[Step] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if not func.is_view and name not in _NO_WORK:
            read = _tensors(value for argument, value in _given(func, args, kwargs) if not argument.is_out)
            written = _tensors([result])
            if name in _ONLY_WRITE:
                read = read[1:]
            if read or written:
                self.steps.append(Step(name, _bytes(read), _bytes(written), len(read), len(written)))
        return result


def _given(func, args, kwargs):
    """Pairs of (schema argument, value)."""
    arguments = func._schema.arguments
    named = {argument.name: argument for argument in arguments}
    return [*zip(arguments, args, strict=False), *((named[name], value) for name, value in kwargs.items())]


def _tensors(values) -> list[torch.Tensor]:
    return [x for value in values for x in tree_leaves(value) if isinstance(x, torch.Tensor) and x.numel() > 1]


def _bytes(tensors) -> int:
    return sum(x.numel() * x.element_size() for x in tensors)
