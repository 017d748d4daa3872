"""Whether two results agree within the tolerance of their dtype, and where they differ most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from labkit._leaves import is_array, leaves, to_numpy
from labkit.language import t

# dtype -> (share of the element, share of the largest element). Wider than torch.testing's, which compares one
# operation: a fused or compiled network adds in another order. Narrow enough to tell tanh-GELU from erf-GELU.
TOLERANCES = {
    "float64": (1e-9, 1e-10), "complex128": (1e-9, 1e-10),
    "float32": (1e-4, 2e-5), "complex64": (1e-4, 2e-5),
    "tf32": (1e-2, 2e-3),
    "float16": (1e-2, 2e-3),
    "bfloat16": (3e-2, 1e-2),
}
GRADIENT_FACTOR = 10  # a gradient sums over batch and layers
_CHUNK = 2**20  # elements compared at once: stays in the cache, and a big result needs no big temporary


@dataclass(frozen=True)
class Difference:
    """The first output that does not agree: where it is, how far off, what was allowed there."""

    where: str
    text: str


def answer(result, gradients=()) -> dict:
    """What to compare of one call: ``{label: (dtype, numpy copy or plain value)}``, outputs and then gradients."""
    labelled = {t("output{path}", path=path): kept(leaf) for path, leaf in leaves(result)}
    labelled.update({t("gradient of {name}", name=name): kept(gradient) for name, gradient in gradients})
    return labelled


def comparable(labelled: dict) -> bool:
    """Whether there is anything to compare: functions may return nothing and write elsewhere."""
    return any(dtype != "opaque" and value is not None for dtype, value in labelled.values())


def first_difference(expected: dict, got: dict, *, gradients: int = 0, tolerance: float | None = None,
                     rooms: Mapping[str, float] | None = None) -> Difference | None:
    """Compare two answers, label by label. The last ``gradients`` labels get ten times the room, and where one of them
    vanishes beside the others, that of rounding; ``rooms``: what more a label may be off."""
    if list(expected) != list(got):
        missing = [label for label in expected if label not in got] or [label for label in got if label not in expected]
        missing = missing or list(expected)
        return Difference(missing[0], t("is there in one of the two only"))
    plain = len(expected) - gradients
    # Some gradients are zero by mathematics, as of a bias in front of a batch-norm. What is computed for them is the
    # rounding of a sum whose terms do not vanish: the second tolerance is a share of the largest gradient of all.
    largest = max((_largest(value) for _, value in list(expected.values())[plain:]), default=0.0)
    for position, label in enumerate(expected):
        is_gradient = position >= plain
        noise = largest * TOLERANCES.get(expected[label][0], (0, 0))[1] if is_gradient else 0.0
        noise = max(noise, (rooms or {}).get(label, 0.0))
        text = _differ(*expected[label], *got[label], GRADIENT_FACTOR if is_gradient else 1, tolerance, noise)
        if text:
            return Difference(label, text)
    return None


def furthest(expected: dict, got: dict) -> dict[str, float]:
    """Label -> largest absolute difference, of the labels that hold arrays of one shape in both."""
    import numpy as np

    found = {}
    for label in expected.keys() & got.keys():
        (_, a), (_, b) = expected[label], got[label]
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.shape == b.shape and a.dtype.kind in "fc":
            off = np.abs(a - b)
            found[label] = float(off[np.isfinite(off)].max(initial=0.0))
    return found


def kept(leaf) -> tuple:
    """Dtype class and a copy of one leaf, to be compared later."""
    if is_array(leaf):
        return _dtype_class(leaf), to_numpy(leaf)
    if leaf is None or isinstance(leaf, bool | int | str | bytes | float | complex):
        return "float32" if isinstance(leaf, float | complex) else "exact", leaf
    return "opaque", None


def _dtype_class(array) -> str:
    name = str(getattr(array.dtype, "__name__", array.dtype)).replace("torch.", "")
    if name == "float32" and str(getattr(array, "device", "")).startswith("cuda"):
        from labkit._torch_private import allows_tf32

        if allows_tf32():
            return "tf32"  # convolutions use 10-bit mantissas by default on recent GPUs
    return name if name in TOLERANCES else "exact"


def _largest(value) -> float:
    """The largest finite magnitude in one kept leaf; 0 for what is no number."""
    import numpy as np

    array = np.asarray(value) if value is not None else np.zeros(0)
    finite = array[np.isfinite(array)] if array.dtype.kind in "fciub" else np.zeros(0)
    return float(np.abs(finite).max()) if finite.size else 0.0


def _differ(dtype, expected, other_dtype, got, factor: float, tolerance: float | None, noise: float) -> str | None:
    """Say how two kept leaves differ, or None when they agree; what is within ``noise`` does."""
    import numpy as np

    if (expected is None) != (got is None):
        return t("is there in one of the two only")
    if expected is None:
        return None
    expected, got = np.asarray(expected), np.asarray(got)
    if expected.shape != got.shape:
        return t("has shape {got} instead of {expected}", got=tuple(got.shape), expected=tuple(expected.shape))
    if expected.dtype.kind not in "fciub" or got.dtype.kind not in "fciub":
        return None if np.array_equal(expected, got) else t("is {got!r} instead of {expected!r}", got=got.item(),
                                                            expected=expected.item())
    if expected.size == 0:
        return None
    loose = max(TOLERANCES.get(dtype, (0, 0)), TOLERANCES.get(other_dtype, (0, 0)))
    relative, scaled = (tolerance, tolerance / 5) if tolerance is not None else (factor * loose[0], factor * loose[1])
    return _worst(expected.reshape(-1), got.reshape(-1), expected.shape, relative,
                  max(scaled * _largest(expected), noise))


def _worst(expected, got, shape, relative: float, room: float) -> str | None:
    """Describe the element furthest outside its tolerance, ``relative`` of itself and ``room``, if any is."""
    import numpy as np

    wide = complex if "c" in (expected.dtype.kind, got.dtype.kind) else float
    worst, place, wrong = 0.0, -1, 0
    for start in range(0, expected.size, _CHUNK):
        a, b = expected[start:start + _CHUNK].astype(wide), got[start:start + _CHUNK].astype(wide)
        with np.errstate(invalid="ignore"):
            off = np.abs(a - b)
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            beyond = ~same & ~(off <= relative * np.abs(a) + room)
        if beyond.any():
            wrong += int(beyond.sum())
            off = np.where(beyond, np.where(np.isnan(off), math.inf, off), -1)
            if place < 0 or off.max() > worst:
                worst, place = float(off.max()), start + int(off.argmax())
    if place < 0:
        return None
    index = tuple(int(i) for i in np.unravel_index(place, shape)) if shape else ()
    return t("is off by up to {off} at {index}: {got} instead of {expected}, where {allowed} is allowed; {wrong} of "
             "{total} values are outside", off=f"{worst:.2g}", index=list(index), got=f"{got[place]:.6g}",
             expected=f"{expected[place]:.6g}", allowed=f"{relative * abs(expected[place]) + room:.2g}",
             wrong=wrong, total=expected.size)
