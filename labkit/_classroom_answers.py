"""Take results of a learner's function for what they are: a number that claims to equal everything becomes a number."""

from __future__ import annotations


def honest() -> None:
    """Make every check see plain values from now on. Call once, before any of the learner's code runs."""
    from labkit.tasks import Task

    ask = Task.call

    def call(self, *args, **kwargs):
        return plain(ask(self, *args, **kwargs))

    Task.call = call


def plain(value, depth: int = 6):
    """``value`` without the learner's own subclasses of numbers, texts, containers and tensors.

    >>> class Any(int):
    ...     __eq__ = lambda self, other: True
    >>> plain(Any(3)) == 4
    False
    """
    kind = type(value)
    if kind in (bool, int, float, complex, str, bytes, type(None)):
        return value
    for base, bare in ((int, int.__pos__), (float, float.__pos__), (str, str.__str__), (bytes, bytes.__bytes__)):
        if isinstance(value, base):
            return bare(value)
    if depth and isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        base = list if isinstance(value, list) else tuple
        parts = [plain(item, depth - 1) for item in base.__iter__(value)]
        same = kind is base and all(a is b for a, b in zip(parts, base.__iter__(value), strict=True))
        return value if same else base(parts)
    if depth and isinstance(value, dict):
        parts = {plain(k, depth - 1): plain(v, depth - 1) for k, v in dict.items(value)}
        return value if kind is dict and all(value[k] is v for k, v in parts.items()) else parts
    return _plain_tensor(value)


def _plain_tensor(value):
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    known = type(value).__module__.split(".")[0] == "torch"
    return value if known else torch.Tensor.as_subclass(value, torch.Tensor)
