"""Bengali place names in English letters: a small encoder-decoder, trained as people first write it, and its score.

    names()                        (Bengali, English) pairs, cut into train, validation and held-out names
    Transliterator                 the model: a GRU reads the Bengali letters, another writes the English ones
    train_naive(names, seed=0)     the training that the project's learners make faster
    transliterate(model, ["ঢাকা"])  greedy decoding
    cer(predicted, references)     character error rate
    by_table("ঢাকা")               the baseline: letter by letter, no training

Names of one word only, so that no word of a held-out name is trained on. Where one Bengali name has several English
spellings in the data, the nearest one counts: all are in use. A letter here is a code point in NFC, so য় is two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from labkit import datasets
from labkit._letter_table import by_table
from labkit._place_names import BENGALI, EDGE, ENGLISH, PAD, Pair, letters, letters_in, letters_out, names, spellings
from labkit.language import nfc, t

__all__ = [
    "Pair", "Transliterator", "by_table", "cer", "edit_distance", "evaluate", "letters_in", "letters_out", "names",
    "spellings", "train_naive", "transliterate",
]  # fmt: skip

WIDTH, BATCH, LEARNING_RATE, EPOCHS = 128, 64, 8e-3, 4
LONGEST = 20  # letters written before we give up; no name of the data is longer


class Transliterator(nn.Module):
    """Encoder-decoder with attention. What it gives for a name does not depend on the filling behind the name.

    Bahdanau, Cho & Bengio 2015; the attention is the product of Luong, Pham & Manning 2015, scaled.
    """

    def __init__(self, width: int = WIDTH, dropout: float = 0.1):
        super().__init__()
        self.width = width
        self.letters_in = nn.Embedding(1 + len(BENGALI), width // 2)
        self.letters_out = nn.Embedding(2 + len(ENGLISH), width // 2)
        self.encoder = nn.GRU(width // 2, width // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(width // 2, width, batch_first=True)
        self.mix = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, 2 + len(ENGLISH))
        self.dropout = nn.Dropout(dropout)

    def encode(self, bengali: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(batch, letters) -> what was read (batch, letters, width), state of the decoder (1, batch, width)."""
        lengths = (bengali != PAD).sum(1).cpu()
        embedded = self.dropout(self.letters_in(bengali))  # (batch, letters, width / 2)
        packed = nn.utils.rnn.pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        read, last = self.encoder(packed)
        read, _ = nn.utils.rnn.pad_packed_sequence(read, batch_first=True, total_length=bengali.shape[1])
        return read, torch.cat([last[0], last[1]], dim=1)[None]

    def step(self, letter, state, read, filling) -> tuple[torch.Tensor, torch.Tensor]:
        """One letter on: ``letter`` (batch,), ``filling`` (batch, letters) -> logits (batch, 28), the new state."""
        here, state = self.decoder(self.dropout(self.letters_out(letter[:, None])), state)  # (batch, 1, width)
        score = (here @ read.transpose(1, 2)) / self.width**0.5  # (batch, 1, letters)
        weight = score.masked_fill(filling[:, None], float("-inf")).softmax(-1)
        both = torch.cat([here, weight @ read], dim=-1)  # (batch, 1, 2 width)
        return self.head(self.dropout(torch.tanh(self.mix(both))))[:, 0], state

    def forward(self, bengali: torch.Tensor, english: torch.Tensor) -> torch.Tensor:
        """Logits of the next letter after each of ``english`` (batch, n), the true one being given: (batch, n, 28)."""
        read, state = self.encode(bengali)
        filling, logits = bengali == PAD, []
        for k in range(english.shape[1]):
            now, state = self.step(english[:, k], state, read, filling)
            logits.append(now)
        return torch.stack(logits, dim=1)

    @torch.no_grad()
    def greedy(self, bengali: torch.Tensor) -> torch.Tensor:
        """The likeliest letter, one after the other: (batch, letters) -> (batch, LONGEST) numbers."""
        read, state = self.encode(bengali)
        filling, letter, written = bengali == PAD, torch.full_like(bengali[:, 0], EDGE), []
        for _ in range(LONGEST):
            logits, state = self.step(letter, state, read, filling)
            letter = logits[:, EDGE:].argmax(-1) + EDGE
            written.append(letter)
        return torch.stack(written, dim=1)


