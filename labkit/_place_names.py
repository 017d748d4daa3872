"""Place names in two scripts, as pairs of words, and the numbers that a model sees instead of letters."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from labkit import datasets
from labkit.language import t

LEVELS = ("division", "district", "upazila", "union")  # some post offices were translated, not transliterated
BENGALI = "ঁংঃঅআইঈউঊঋএঐওঔকখগঘঙচছজঝঞটঠডঢণতথদধনপফবভমযরলশষসহ়ািীুূৃেৈোৌ্ৎ"  # letter k has number k + 1
ENGLISH = "abcdefghijklmnopqrstuvwxyz"  # letter k has number k + 2
PAD, EDGE = 0, 1  # filling after the end; start and end of an English name
_NUMBER_IN = {letter: number for number, letter in enumerate(BENGALI, 1)}
_NUMBER_OUT = {letter: number for number, letter in enumerate(ENGLISH, 2)}
# Spelled differently, said alike: such names belong into the same part of the data.
_SAID_ALIKE = str.maketrans({"ী": "ি", "ূ": "ু", "ণ": "ন", "শ": "স", "ষ": "স", "ঙ": "ং", "য": "জ", "ঁ": "", "়": ""})


class Pair(NamedTuple):
    """A place's name: ``bn`` in NFC, ``en`` in small letters a to z."""

    bn: str
    en: str


@functools.cache
def _pairs() -> tuple[Pair, ...]:
    found = (Pair(place.bn, place.en.lower()) for place in datasets.places(*LEVELS))
    return tuple(dict.fromkeys(p for p in found if set(p.bn) <= set(BENGALI) and re.fullmatch("[a-z]+", p.en)))


def names(*, seed: int = 0, train: int | None = None) -> datasets.Split:
    """Pairs for training, validation and the last test, 80 : 10 : 10, the same on every machine for one ``seed``.

    Equal names, also those that only sound equal (বাড়ি, বাড়ী), are in one part. ``train`` keeps that many of the training
    pairs, spread over all districts, for a quick look.
    """
    parts = datasets.split(_pairs(), seed=seed, key=lambda pair: pair.bn.translate(_SAID_ALIKE))
    if train is None:
        return parts
    return parts._replace(train=parts.train[:: max(1, len(parts.train) // train)][:train])


def letters_in(words: Sequence[str]) -> torch.Tensor:
    """Numbers of Bengali letters: (words, longest of them) int64, filled with PAD.

    Raises ValueError for a letter that is not in ``BENGALI``.
    """
    return _numbers([[_number_in(letter) for letter in word] for word in words])


def letters_out(words: Sequence[str]) -> torch.Tensor:
    """Numbers of English letters between two EDGEs: (words, longest of them) int64, filled with PAD."""
    return _numbers([[EDGE, *(_NUMBER_OUT[letter] for letter in word), EDGE] for word in words])


def _number_in(letter: str) -> int:
    if letter not in _NUMBER_IN:
        raise ValueError(t("The letter {letter!r} does not occur in Bengali names, so the model has no number for it. "
                           "Give a name in Bengali letters, without digits and brackets.", letter=letter))
    return _NUMBER_IN[letter]


def _numbers(rows: list[list[int]]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def letters(numbers: Iterable[int]) -> str:
    """The English word that these numbers stand for, up to the first EDGE."""
    word = ""
    for number in numbers:
        if number == EDGE:
            break
        word += ENGLISH[number - 2]
    return word


def spellings(pairs: Iterable[Pair]) -> dict[str, tuple[str, ...]]:
    """Bengali name -> its English spellings, in the order of the pairs."""
    found: dict[str, tuple[str, ...]] = {}
    for bn, en in pairs:
        found[bn] = (*found.get(bn, ()), en)
    return found
