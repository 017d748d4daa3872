"""What eager mode does, operator by operator: calls, bytes and FLOPs, counted by rules that are stated here.

Bytes of an operator: every distinct tensor that it reads, once, and every tensor that it writes, once. What a dimension
of stride 0 repeats is one element in memory. A view, a detach and an empty allocation move nothing; ``copy_``,
``fill_`` and their like write without reading; a gather (embedding, index_select, …) reads as many elements as it
gives. So a kernel that goes over its input twice (batch-norm) counts less than it moves: the sum is a lower bound.

FLOPs: products, convolutions and attention by torch's formulas (``torch.utils.flop_counter``), one multiply-add being
two; any other operator that computes, one for each element of its largest tensor; one that only moves data, none.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, flop_registry, sdpa_flop_count

from labkit import _callables
from labkit._torch_private import quiet
from labkit._undisturbed import copied, undisturbed

_ALLOCATES = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
_FILLS = {"fill", "zero", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
          "new_full", "arange", "eye", "scalar_tensor"}  # fmt: skip
_RANDOM = {"bernoulli", "normal", "uniform", "random", "exponential", "rand", "randn", "randint", "rand_like",
           "randn_like", "randint_like", "randperm"}  # fmt: skip
_GATHERS = {"embedding", "index_select", "gather", "index", "take"}
_MOVES = {"clone", "copy", "_to_copy", "cat", "stack", "constant_pad_nd", "roll", "flip", "split_with_sizes_copy",
          "repeat", "lift_fresh_copy", "slice_scatter", "select_scatter", "slice_backward",
          "select_backward"}  # fmt: skip
_NO_WORK = {"_local_scalar_dense", "is_same_size", "lift_fresh", "set", "resize"}
_WRITES_ONLY = {"copy", "set"} | _FILLS | _RANDOM
_NO_FLOPS = _ALLOCATES | _FILLS | _GATHERS | _MOVES | _NO_WORK


@dataclass
class Count:
    """Sums over the operators of one call."""

    operators: int = 0  # operators that compute or move data
    dispatches: int = 0  # those, and views and allocations too: each costs time to start
    read_bytes: int = 0
    written_bytes: int = 0
    outside_bytes: int = 0  # compulsory: what comes from outside, read once, and what stays, written once
    flops: int = 0  # all
    product_flops: int = 0  # by torch's formulas: products, convolutions, attention
    product_dtypes: dict[torch.dtype, int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    largest_bytes: int = 0  # the largest tensor touched

    @property
    def eager_bytes(self) -> int:
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True)
class Operators:
    """Operator calls of eager mode: ``total`` without views and allocations, and by name."""

    total: int
    names: dict[str, int]

    def __repr__(self):
        return f"Operators(total={self.total}, {', '.join(f'{name} x{n}' for name, n in self.names.items())})"


def operators(fn, *args) -> Operators:
    """Count the operators that ``fn(*args)`` starts in eager mode, forward and backward alike: a kernel each.

    Views, detaches and empty allocations start no kernel and are left out. Code inside a hand-written extension is not
    seen. Under this count compiled functions run eagerly.
    """
    _callables.require_countable(fn, "lab.graphs.operators")
    seen = count(fn, *args)
    return Operators(seen.operators, dict(sorted(seen.names.items())))


def count(fn, *args) -> Count:
    """Run ``fn`` once on clones of ``args``, and count its operators, bytes and FLOPs.

    Compiled functions run eagerly meanwhile. State as in `labkit._undisturbed`.
    """
    args = copied(args)
    products, counter = FlopCounterMode(display=False, custom_mapping=_formulas()), _Counter()
    with undisturbed(fn), quiet(), torch.compiler.set_stance("force_eager"), _slow_paths(), products, counter:
        result = fn(*args)
    counter.keep(args, result)
    seen = counter.count
    seen.product_flops = products.get_total_flops()
    seen.flops += seen.product_flops
    return seen


class _Counter(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = Count()
        self._made: set[int] = set()  # storages that an operator of this call allocated
        self._outside: dict[int, int] = {}  # storage from outside -> most bytes read of it by one operator
        self._changed: dict[int, int] = {}  # storage from outside -> most bytes written to it
        self._alive: list = []  # no storage is freed while counting, so that none is taken for another

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "profiler":
            return func(*args, **kwargs)
        # Under inference mode composite operators arrive whole; what runs are their parts.
        if func._overloadpacket not in flop_registry:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = func(*args, **kwargs)
        self._note(func, args, kwargs, result)
        return result

    def _note(self, func, args, kwargs, result):
        name = func._schema.name.partition("::")[2].removesuffix("_")
        seen, inputs, written = self.count, {}, {}
        seen.dispatches += 1
        for argument, value in _arguments(func, args, kwargs):
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            for tensor in _tensors(value):
                key = _key(tensor)
                if is_written:
                    written[key] = tensor
                if not (is_written and (name in _WRITES_ONLY or argument.is_out)):
                    inputs[key] = tensor
        storages = {_storage(tensor) for tensor in [*inputs.values(), *written.values()]}
        made = [tensor for tensor in _tensors(result) if _storage(tensor) not in storages]
        self._alive += [tensor.untyped_storage() for tensor in made if tensor.layout == torch.strided]
        self._made.update(map(_storage, made))
        if name in _ALLOCATES | _NO_WORK or func.is_view or not (made or written):
            return
        seen.operators += 1
        seen.names[name] = seen.names.get(name, 0) + 1
        read = {_storage(tensor): 0 for tensor in inputs.values()}
        for position, tensor in enumerate(inputs.values()):
            # The first tensor of a gather is the table: only the rows asked for are read.
            is_table = name in _GATHERS and position == 0
            size = min(touched_bytes(tensor), sum(map(touched_bytes, made)) if is_table else math.inf)
            read[_storage(tensor)] += size
            seen.read_bytes += size
        for storage, size in read.items():
            if storage not in self._made:
                self._outside[storage] = max(self._outside.get(storage, 0), size)
        for tensor in [*written.values(), *made]:
            size = touched_bytes(tensor)
            seen.written_bytes += size
            if _storage(tensor) not in self._made:
                self._changed[_storage(tensor)] = max(self._changed.get(_storage(tensor), 0), size)
        everything = [*inputs.values(), *written.values(), *made]
        seen.largest_bytes = max(seen.largest_bytes, *map(touched_bytes, everything))
        if func._overloadpacket in _formulas() or func._overloadpacket in flop_registry:
            dtype = made[0].dtype if made else everything[0].dtype
            seen.product_dtypes[dtype] = seen.product_dtypes.get(dtype, 0) + max(x.numel() for x in everything)
        elif name not in _NO_FLOPS:
            seen.flops += max(tensor.numel() for tensor in everything)

    def keep(self, args, result):
        """Add up the compulsory traffic. What a hand-written kernel reads is not seen: so all ``args`` are read."""
        for tensor in _tensors(args):
            self._outside.setdefault(_storage(tensor), touched_bytes(tensor))
        results = {_storage(x): touched_bytes(x) for x in _tensors(result) if _storage(x) in self._made}
        self.count.outside_bytes = sum(self._outside.values()) + sum(self._changed.values()) + sum(results.values())
        self._alive.clear()


def touched_bytes(tensor: torch.Tensor) -> int:
    """Bytes of memory behind a tensor's elements: an expanded dimension is one element."""
    if tensor.layout != torch.strided:
        return tensor.numel() * tensor.element_size()
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0 or size == 0)
    # Overlapping windows are no more than the storage behind them.
    return min(math.prod(sizes) * tensor.element_size(), tensor.untyped_storage().nbytes())


