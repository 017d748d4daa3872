"""A transformer block as plain as it can be, so that every tensor it keeps can be counted and every product cut."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Attention and MLP, each after a layer norm, each added to its input: (batch, seq, width) -> the same.

    Attention is written out, and has as many heads as its own rows of the weights give: a block whose rows are spread
    over ranks runs unchanged. No dropout.
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.head = width // heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.mix = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        q, k, v = (f(x).unflatten(2, (-1, self.head)).transpose(1, 2) for f in (self.query, self.key, self.value))
        weights = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(self.head), dim=3)  # (batch, heads, seq, seq)
        return self.mix((weights @ v).transpose(1, 2).flatten(2))  # (batch, heads, seq, head) -> (batch, seq, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))  # (batch, seq, width) -> (…, 4 width) -> (…, width)


def blocks(layers: int, width: int, heads: int) -> nn.Sequential:
    """The same weights in every process that asks for the same sizes; the random state is left alone."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return nn.Sequential(*(Block(width, heads) for _ in range(layers)))
