"""Bytes that the kernels of one Inductor wrapper read and write, from the sizes that the wrapper itself states.

A generated kernel reads its ``in_ptr`` once, writes its ``out_ptr`` once, and does both to an ``in_out_ptr``; a library
kernel reads every tensor given to it once and writes ``out=`` or its result once. A kernel that reads only a part of a
buffer (a gather, a slice) counts as reading all of it.
"""

from __future__ import annotations

import ast
import math
import re

_ITEM = {"float64": 8, "int64": 8, "complex64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
_PARAMETER = re.compile(r"(in_out_ptr|in_ptr|out_ptr)\d+")


class WrapperBytes:
    """Sizes of the buffers of one wrapper, filled while its ``call`` is read from top to bottom."""

    def __init__(self, tree: ast.Module, sources: dict[str, str]):
        self._elements: dict[str, int] = {}  # buffer -> elements in memory
        self._itemsize: dict[str, int] = {}
        self._roles = {name: _roles(name, text) for name, text in sources.items()}
        self._results: list[str] = []  # results of library kernels whose size is still to come
        self.total = 0
        self.is_complete = True
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and _called(node.value) == "rand_strided":
                self._declare(node)

    def assign(self, node: ast.Assign) -> None:
        """``buf = empty_strided_cpu(…)``, ``buf1 = buf0``, ``buf = reinterpret_tensor(…)``, ``buf1 = buf0[1]``."""
        if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return
        name, value = node.targets[0].id, node.value
        called = _called(value)
        if called.startswith("empty_strided"):
            self._declare(node)
        elif called == "reinterpret_tensor":
            self._alias(name, value)
        elif isinstance(value, ast.Name):
            self._copy(name, value.id)
        elif isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
            self._itemsize[name] = self._itemsize.get(value.value.id, 4)
            self._results.append(name)

    def size_stated(self, call: ast.Call) -> None:
        """``assert_size_stride(buf, shape, stride)``: the size of what a library kernel returned, and its writing."""
        if not (len(call.args) >= 3 and isinstance(call.args[0], ast.Name)):
            return
        name = call.args[0].id
        self._elements.setdefault(name, _elements(call.args[1], call.args[2]))
        if name in self._results:
            self._results.remove(name)
            self._add(name)

    def generated(self, name: str, call: ast.Call) -> None:
        for role, argument in zip(self._roles.get(name, ()), call.args, strict=False):
            for _ in range({"in_out_ptr": 2, "in_ptr": 1, "out_ptr": 1}.get(role, 0)):
                self._add(self._buffer(argument))

    def library(self, call: ast.Call, target: str | None) -> None:
        """A library kernel; ``target`` is the name its result gets, whose size a later line states."""
        buffers = [self._buffer(argument) for argument in [*call.args, *(k.value for k in call.keywords)]]
        buffers = list(dict.fromkeys(buffer for buffer in buffers if buffer is not None))
        for buffer in buffers:
            self._add(buffer)
        if target is not None and buffers:
            self._itemsize[target] = self._itemsize.get(buffers[0], 4)
            self._results.append(target)

    def _declare(self, node: ast.Assign) -> None:
        call, name = node.value, node.targets[0].id
        self._elements[name] = _elements(call.args[0], call.args[1])
        dtypes = [ast.unparse(x) for x in [*call.args, *(k.value for k in call.keywords)]]
        dtype = next((text.removeprefix("torch.") for text in dtypes if text.startswith("torch.")), "float32")
        self._itemsize[name] = _ITEM.get(dtype, 1)

    def _alias(self, name: str, call: ast.Call) -> None:
        if isinstance(call.args[0], ast.Name):
            self._copy(name, call.args[0].id)
            self._elements[name] = _elements(call.args[1], call.args[2])

    def _copy(self, name: str, other: str) -> None:
        if other in self._elements:
            self._elements[name], self._itemsize[name] = self._elements[other], self._itemsize.get(other, 4)

    def _buffer(self, argument: ast.expr) -> str | None:
        """The buffer behind an argument: a name, or a view of one, which gets a name of its own."""
        if isinstance(argument, ast.Name):
            return argument.id if argument.id in self._elements else None
        if _called(argument) == "reinterpret_tensor":
            name = ast.unparse(argument)
            self._alias(name, argument)
            return name if name in self._elements else None
        return None

    def _add(self, buffer: str | None) -> None:
        if buffer is None or self._elements.get(buffer, -1) < 0:
            self.is_complete = False
        else:
            self.total += self._elements[buffer] * self._itemsize.get(buffer, 4)


def _called(value) -> str:
    return ast.unparse(value.func) if isinstance(value, ast.Call) else ""


def _elements(shape: ast.expr, stride: ast.expr) -> int:
    """Elements in memory of a literal shape and stride; -1 when a size is a symbol."""
    try:
        sizes, strides = ast.literal_eval(shape), ast.literal_eval(stride)
    except ValueError:
        return -1
    return math.prod(size for size, step in zip(sizes, strides, strict=True) if step != 0 or size == 0)


def _roles(name: str, source: str) -> tuple[str, ...]:
    """``in_ptr``, ``out_ptr``, ``in_out_ptr`` or "" for each parameter of a generated kernel."""
    # Every C++ kernel is called "kernel"; a Triton one has its own name, and may follow its helper functions.
    found = re.search(rf"(?:\bkernel|\bdef {name})\(([^)]*)\)", source)
    parameters = found[1].split(",") if found else []
    matches = [_PARAMETER.search(parameter) for parameter in parameters]
    return tuple(match[1] if match else "" for match in matches)
