"""Values between a notebook and the processes it launches: ``report()`` hands them back, ``value()`` takes them in."""

from __future__ import annotations

import json
import os
from pathlib import Path

from labkit import _run_files
from labkit.language import t

_MOST_NUMBERS = 1_000_000
_NOT_GIVEN = object()


def report(**values) -> None:
    """Hand values back from a rank to the notebook, one dict a rank; a later call adds to the earlier ones.

    Takes numbers, text, None, lists, tuples and dicts of them, NumPy arrays and scalars, and tensors (as lists, or as
    one number when they have no dimension; a sharded tensor must be gathered first). Raises TypeError for anything
    else, ValueError for more than a million numbers. Outside a launched process (plain ``torchrun ddp.py`` on real
    machines) it prints the values.
    """
    new = {name: plain(value, name) for name, value in values.items()}
    if not _run_files.inside_run():
        print(t("rank {rank} reports {values}", rank=os.environ.get("RANK", "0"), values=new), flush=True)
        return
    path = _run_files.mine("report")
    _run_files.write(path, _run_files.read(path, {}) | new)


def value(name: str, default=_NOT_GIVEN):
    """A value the notebook hands to its ranks: ``%%torchrun -n 2 --set lr=0.1`` there, ``value("lr")`` here.

    ``default`` is used where the notebook handed over nothing, as under plain ``torchrun``; without one, KeyError.
    """
    given = {}
    if _run_files.inside_run():
        given = _run_files.read(Path(os.environ[_run_files.FOLDER]) / "values", {})
    if name in given:
        return given[name]
    if default is not _NOT_GIVEN:
        return default
    raise KeyError(
        t(
            "No value {name} was handed to this process. Add --set {name}=… to the first line of the cell ({magic} …), "
            "or give a default: lab.launch.value({quoted}, 0.1).",
            name=name,
            magic="%%mxnet_ps" if "DMLC_ROLE" in os.environ else "%%torchrun",
            quoted=repr(name),
        )
    )


def plain(value, name: str):
    """``value`` as JSON can carry it, or an error that names ``name``.

    >>> plain((1, 2.5), "x")
    [1, 2.5]
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value.item() if hasattr(value, "item") else value  # numpy.float64 is a float
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(
                t(
                    "{name} is a dict with keys that are not text. Only text keys survive the way to the notebook:"
                    " write str(key).",
                    name=name,
                )
            )
        return {key: plain(item, name) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, name) for item in value]
    return plain(_array_as_lists(value, name), name)


def _array_as_lists(value, name: str):
    for step in ("detach", "cpu", "asnumpy"):  # torch needs the first two, MXNet the last
        if callable(getattr(value, step, None)):
            value = getattr(value, step)()
    if hasattr(value, "to_local") or not callable(getattr(value, "tolist", None)):
        raise TypeError(
            t(
                "{name} is a {type}, which cannot travel from a rank to the notebook. Numbers, text, lists, dicts and"
                " ordinary tensors can: hand over loss.item() or tensor.full_tensor(), or save the object with"
                " torch.save and hand over the file's name.",
                name=name,
                type=type(value).__name__,
            )
        )
    count = 1
    for length in getattr(value, "shape", ()):
        count *= int(length)
    if count > _MOST_NUMBERS:
        raise ValueError(
            t(
                "{name} has {count} numbers, too many for a report. Save it with torch.save and hand over the file's"
                " name, or hand over a summary such as tensor.norm().item().",
                name=name,
                count=count,
            )
        )
    return value.tolist()


def jsonable(value) -> bool:
    """Can this value travel?"""
    try:
        json.dumps(plain(value, ""))
    except (TypeError, ValueError, RecursionError):
        return False
    return True
