"""Batches of names for the GPT of lesson 11: padded to one length, name by name, or packed tightly into rows.

Both give the model the same names and the same loss; only the number of places that hold no letter differs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from labkit.lessons.name_gpt import END, IGNORED, Names, names

ROW = 32  # tokens of a packed row: a little more than the longest name


class Batch(NamedTuple):
    """What ``NameGPT`` is called with; ``places`` and ``allowed`` are None where each row is one name."""

    tokens: torch.Tensor  # (rows, seq)
    targets: torch.Tensor  # (rows, seq)
    places: torch.Tensor | None = None  # (rows, seq)
    allowed: torch.Tensor | None = None  # (rows, 1, seq, seq)

    def to(self, device) -> Batch:
        return Batch(*(None if part is None else part.to(device) for part in self))


class NameDataset(Dataset):
    """One name at a time, as tutorials write it: every name as long as the longest."""

    def __init__(self, some: Sequence[str], known: Names):
        self.some, self.known = some, known

    def __len__(self):
        return len(self.some)

    def __getitem__(self, index):
        letters = torch.tensor(self.known.encode(self.some[index]))
        tokens = torch.full((self.known.length,), END)
        targets = torch.full((self.known.length,), IGNORED)
        tokens[1 : len(letters) + 1] = letters
        targets[: len(letters)] = letters
        targets[len(letters)] = END
        return tokens, targets


class Order(Sampler):
    """The training names in a new order each epoch, which depends on ``seed`` and the epoch alone."""

    def __init__(self, count: int, seed: int):
        self.count, self.seed, self.epoch = count, seed, 0

    def __len__(self):
        return self.count

    def __iter__(self):
        generator = torch.Generator().manual_seed(1000 * self.seed + self.epoch)
        return iter(torch.randperm(self.count, generator=generator).tolist())


def plan(batch: int, seed: int, *, start: int = 0) -> Iterator[list[int]]:
    """The numbers of the names in each step's batch, from step ``start`` on, without end; no incomplete batches."""
    order = Order(len(names().train), seed)
    per_epoch = len(order) // batch
    while True:
        order.epoch, first = divmod(start, per_epoch)
        numbers = list(order)
        for step in range(first, per_epoch):
            yield numbers[step * batch : (step + 1) * batch]
        start = (order.epoch + 1) * per_epoch


def steps(*, until: int, start: int = 0, batch: int = 64, seed: int = 0) -> Iterator[list[int]]:
    """The batches of the steps from ``start`` up to ``until``."""
    return itertools.islice(plan(batch, seed, start=start), max(0, until - start))


def loaded(batch: int, seed: int) -> Iterator[Batch]:
    """The same batches by way of a ``DataLoader`` with its default settings."""
    dataset = NameDataset(names().train, names())
    order = Order(len(dataset), seed)
    while True:
        for tokens, targets in DataLoader(dataset, batch_size=batch, sampler=order, drop_last=True):
            yield Batch(tokens, targets)
        order.epoch += 1


@functools.cache
def _padded(part: str) -> tuple[torch.Tensor, torch.Tensor]:
    dataset = NameDataset(getattr(names(), part), names())
    tokens, targets = zip(*(dataset[index] for index in range(len(dataset))), strict=True)
    return torch.stack(tokens), torch.stack(targets)  # (names, length) each


def padded(numbers: Sequence[int], part: str = "train") -> Batch:
    """These names from one tensor that was made once, each row one name."""
    index = torch.as_tensor(numbers)
    return Batch(*(tensor[index] for tensor in _padded(part)))


def rows_of(lengths: Sequence[int], room: int = ROW) -> list[int]:
    """The row of each piece when the longest go first, each into the first row where it fits (first fit decreasing).

    >>> rows_of([3, 9, 6], 10)
    [1, 0, 1]
    """
    free: list[int] = []
    row_of = [0] * len(lengths)
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        need = lengths[index]
        row = next((row for row, left in enumerate(free) if left >= need), len(free))
        if row == len(free):
            free.append(room)
        free[row] -= need
        row_of[index] = row
    return row_of


@functools.cache
def _flat(part: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All names of ``part`` end to end: tokens, targets; and each name's first place and length."""
    encoded = [names().encode(name) for name in getattr(names(), part)]
    lengths = np.array([len(letters) + 1 for letters in encoded])
    tokens = np.concatenate([[END, *letters] for letters in encoded])
    targets = np.concatenate([[*letters, END] for letters in encoded])
    return tokens, targets, np.cumsum(lengths) - lengths, lengths


def tokens_in(numbers: Sequence[int], part: str = "train") -> int:
    """Letters of these names, an end counted for each: what the loss is a mean over."""
    return int(_flat(part)[3][list(numbers)].sum())


def packed(numbers: Sequence[int], part: str = "train") -> Batch:
    """These names, several to a row of ``ROW`` tokens; a token may look only at earlier ones of its own name."""
    all_tokens, all_targets, first, length = _flat(part)
    numbers = np.asarray(numbers)
    lengths = length[numbers]
    row_of = np.array(rows_of(lengths.tolist()))
    rows = int(row_of.max()) + 1
    by_row = np.argsort(row_of, kind="stable")  # the names in the order in which they stand
    ends = np.cumsum(lengths[by_row])
    sums = np.concatenate([[0], ends])[np.searchsorted(row_of[by_row], np.arange(rows))]  # tokens before each row
    start = row_of[by_row] * ROW + (ends - lengths[by_row] - sums[row_of[by_row]])

    counts = lengths[by_row]
    within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)  # each token's place in its name
    there, here = np.repeat(start, counts) + within, np.repeat(first[numbers[by_row]], counts) + within
    flat = np.zeros((4, rows * ROW), dtype=np.int64)
    flat[1], flat[3] = IGNORED, -1
    flat[:3, there] = all_tokens[here], all_targets[here], within
    flat[3, there] = np.repeat(np.arange(len(numbers)), counts)
    tokens, targets, places, owner = torch.from_numpy(flat).view(4, rows, ROW)
    own = owner[:, :, None] == owner[:, None, :]  # empty places see each other: their rows must not be all False
    return Batch(tokens, targets, places, (own & _past()).unsqueeze(1))


@functools.cache
def _past() -> torch.Tensor:
    return torch.tril(torch.ones(ROW, ROW, dtype=torch.bool))
