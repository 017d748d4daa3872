"""The encoder of lesson 10: BERT's architecture, written to be read. Made large with MiniLM's weights, or small.

    Encoder(sizes)(ids)     (batch, seq) token numbers -> (batch, width), one vector a text

After each layer's two halves comes a layer norm ("post-norm", as in the first BERT). No dropout: the lesson's few steps
hardly feel it, and without it two runs can be compared. Paper: https://arxiv.org/abs/1810.04805
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

PADDING = 0  # the token number that fills up short texts


@dataclass(frozen=True)
class Sizes:
    """What decides the number of parameters. ``positions`` bounds the length of a text, in tokens."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    inner: int
    positions: int


class Layer(nn.Module):
    """Attention and MLP, each added to its input and normalised: (batch, seq, width) -> the same."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.query, self.key, self.value, self.mix = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, sizes.inner), nn.Linear(sizes.inner, width)
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-12) for _ in range(2))

    def forward(self, x, seen):
        """``seen`` (batch, 1, 1, seq): which tokens are text and not padding."""
        q, k, v = (f(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for f in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)  # (batch, heads, seq, head)
        x = self.norm1(x + self.mix(mixed.transpose(1, 2).flatten(2)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    """Token numbers (batch, seq), filled up with zeros -> the mean vector of each text, (batch, width)."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.sizes = sizes
        self.words = nn.Embedding(sizes.vocabulary, sizes.width, padding_idx=PADDING)
        self.places = nn.Embedding(sizes.positions, sizes.width)
        self.norm = nn.LayerNorm(sizes.width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        for embedding in (self.words, self.places):
            nn.init.normal_(embedding.weight, std=0.02)

    def tokens(self, ids: torch.Tensor) -> torch.Tensor:
        """One vector a token: (batch, seq) -> (batch, seq, width)."""
        seen = (ids != PADDING)[:, None, None]
        x = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x, seen)
        return x

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        seen = (ids != PADDING).unsqueeze(2)
        return (self.tokens(ids) * seen).sum(1) / seen.sum(1)


class Classifier(nn.Module):
    """An encoder with a head on top: (batch, seq) -> (batch, classes). ``head`` alone takes the encoder's vectors."""

    def __init__(self, encoder: nn.Module, classes: int):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.sizes.width, classes)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(ids))
