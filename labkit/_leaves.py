"""Walk nested results: tuples, lists, dicts, dataclasses, model outputs, down to arrays and plain values."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping


def leaves(value, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield ``(path, leaf)`` in a fixed order; a path reads like Python: ``["logits"][0]``.

    >>> list(leaves({"a": [1, 2]}))
    [('["a"][0]', 1), ('["a"][1]', 2)]
    """
    if is_array(value):
        yield path, value
    elif isinstance(value, Mapping):  # transformers' outputs are mappings
        for key in value:
            yield from leaves(value[key], f'{path}["{key}"]' if isinstance(key, str) else f"{path}[{key!r}]")
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{path}.{field.name}")
    else:
        yield path, value


def arrays(value) -> Iterator[tuple[str, object]]:
    """Only the leaves that are arrays of numbers."""
    return ((path, leaf) for path, leaf in leaves(value) if is_array(leaf))


def is_array(value) -> bool:
    """Whether ``value`` is a tensor of torch, an array of numpy or mxnet, or anything shaped like one."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type)


def described(args) -> list[dict]:
    """Shape, dtype and device of each array among ``args``, as plain JSON values."""
    return [{"shape": [int(n) for n in leaf.shape], "dtype": dtype_name(leaf),
             "device": str(getattr(leaf, "device", None) or getattr(leaf, "ctx", "cpu"))}
            for _, leaf in arrays(args)]


def dtype_name(array) -> str:
    dtype = array.dtype
    return str(getattr(dtype, "__name__", dtype)).replace("torch.", "")


def to_numpy(array, *, copy: bool = True):
    """As a numpy array, detached and on the CPU; bfloat16, which numpy lacks, becomes float32 exactly.

    Without ``copy`` it may share the array's memory.
    """
    import numpy as np

    if hasattr(array, "asnumpy"):  # mxnet
        return array.asnumpy()
    if hasattr(array, "detach"):  # torch
        tensor = array.detach()
        tensor = tensor.dequantize() if tensor.is_quantized else tensor
        tensor = tensor.to_dense() if str(tensor.layout) != "torch.strided" else tensor
        if str(tensor.dtype) == "torch.bfloat16" or "float8" in str(tensor.dtype):
            tensor = tensor.float()
        array = tensor.cpu().resolve_conj().numpy()
    return np.array(array, copy=True) if copy else np.asarray(array)


def same_bits(a, b) -> bool:
    """Whether two numpy arrays of one shape hold the same bits; a NaN equals itself here."""
    import numpy as np

    words = {1: np.uint8, 2: np.uint16, 4: np.uint32}.get(a.dtype.itemsize, np.uint64)
    return bool(np.array_equal(*(np.ascontiguousarray(x).reshape(-1).view(words) for x in (a, b))))


def overwrite(array, values) -> None:
    """Put the numpy ``values`` into ``array`` in place, whatever library it belongs to."""
    if hasattr(array, "layout"):  # torch
        import torch

        with torch.no_grad():
            array.copy_(torch.as_tensor(values))
    else:
        array[...] = values


def cloned(value):
    """The same nesting with every array copied, so that a later call cannot change it."""
    if is_array(value):
        return value.detach().clone() if hasattr(value, "layout") else value.copy()
    if isinstance(value, Mapping):
        twin = copy.copy(value)
        for key in value:
            twin[key] = cloned(value[key])
        return twin
    if isinstance(value, tuple | list):
        items = [cloned(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
