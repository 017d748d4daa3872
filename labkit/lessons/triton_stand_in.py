"""The small part of Triton that lesson 03 uses, for machines without it, and for counting loads and stores anywhere.

A kernel runs here one program after the other on torch's CPU tensors: slow, exact, and with a clear error where real
hardware would read memory that belongs to nobody. A GPU's tensors are copied to the CPU, and what was written is copied
back: right for a sample, far too slow for a measurement. It does *not* compile, has no shared memory, and knows only
the operations in ``Language``.
"""

from __future__ import annotations

import itertools
import os
import types
from dataclasses import dataclass

import torch

from labkit import _probes, hardware
from labkit._cpp_kernels import patience
from labkit.language import t


class OutOfBoundsError(IndexError):
    """A program touched memory outside its tensor."""


@dataclass(frozen=True)
class Counts:
    """What one launch did: elements read and written, and programs run."""

    loads: int
    stores: int
    programs: int


class _Pointer:
    """A place in a tensor, or a block of places: what ``x_ptr + offsets`` is inside a kernel."""

    def __init__(self, name: str, flat: torch.Tensor, offsets=0):
        self.name, self.flat, self.offsets = name, flat, offsets

    def __add__(self, offsets):
        return _Pointer(self.name, self.flat, self.offsets + offsets)

    __radd__ = __add__


