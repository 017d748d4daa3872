"""A GPT that invents Bengali place names: the letters, the model as people write it, and what it makes up.

The model has two ways to compute attention, ``"written out"`` and ``"sdpa"``, and two for GELU, with the same weights.
It takes names padded to one length as well as several names packed into a row (`labkit.lessons.name_batches`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from labkit import datasets
from labkit._model_parts import gelu, gelu_by_sigmoid
from labkit._torch_private import mark_dynamic

END = 0  # the token before the first and after the last letter
IGNORED = -100  # targets that `cross_entropy` leaves out


@dataclass(frozen=True)
class Names:
    """Every Bangladeshi place name once, cut into three parts, and its letters as numbers from 1 on."""

    train: tuple[str, ...]
    val: tuple[str, ...]
    test: tuple[str, ...]
    letters: str

    @property
    def vocabulary(self) -> int:
        """Letters, and the token that stands for "end"."""
        return len(self.letters) + 1

    @functools.cached_property
    def length(self) -> int:
        """Tokens of the longest name, its end included."""
        return max(map(len, self.train + self.val + self.test)) + 1

    @functools.cached_property
    def number_of(self) -> dict[str, int]:
        return {letter: number for number, letter in enumerate(self.letters, 1)}

    def encode(self, name: str) -> list[int]:
        """The letters (code points) of ``name`` as numbers, without an end."""
        return [self.number_of[letter] for letter in name]

    def decode(self, numbers) -> str:
        return "".join(self.letters[int(number) - 1] for number in numbers)


@functools.cache
def names() -> Names:
    """The names of ``data/places.tsv``, the same split on every machine; a name never stands in two parts."""
    every = sorted({place.bn for place in datasets.places()})
    parts = (tuple(part) for part in datasets.split(every))
    return Names(*parts, letters="".join(sorted(set("".join(every)))))


@dataclass(frozen=True)
class Size:
    """How large a model is."""

    width: int
    heads: int
    depth: int
    batch: int = 64
    rate: float = 1e-3


SIZES = {"short": Size(64, 4, 2, rate=3e-3), "long": Size(128, 4, 6, batch=128, rate=1e-4)}


class Block(nn.Module):
    """Causal attention and a feed-forward net on ``(rows, seq, width)``, one operation after another."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attention, self.fused_gelu = "written out", False
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x, allowed):
        rows, seq, width = x.shape
        # (rows, seq, 3 * width) -> three of (rows, heads, seq, width / heads)
        q, k, v = (
            part.view(rows, seq, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        if self.attention == "sdpa":
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)  # (rows, heads, seq, seq)
            mixed = torch.softmax(scores.masked_fill(~allowed, float("-inf")), dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(rows, seq, width))

    def forward(self, x, allowed):
        x = x + self.attend(self.norm1(x), allowed)
        return x + self.down(self.bend(self.up(self.norm2(x))))

    def bend(self, hidden):
        """GELU of (rows, seq, 4 * width), always by the formula with tanh."""
        if not self.fused_gelu:
            return gelu(hidden)
        if torch.compiler.is_compiling():  # a kernel of its own making: the same formula in its cheapest form
            return gelu_by_sigmoid(hidden)
        return F.gelu(hidden, approximate="tanh")


class NameGPT(nn.Module):
    """``(rows, seq)`` tokens -> ``(rows, seq, vocabulary)`` logits, or the mean loss where ``targets`` are given.

    ``places``: each token's position in its own name; ``allowed``: (rows, 1, seq, seq), True where a token may look.
    Without them every row is one name.
    """

    def __init__(self, vocabulary: int, length: int, size: Size):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, size.width), nn.Embedding(length, size.width)
        self.blocks = nn.ModuleList(Block(size.width, size.heads) for _ in range(size.depth))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, vocabulary)
        self.register_buffer("past", torch.tril(torch.ones(length, length, dtype=torch.bool)), persistent=False)
        self.is_compiled = False

    def compile_blocks(self) -> None:
        """Let the compiler write one code that all blocks share: quicker than compiling the whole (lesson 05)."""
        self.is_compiled = True
        for block in self.blocks:
            block.compile()

    def eagerly(self):
        """Inside, compiled blocks run as they were written; what is called once or twice needs no compiling."""
        return torch.compiler.set_stance("force_eager") if self.is_compiled else contextlib.nullcontext()

    def forward(self, tokens, targets=None, places=None, allowed=None):
        seq = tokens.shape[1]
        if places is None:
            places, allowed = torch.arange(seq, device=tokens.device), self.past[:seq, :seq]
        x = self.tokens(tokens) + self.places(places)  # (rows, seq, width)
        if self.is_compiled and allowed.dim() == 4:
            mark_dynamic(allowed, 0)
        for block in self.blocks:
            if self.is_compiled:
                mark_dynamic(x, 0)  # one batch needs a row more than another: no reason to compile again
            x = block(x, allowed)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def network(size: Size, *, seed: int = 0, attention: str = "written out", fused_gelu: bool = False,
            device=None) -> NameGPT:
    """A fresh model, equal at every call with the same seed; leaves the random state alone."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        model = NameGPT(names().vocabulary, names().length, size)
    for block in model.blocks:
        block.attention, block.fused_gelu = attention, fused_gelu
    return model.to(device or "cpu")


def digest(model: nn.Module) -> str:
    """Sixteen letters that are equal for two models when every bit of their weights is."""
    weights = (parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())
    return hashlib.sha256(b"".join(weights)).hexdigest()[:16]


@torch.no_grad()
def invent(model: NameGPT, count: int, *, seed: int = 0, temperature: float = 0.9) -> list[str]:
    """``count`` names, letter by letter, each letter drawn by the probabilities that the model gives it."""
    known, device = names(), next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.full((count, 1), END, device=device)  # (count, seq)
    with model.eagerly():  # every letter makes the names longer: nothing to compile for
        for _ in range(known.length - 1):
            chances = torch.softmax(model(tokens)[:, -1].float().cpu() / temperature, dim=-1)  # (count, vocabulary)
            drawn = torch.multinomial(chances, 1, generator=generator).to(device)
            tokens = torch.cat([tokens, drawn], dim=1)
    found = []
    for row in tokens[:, 1:].tolist():
        letters = row[: row.index(END)] if END in row else row
        found.append(known.decode(letters).strip())
    return found


def known_pairs(made: list[str]) -> float:
    """Share of the neighbouring letters in ``made`` that stand side by side in some name of the training part."""
    seen = {pair for name in names().train for pair in zip(name, name[1:], strict=False)}
    pairs = [pair for name in made for pair in zip(name, name[1:], strict=False)]
    return sum(pair in seen for pair in pairs) / max(1, len(pairs))