def _arguments(func, args, kwargs) -> Iterator[tuple]:
    """(schema argument, value) of every argument given."""
    schema = func._schema.arguments
    yield from zip(schema, args, strict=False)
    by_name = {argument.name: argument for argument in schema}
    yield from ((by_name[name], value) for name, value in kwargs.items() if name in by_name)


def _tensors(value) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else id(tensor)


def _key(tensor: torch.Tensor) -> tuple:
    stride = tensor.stride() if tensor.layout == torch.strided else ()
    return (_storage(tensor), tensor.storage_offset() if stride else 0, tensor.shape, stride)


def _formulas() -> dict:
    """FLOP formulas for operators of the CPU that torch's own table lacks, in its form: shapes in, a number out."""
    aten = torch.ops.aten

    def attention(query, key, value, *args, out_shape=None, **kwargs):
        return sdpa_flop_count(query, key, value)

    def attention_backward(grad, query, key, value, *args, out_shape=None, **kwargs):
        return 5 * sdpa_flop_count(query, key, value) // 2  # five products backward, two forward

    def recurrent(x, weight_input, weight_state, *args, out_shape=None, **kwargs):
        return 2 * x[0] * x[1] * (math.prod(weight_input) + math.prod(weight_state))

    def recurrent_backward(*args, out_shape=None, **kwargs):
        return 2 * recurrent(*args)

    return {
        aten._scaled_dot_product_flash_attention_for_cpu: attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
        aten.mkldnn_rnn_layer: recurrent,
        aten.mkldnn_rnn_layer_backward: recurrent_backward,
    }


@contextlib.contextmanager
def _slow_paths() -> Iterator[None]:
    """Keep torch's one-operator transformer layer off: it has no formula and hides its parts."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