class Language:
    """``tl``: the operations, and the counters they turn."""

    constexpr, float32, int32 = int, torch.float32, torch.int32

    def __init__(self):
        self.program, self.programs, self.loads, self.stores = (0, 0, 0), (1, 1, 1), 0, 0
        self.written = set()  # names of the pointers that something was stored to

    def program_id(self, axis: int) -> int:
        return self.program[axis]

    def num_programs(self, axis: int) -> int:
        return self.programs[axis]

    def load(self, pointer, mask=None, other=0.0):
        places, inside = self._places(pointer, mask)
        self.loads += int(inside.sum())
        values = torch.full(places.shape, float(other), dtype=pointer.flat.dtype)
        values[inside] = pointer.flat[places[inside]]
        return values

    def store(self, pointer, value, mask=None) -> None:
        places, inside = self._places(pointer, mask)
        self.stores += int(inside.sum())
        self.written.add(pointer.name)
        values = torch.as_tensor(value, dtype=pointer.flat.dtype).broadcast_to(places.shape)
        pointer.flat[places[inside]] = values[inside]

    def _places(self, pointer, mask):
        """Offsets of a block, and which of them the mask lets through. Raises OutOfBoundsError, TypeError."""
        if not isinstance(pointer, _Pointer):
            raise TypeError(t("`tl.load` and `tl.store` need a pointer such as `x_ptr + offsets`, not a value."))
        places = torch.as_tensor(pointer.offsets)
        inside = torch.ones(places.shape, dtype=torch.bool) if mask is None else torch.as_tensor(mask)
        inside = inside.broadcast_to(places.shape)
        touched, n = places[inside], pointer.flat.numel()
        if touched.numel() and (touched.min() < 0 or touched.max() >= n):
            raise OutOfBoundsError(t(
                "Program {program} touches element {element} of `{name}`, which has {n}. On a GPU that is somebody "
                "else's memory. Give the last block a mask: `mask=offsets < n`.", program=self.program[0],
                element=int(touched.max()), name=pointer.name, n=n))
        return places, inside

    @staticmethod
    def arange(start: int, end: int) -> torch.Tensor:
        return torch.arange(start, end)

    @staticmethod
    def cdiv(a: int, b: int) -> int:
        return -(-a // b)

    @staticmethod
    def zeros(shape, dtype) -> torch.Tensor:
        return torch.zeros(tuple(shape), dtype=dtype)

    @staticmethod
    def where(condition, a, b):
        return torch.where(condition, torch.as_tensor(a), torch.as_tensor(b))

    @staticmethod
    def maximum(a, b):
        return torch.maximum(torch.as_tensor(a), torch.as_tensor(b))

    @staticmethod
    def minimum(a, b):
        return torch.minimum(torch.as_tensor(a), torch.as_tensor(b))

    exp, abs, sqrt, sigmoid = (staticmethod(f) for f in (torch.exp, torch.abs, torch.sqrt, torch.sigmoid))

    def __getattr__(self, name):
        raise AttributeError(t("This small stand-in for Triton has no `tl.{name}`; it has: {known}.", name=name,
                               known=", ".join(k for k in vars(Language) if not k.startswith("_"))))


class Kernel:
    """What ``@triton.jit`` makes of a function: ``kernel[grid](*args, BLOCK=1024)`` runs it and returns ``Counts``."""

    def __init__(self, fn):
        self.fn, self.__name__, self.__doc__ = fn, fn.__name__, fn.__doc__

    def __getitem__(self, grid):
        return lambda *args, **meta: launch(self.fn, grid, *args, **meta)


def launch(fn, grid, *args, **meta) -> Counts:
    """Run the plain function behind a kernel on the stand-in, whatever ``tl`` it was written with.

    Tensors of a GPU are copied here and back; two that overlap must be the same memory as a whole.

    Raises OutOfBoundsError, and whatever the function raises.
    """
    tl = Language()
    code, cells = fn.__code__, fn.__closure__ or ()
    closure = tuple(types.CellType(tl) if name == "tl" else cell
                    for name, cell in zip(code.co_freevars, cells, strict=True))
    mine = types.FunctionType(code, {**fn.__globals__, "tl": tl}, fn.__name__, fn.__defaults__, closure)
    names = code.co_varnames
    tensors = {k: x for k, x in enumerate(args) if isinstance(x, torch.Tensor)}
    here = {_memory(x): x if x.device.type == "cpu" else x.detach().cpu() for x in tensors.values()}
    given = [_Pointer(names[k], here[_memory(x)].view(-1)) if k in tensors else x for k, x in enumerate(args)]
    sizes = tuple(grid(meta) if callable(grid) else grid)
    tl.programs = sizes + (1,) * (3 - len(sizes))
    for program in itertools.product(*map(range, tl.programs)):
        tl.program = program
        mine(*given, **meta)
    with torch.no_grad():
        for k, x in tensors.items():
            if x.device.type != "cpu" and names[k] in tl.written:
                x.copy_(here[_memory(x)])
    return Counts(tl.loads, tl.stores, len(list(itertools.product(*map(range, tl.programs)))))


def _memory(x: torch.Tensor) -> tuple:
    """Equal for two tensors that are the same piece of memory, seen alike: an in-place kernel gets one twice."""
    return x.device, x.data_ptr(), x.dtype, x.shape, x.stride()


@dataclass(frozen=True)
class Place:
    """Where this lesson's Triton kernels run: ``kind`` is ``"gpu"``, ``"interpreter"`` or ``"stand-in"``."""

    kind: str

    def __str__(self):
        if self.kind == "gpu":
            return t("Triton kernels run on the GPU.")
        if self.kind == "interpreter":
            return t("No GPU: Triton's own interpreter runs the kernels, one program after the other.")
        if _probes.installed("triton"):
            return t("Triton is installed, but does not work here: the lab's small stand-in runs the kernels. "
                     "lab.machine() says what to type.")
        return t("Triton is not installed: the lab's small stand-in runs the kernels. On Linux `pip install triton` "
                 "adds the real one.")

    __repr__ = __str__


def triton_or_stand_in():
    """``(triton, tl, place)``: real Triton where it runs, on the GPU or under its interpreter, else the stand-in."""
    if not hardware.has_cuda():
        os.environ["TRITON_INTERPRET"] = "1"  # Triton looks when a kernel is decorated
    with patience("Triton"):
        usable = hardware.has_triton()
    if usable:
        import triton
        import triton.language as tl

        return triton, tl, Place("gpu" if hardware.has_cuda() else "interpreter")
    return types.SimpleNamespace(jit=Kernel, cdiv=Language.cdiv), Language(), Place("stand-in")
