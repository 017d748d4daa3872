"""ResNet with bottlenecks (He et al. 2015, arXiv 1512.03385; stride in the 3x3 convolution, as torchvision has it)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

DEPTHS_152 = (3, 8, 36, 3)


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions, each with batch-norm; (batch, into, r, r) -> (batch, 4 mid, r / stride, …)."""

    def __init__(self, into: int, mid: int, stride: int):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(into, mid, 1, bias=False), nn.BatchNorm2d(mid)
        self.conv2, self.norm2 = nn.Conv2d(mid, mid, 3, stride, padding=1, bias=False), nn.BatchNorm2d(mid)
        self.conv3, self.norm3 = nn.Conv2d(mid, 4 * mid, 1, bias=False), nn.BatchNorm2d(4 * mid)
        fits = into == 4 * mid and stride == 1
        again = nn.Conv2d(into, 4 * mid, 1, stride, bias=False)
        self.shortcut = nn.Identity() if fits else nn.Sequential(again, nn.BatchNorm2d(4 * mid))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        return F.relu(self.norm3(self.conv3(y)).add_(self.shortcut(x)), inplace=True)


class ResNet(nn.Module):
    """(batch, 3, image, image) -> (batch, 1000)."""

    def __init__(self, depths: tuple[int, ...] = DEPTHS_152):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64))
        stages, into = [], 64
        for number, depth in enumerate(depths):
            for block in range(depth):
                stages.append(Bottleneck(into, 64 * 2**number, 2 if block == 0 and number else 1))
                into = 256 * 2**number
        self.stages, self.head = nn.Sequential(*stages), nn.Linear(into, 1000)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem(x), inplace=True), 3, 2, padding=1)
        return self.head(self.stages(x).mean((2, 3)))


def activation_numbers(batch: int, image: int = 224, depths: tuple[int, ...] = DEPTHS_152) -> int:
    """Numbers kept for the backward pass: the image, each convolution's output (batch-norm wants it) and each ReLU's.

    The 64-bit places of the largest values, which max-pooling keeps, count as two numbers each. The means and
    deviations of the batch-norms, a few thousand numbers, are left out.
    """
    half, r = image // 2, image // 4
    numbers = 3 * image**2 + 2 * 64 * half**2 + (1 + 2) * 64 * r**2 + 2048 * (len(depths) == 4)
    for number, depth in enumerate(depths):
        mid = 64 * 2**number
        for block in range(depth):
            before = r
            r = r // 2 if block == 0 and number else r
            numbers += 2 * mid * before**2 + 2 * mid * r**2 + (2 + (block == 0)) * 4 * mid * r**2
    return batch * numbers


def border_numbers(batch: int, image: int = 224, depths: tuple[int, ...] = DEPTHS_152) -> int:
    """Numbers of the bottlenecks' inputs: what is kept when each of them is a checkpoint."""
    r, width, numbers = image // 4, 64, 0
    for number, depth in enumerate(depths):
        for block in range(depth):
            numbers += width * r**2
            r = r // 2 if block == 0 and number else r
            width = 256 * 2**number
    return batch * numbers


def largest_block(batch: int, image: int = 224) -> int:
    """Numbers kept inside the first bottleneck: it works at the highest resolution and has a convolution in its
    shortcut, so no other keeps more."""
    r = image // 4
    return batch * (4 * 64 * r**2 + 3 * 4 * 64 * r**2)
