"""The small models that more than one lesson trains. Shapes, batches and seeds are pinned: ratios depend on them.

    FAMILIES        name -> factory, the six that training is compared on
    conv_stack()    the inference stack of lesson 04
    thin_silu()     the training of lesson 05 that a compiler makes slower
    training_step(model, inputs, loss)   one whole step as a function without arguments

A factory gives a fresh, equal model at every call, on every device, and leaves the random state alone. What the models
learn is made by a rule from a fixed seed, so their loss really falls: whether lower precision still learns can be seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

import torch
import torch.nn.functional as F
from torch import nn

from labkit import _model_parts as parts

SEED = 2026
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Family:
    """A model with one batch. ``loss(output)`` is a scalar tensor and holds the targets; None for inference only."""

    name: str
    model: nn.Module
    inputs: tuple[torch.Tensor, ...]
    loss: Callable[[torch.Tensor], torch.Tensor] | None
    describe: str

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return sum(p.numel() for p in self.model.parameters())

    def __repr__(self):
        shapes = ", ".join(str(tuple(x.shape)) for x in self.inputs)
        return f"Family({self.name}: {self.describe}; inputs {shapes}; {self.parameters:,} parameters)"


def _pinned(build):
    """Make ``build()`` a factory: seeded on the CPU, random state put back, then moved to ``device``."""

    @wraps(build)
    def factory(device: torch.device | str | None = None) -> Family:
        from labkit import hardware

        device = hardware.device() if device is None else torch.device(device)
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(SEED)
            name, model, inputs, target, loss, describe = build()
        target = None if target is None else target.to(device)
        return Family(
            name,
            model.to(device),
            tuple(x.to(device) for x in inputs),
            None if loss is None else lambda output: loss(output, target),
            describe,
        )

    return factory


def _smooth(x: torch.Tensor, width: int) -> torch.Tensor:
    """Targets for regression: a fixed smooth function of the last dimension of ``x``, of ``width`` values."""
    mix = torch.randn(x.shape[-1], width) / x.shape[-1] ** 0.5
    return torch.sin(2 * x @ mix)


@_pinned
def mlp():
    """8 x (linear 512, layer-norm, GELU) on (512, 512): regression."""
    x = torch.randn(512, 512)
    return "mlp", parts.mlp(512, 8), (x,), _smooth(x, 512), F.mse_loss, "8 x (linear 512, layer-norm, GELU)"


@_pinned
def convnet():
    """A VGG-like classifier, 6 convolutions of 32 to 128 channels with batch-norm and ReLU, on (32, 3, 32, 32)."""
    labels = torch.arange(32) % 10
    patterns = torch.randn(10, 3, 32, 32)
    images = patterns[labels] + torch.randn(32, 3, 32, 32)
    what = "6 x (conv 32-128 ch, batch-norm, ReLU), max-pool"
    return "convnet", parts.ConvNet(), (images,), labels, F.cross_entropy, what


@_pinned
def conv_silu():
    """6 x (convolution of 32 channels, batch-norm, SiLU) on (16, 1, 32, 32): each pixel from its neighbours."""
    images = torch.randn(16, 1, 32, 32)
    blurred = F.avg_pool2d(images, 3, stride=1, padding=1)
    model = parts.conv_stack(32, 6, nn.SiLU, in_channels=1)
    what = "6 x (conv 32 ch, batch-norm, SiLU)"
    return "conv_silu", model, (images,), torch.tanh(3 * blurred).expand(-1, 32, -1, -1).clone(), F.mse_loss, what


@_pinned
def encoder():
    """3 transformer encoder layers, width 256, 4 heads, dropout 0.1, on (8, 128, 256): regression."""
    x = torch.randn(8, 128, 256)
    layer = nn.TransformerEncoderLayer(256, 4, dim_feedforward=1024, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    return "encoder", model, (x,), _smooth(x, 256), F.mse_loss, "3 encoder layers, width 256, dropout 0.1"


@_pinned
def lstm():
    """An LSTM cell in a Python loop, width 64, 32 steps, batch 16: predict the running mean of the input."""
    x = torch.randn(16, 32, 64)
    running = x.cumsum(1) / torch.arange(1, 33).view(1, 32, 1)
    return "lstm", parts.LSTM(64), (x,), running, F.mse_loss, "LSTM cell in a Python loop, width 64, 32 steps"


@_pinned
def gpt():
    """A 4-layer GPT, width 192, 6 heads, hand-written attention and GELU, on 64 sequences of 32 tokens out of 256."""
    start, stride = torch.randint(0, 256, (64, 1)), torch.randint(1, 8, (64, 1))
    sequence = (start + stride * torch.arange(33)) % 256  # (64, 33): counting in steps
    model = parts.GPT(vocabulary=256, width=192, heads=6, depth=4, length=32)
    what = "GPT, 4 layers, width 192, hand-written attention"
    return "gpt", model, (sequence[:, :-1],), sequence[:, 1:].clone(), _token_loss, what


@_pinned
def conv_stack():
    """8 x (convolution of 32 channels, batch-norm, ReLU) on (8, 3, 64, 64), in eval mode: inference only."""
    model = parts.conv_stack(32, 8, nn.ReLU, in_channels=3).eval()
    images = torch.randn(8, 3, 64, 64)
    return "conv_stack", model, (images,), None, None, "8 x (conv 32 ch, batch-norm, ReLU)"


@_pinned
def thin_silu():
    """2 x (1x1 convolution of 2 channels, batch-norm, SiLU) on (8, 2, 96, 96): on one CPU core slower when compiled."""
    spectrograms = torch.randn(8, 2, 96, 96)  # real and imaginary part: (batch, 2, frequency, time)
    layers = [(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.SiLU()) for _ in range(2)]
    model = nn.Sequential(*(layer for group in layers for layer in group))
    what = "2 x (1x1 conv 2 ch, batch-norm, SiLU)"
    return "thin_silu", model, (spectrograms,), torch.tanh(spectrograms.flip(1)), F.mse_loss, what


FAMILIES = {build.__name__: build for build in (mlp, convnet, conv_silu, encoder, lstm, gpt)}


def training_step(
    model: Callable,
    inputs: tuple,
    loss: Callable[[torch.Tensor], torch.Tensor],
    *,
    optimizer: torch.optim.Optimizer | None = None,
    autocast: torch.dtype | None = None,
) -> Callable[[], torch.Tensor]:
    """A function that does one whole step: forward, loss, backward, optimiser. It returns the loss before the update.

    ``optimizer`` is AdamW with learning rate 1e-3 over the model's parameters unless given. ``autocast=torch.bfloat16``
    runs forward and loss under autocast, as one does; backward follows by itself.
    """
    if optimizer is None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)

    def step() -> torch.Tensor:
        precision = torch.autocast(inputs[0].device.type, autocast) if autocast else contextlib.nullcontext()
        optimizer.zero_grad(set_to_none=True)
        with precision:
            value = loss(model(*inputs))
        value.backward()
        optimizer.step()
        return value.detach()

    return step


def _token_loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