def train_naive(
    names: datasets.Split, *, seed: int = 0, epochs: int = EPOCHS, width: int = WIDTH,
    say: Callable[[str], None] | None = None,
) -> Transliterator:
    """Train a new Transliterator on ``names.train``, as people first write it. ``say`` hears the loss of each epoch.

    A DataLoader that looks letters up batch by batch, names in any order and filled up to the longest of their batch,
    packing, a Python loop over the letters, AdamW as torch gives it, float32. Nothing in it is slow on purpose.
    """
    from labkit import hardware

    torch.manual_seed(seed)
    device = hardware.device()
    model = Transliterator(width).to(device)
    loader = torch.utils.data.DataLoader(names.train, batch_size=BATCH, shuffle=True, collate_fn=_batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=epochs * len(loader))
    for epoch in range(epochs):
        total = 0.0
        for bengali, english in loader:
            bengali, english = bengali.to(device), english.to(device)
            logits = model(bengali, english[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), english[:, 1:].flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        if say:
            say(t("epoch {epoch}: loss {loss:.3f}", epoch=epoch + 1, loss=total / len(loader)))
    return model.eval()


def _batch(pairs: Sequence[Pair]) -> tuple[torch.Tensor, torch.Tensor]:
    bn, en = zip(*pairs, strict=True)
    return letters_in(bn), letters_out(en)


def transliterate(model: Transliterator, words: Iterable[str]) -> list[str]:
    """Each name in small English letters; a name of several words is done word by word. The model is left in eval mode.

    Raises ValueError for a letter that is not Bengali.
    """
    split = [nfc(name).split() for name in words]
    todo = list(dict.fromkeys(word for name in split for word in name))
    if not todo:
        return [""] * len(split)
    done = dict(zip(todo, written(model, todo), strict=True))
    return [" ".join(done[word] for word in name) for name in split]


def written(model: Transliterator, words: Sequence[str]) -> list[str]:
    """As ``transliterate()``, for words of one piece whose letters are taken as they are."""
    device = next(model.parameters()).device
    return [letters(row) for row in model.eval().greedy(letters_in(words).to(device)).tolist()]


def cer(predicted: Sequence[str], references: Sequence[str | tuple[str, ...]]) -> float:
    """Character error rate: letters to insert, delete or replace / letters of the references, over all names together.

    A reference may be a tuple of accepted spellings; the nearest counts. It can exceed 1.

    >>> cer(["kitten", "dhaka"], ["sitting", "dhaka"])
    0.25
    """
    if len(predicted) != len(references) or not predicted:
        raise ValueError(t("cer() compares each name with its reference: {got} names, {want} references.",
                           got=len(predicted), want=len(references)))
    wrong = letters = 0
    for word, accepted in zip(predicted, references, strict=True):
        accepted = (accepted,) if isinstance(accepted, str) else accepted
        distance, length = min((edit_distance(word, one), len(one)) for one in accepted)
        wrong, letters = wrong + distance, letters + length
    return wrong / letters


def edit_distance(a: str, b: str) -> int:
    """How many letters must be inserted, deleted or replaced to make ``b`` of ``a`` (Levenshtein 1966)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (x != y)))
    return row[-1]


def evaluate(model: Transliterator, pairs: Iterable[Pair]) -> float:
    """``cer()`` of what the model makes of the Bengali names of ``pairs``."""
    wanted = spellings(pairs)
    return cer(written(model, list(wanted)), list(wanted.values()))
