"""The modules behind `labkit.models`, written out as people write them: no fused kernels, no library attention."""

from __future__ import annotations

import math

import torch
from torch import nn


def mlp(width: int, depth: int) -> nn.Sequential:
    """``depth`` times (linear, layer-norm, GELU) on ``(batch, width)``."""
    layers = [(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU()) for _ in range(depth)]
    return nn.Sequential(*(layer for group in layers for layer in group))


def conv_stack(channels: int, depth: int, activation, in_channels: int) -> nn.Sequential:
    """``depth`` times (3x3 convolution, batch-norm, ``activation()``) on ``(batch, in_channels, height, width)``."""
    layers: list[nn.Module] = []
    for index in range(depth):
        before = channels if index else in_channels
        layers += [nn.Conv2d(before, channels, 3, padding=1), nn.BatchNorm2d(channels), activation()]
    return nn.Sequential(*layers)


class ConvNet(nn.Module):
    """A small VGG-like classifier: ``(batch, 3, 32, 32)`` -> ``(batch, classes)``."""

    def __init__(self, classes: int = 10):
        super().__init__()
        sizes = [(3, 32), (32, 32), None, (32, 64), (64, 64), None, (64, 128), (128, 128)]
        layers: list[nn.Module] = []
        for size in sizes:
            if size is None:
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(*size, 3, padding=1, bias=False), nn.BatchNorm2d(size[1]), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(128, classes)

    def forward(self, images):
        return self.head(self.features(images).mean((2, 3)))


class LSTM(nn.Module):
    """An LSTM whose cell is a loop in Python, as in textbooks, from and to ``(batch, steps, width)``."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.from_input = nn.Linear(width, 4 * width)
        self.from_state = nn.Linear(width, 4 * width)
        self.head = nn.Linear(width, width)

    def forward(self, x):
        hidden = cell = x.new_zeros(x.shape[0], self.width)  # (batch, width)
        outputs = []
        for step in range(x.shape[1]):
            gates = self.from_input(x[:, step]) + self.from_state(hidden)  # (batch, 4 * width)
            enter, keep, leave, new = gates.chunk(4, dim=-1)
            cell = torch.sigmoid(keep) * cell + torch.sigmoid(enter) * torch.tanh(new)
            hidden = torch.sigmoid(leave) * torch.tanh(cell)
            outputs.append(hidden)
        return self.head(torch.stack(outputs, dim=1))


def gelu(x):
    """GELU with the tanh formula, one operation after another (Hendrycks and Gimpel 2016)."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_by_sigmoid(x):
    """The same formula with ``(1 + tanh(u)) / 2`` written as ``sigmoid(2 u)``: one exp, where tanh takes far longer."""
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


class Block(nn.Module):
    """One GPT block on ``(batch, seq, width)``: causal attention and a feed-forward net, written out."""

    def __init__(self, width: int, heads: int, length: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("past", torch.tril(torch.ones(length, length, dtype=torch.bool)), persistent=False)

    def attention(self, x):
        batch, length, width = x.shape
        # (batch, seq, 3 * width) -> three of (batch, heads, seq, width / heads)
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)  # (batch, heads, seq, seq)
        scores = scores.masked_fill(~self.past[:length, :length], float("-inf"))
        mixed = torch.softmax(scores, dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """A small GPT with learned positions: tokens ``(batch, seq)`` -> logits ``(batch, seq, vocabulary)``."""

    def __init__(self, vocabulary: int, width: int, heads: int, depth: int, length: int):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, length) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
