"""The stand-in for a pretrained encoder: a small one that learns, without any labels, to guess hidden words.

It reads the 276 messages that are not for the test, for some seconds. That is BERT's own way of pretraining (Devlin et
al. 2019), on a ten-millionth of the text: it shows how the work goes, and cannot know much.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from labkit import datasets
from labkit.lessons.encoder import PADDING, Encoder, Sizes

UNKNOWN, HIDDEN, FIRST = 1, 2, 3  # token numbers; real words follow
LONGEST, EPOCHS, SHARE = 24, 20, 0.25


def words(text: str) -> list[str]:
    """Small letters and digits, cut at everything else."""
    return re.findall(r"[a-z]+|[0-9]+", text.lower())


def vocabulary(texts: Sequence[str]) -> dict[str, int]:
    """Word -> token number, for words that occur at least twice."""
    counts = Counter(word for text in texts for word in words(text))
    return {word: k for k, word in enumerate(sorted(w for w, n in counts.items() if n > 1), FIRST)}


def reader(numbers: dict[str, int]) -> Callable[[Sequence[str]], torch.Tensor]:
    """What turns texts into (texts, LONGEST) token numbers."""

    def read(texts: Sequence[str]) -> torch.Tensor:
        ids = torch.full((len(texts), LONGEST), PADDING)
        for row, text in zip(ids, texts, strict=True):
            found = [numbers.get(word, UNKNOWN) for word in words(text)][:LONGEST] or [UNKNOWN]
            row[: len(found)] = torch.tensor(found)
        return ids

    return read


def word_list() -> Callable[[Sequence[str]], torch.Tensor]:
    """A reader that only says which words of the training messages occur: texts -> (texts, words) float32.

    A rare word weighs more (tf-idf, Sparck Jones 1972); each row has length 10, as easy to learn from as an encoder's.
    """
    texts = [message.text for message in datasets.messages() if message.part == "train"]
    known = sorted({word for text in texts for word in words(text)})
    column = {word: k for k, word in enumerate(known)}

    def occur(texts: Sequence[str]) -> torch.Tensor:
        x = torch.zeros(len(texts), len(known))
        for row, text in zip(x, texts, strict=True):
            row[[column[word] for word in words(text) if word in column]] = 1
        return x

    rare = torch.log(len(texts) / occur(texts).sum(0))
    return lambda texts: 10 * F.normalize(occur(texts) * rare, dim=1)


def pretrain(epochs: int = EPOCHS, seed: int = 0) -> tuple[Encoder, Callable]:
    """A small encoder after guessing hidden words, and its reader. A few seconds; equal for equal seeds."""
    texts = [message.text for message in datasets.messages() if message.part != "test"]
    numbers = vocabulary(texts)
    read = reader(numbers)
    ids = read(texts)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        encoder = Encoder(Sizes(FIRST + len(numbers), 64, 2, 4, 256, LONGEST))
        optimizer = torch.optim.AdamW(encoder.parameters(), lr=3e-3, weight_decay=0.01)
        for epoch in range(epochs):
            optimizer.param_groups[0]["lr"] = 3e-3 * (1 - epoch / epochs)
            for rows in torch.randperm(len(ids)).split(64):
                loss = guessing_loss(encoder, ids[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return encoder, read


def guessing_loss(encoder: Encoder, ids: torch.Tensor) -> torch.Tensor:
    """Hide a quarter of the words and guess each from the rest: cross-entropy over the vocabulary."""
    hidden = (torch.rand(ids.shape) < SHARE) & (ids >= FIRST)
    out = encoder.tokens(ids.masked_fill(hidden, HIDDEN))[hidden]  # (hidden words, width)
    return F.cross_entropy(out @ encoder.words.weight.T, ids[hidden])
