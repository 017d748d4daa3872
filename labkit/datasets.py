"""The real data of the labs: small files that travel with the repository and the wheel, checked before use.

    places()   Bangladeshi places with English and Bengali names
    digits()   1,797 handwritten digits of 8 x 8 pixels
    messages()   396 short messages to a shop, in English, each with what it is about
    voice_detector()   a TorchScript model that others ship: is somebody speaking?
    split()    the same train, validation and test rows for everybody

``data/README.md`` says where each file comes from. Nothing is downloaded, no array is unpickled.
"""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from labkit import _repairs
from labkit.language import nfc, t

_CHECKSUMS = "SHA256SUMS"
LEVELS = ("division", "district", "upazila", "union", "post office")


class DataError(RuntimeError):
    """A data file is missing, or is not the file that labkit was tested with."""


class Place(NamedTuple):
    """One place. ``bn`` is in NFC; ``division`` and ``district`` are English names, empty above their level."""

    level: str
    en: str
    bn: str
    division: str
    district: str
    postcode: str


class Digits(NamedTuple):
    """``images``: (1797, 8, 8) uint8 from 0 to 16; ``labels``: (1797,) uint8 from 0 to 9."""

    images: object
    labels: object


class Message(NamedTuple):
    """One message to a shop; ``part`` is "train", "val" or "test" once and for all, ``label`` what it is about."""

    part: str
    label: str
    text: str


class Split(NamedTuple):
    """Three lists that share no key; each keeps the order of the rows it was cut from."""

    train: list
    val: list
    test: list


def _folder() -> Path:
    """``labkit/data`` in an installed wheel, ``data`` beside the package in a checkout."""
    package = Path(__file__).parent
    inside = package / "data"
    return inside if inside.is_dir() else package.parent / "data"


def _repair(name: str) -> str:
    """The command that brings a data file back: from git in a checkout, else by installing labkit anew."""
    return f"git checkout -- data/{name}" if (_folder().parent / ".git").exists() else _repairs.labkit()


def _checksums() -> dict[str, str]:
    """File name -> SHA-256, from the list that ``sha256sum`` writes and reads."""
    try:
        lines = (_folder() / _CHECKSUMS).read_text(encoding="utf-8").splitlines()
    except OSError:
        raise DataError(_missing(_CHECKSUMS)) from None
    return {name.lstrip(" *"): digest for digest, _, name in (line.partition(" ") for line in lines if line.strip())}


def _missing(name: str) -> str:
    return t(
        "The data file {name} is not there. Probably only a part of labkit was copied. Nothing was loaded. "
        "Bring it back, then run this cell again: {command}",
        name=name,
        command=_repair(name),
    )


def read(name: str) -> bytes:
    """The bytes of one file of ``data/``, whose checksum holds.

    Raises DataError when the file is missing or changed, ValueError when no such file belongs to labkit.
    """
    expected = _checksums()
    if name not in expected:
        known = ", ".join(expected)
        raise ValueError(t("No data file is called {name!r}. There are: {names}.", name=name, names=known))
    try:
        content = (_folder() / name).read_bytes()
    except OSError:
        raise DataError(_missing(name)) from None
    if hashlib.sha256(content).hexdigest() != expected[name]:
        raise DataError(
            t(
                "The data file {name} is not as labkit knows it: its checksum differs. Probably a download broke off, "
                "or a program saved the file anew. Nothing was loaded. Bring it back, then run this cell again: "
                "{command}",
                name=name,
                command=_repair(name),
            )
        )
    return content


def path(name: str) -> Path:
    """Where a file of ``data/`` lies, for libraries that want a path; checked as in ``read()``."""
    read(name)
    return _folder() / name


@functools.cache
def _all_places() -> tuple[Place, ...]:
    lines = nfc(read("places.tsv").decode()).splitlines()
    return tuple(Place(*line.split("\t")) for line in lines[1:])


def places(*levels: str) -> list[Place]:
    """Places of Bangladesh, all of them or those of some levels, in the file's order.

    >>> places("division")[0].bn
    'চট্টগ্রাম'
    """
    wrong = [level for level in levels if level not in LEVELS]
    if wrong:
        known = ", ".join(LEVELS)
        raise ValueError(t("No level is called {level!r}. There are: {levels}.", level=wrong[0], levels=known))
    return [place for place in _all_places() if not levels or place.level in levels]


def digits() -> Digits:
    """scikit-learn's handwritten digits as two NumPy arrays, fresh at each call."""
    import numpy as np

    with np.load(io.BytesIO(read("digits.npz")), allow_pickle=False) as arrays:
        return Digits(arrays["images"], arrays["labels"])


def messages() -> list[Message]:
    """Messages to an online shop in Bangladesh: of six labels 36 train, 10 val and 20 test each.

    >>> sorted({message.label for message in messages()})
    ['account', 'delivery', 'order', 'payment', 'product', 'return']
    """
    return [Message(*line.split("\t")) for line in read("messages.tsv").decode().splitlines()[1:]]


def voice_detector():
    """Silero's voice activity detector, a TorchScript module in eval mode on the CPU, fresh at each call.

    ``detector(chunk, 16000)`` takes float32 ``(batch, 512)``, 32 ms of sound from -1 to 1, and gives ``(batch, 1)``,
    the probability of speech; with 8000 it takes 256 samples. It remembers what it heard: ``reset_states()`` between
    sounds.
    """
    import warnings

    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's note that TorchScript is deprecated
        return torch.jit.load(path("silero_vad.jit"), map_location="cpu").eval()


def _key_text(value) -> str:
    """Text that is equal for equal keys in every process; raises TypeError where repr() cannot promise that."""
    if isinstance(value, tuple):
        return "(" + ",".join(_key_text(part) for part in value) + ")"
    if not isinstance(value, str | int | float | bytes):
        raise TypeError(
            t(
                "split() tells rows apart by their value, but a {kind} has none it can trust. Give a key, for example "
                "split(rows, key=lambda row: row.en), or cut the row numbers: split(len(rows)).",
                kind=type(value).__name__,
            )
        )
    return nfc(repr(value))


def split(
    rows: Sequence | int, *, val: float = 0.1, test: float = 0.1, seed: int = 0, key: Callable | None = None
) -> Split:
    """Cut rows into train, validation and test parts, the same on every machine and Python.

    ``rows`` is a sequence, or a number n, which stands for the indices 0 to n - 1. Rows with the same ``key(row)``
    (default: the row itself) land in the same part, so a name that occurs twice is never trained on and tested on.
    Keys are ordered by a hash of ``seed`` and key, not by a random generator: those change from release to release.

    >>> [len(part) for part in split(100)]
    [80, 10, 10]
    """
    if val < 0 or test < 0 or val + test >= 1:
        raise ValueError(
            t("val and test are shares: 0 or more each, under 1 together; not {val} and {test}.", val=val, test=test)
        )
    rows = range(rows) if isinstance(rows, int) else rows
    groups: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(_key_text(key(row) if key else row), []).append(index)
    room = {"test": round(test * len(rows)), "val": round(val * len(rows)), "train": len(rows)}
    parts: dict[str, list[int]] = {name: [] for name in Split._fields}
    for text in sorted(groups, key=lambda text: hashlib.sha256(f"{seed}:{text}".encode()).digest()):
        group = groups[text]
        parts[next(name for name in room if len(parts[name]) + len(group) <= room[name])] += group
    return Split(*([rows[i] for i in sorted(parts[name])] for name in Split._fields))
