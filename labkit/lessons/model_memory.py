"""The memory that training takes on one rank: weights, gradients, optimiser states, activations, in bytes.

What is not in it: buffers that a library takes for itself, fragments that an allocator cannot use, the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from labkit._graph_values import html_table
from labkit.language import t
from labkit.lessons import activations, resnet
from labkit.units import size

# Bytes of one number: weights and gradients, the optimiser's own copy of the weights, activations. Mixed precision as
# in ZeRO (Rajbhandari et al. 2019, arXiv 1910.02054, section 3.1); activations as half-precision numbers throughout.
PRECISIONS = {"fp32": (4, 0, 4), "mixed": (2, 4, 2)}
OPTIMIZERS = {"Adam": 2, "SGD + momentum": 1, "SGD": 0}  # -> float32 numbers kept for each parameter
CARD_BYTES = 80e9  # of a large data-centre GPU


@dataclass(frozen=True)
class Network:
    """What has to be known about a model. ``kept(batch)``: numbers kept for backward; ``borders(batch)``: the inputs of
    its blocks; ``largest(batch)``: numbers kept inside the largest block."""

    parameters: int
    kept: Callable[[int], int]
    borders: Callable[[int], int]
    largest: Callable[[int], int]


def transformer(layers: int, width: int, heads: int, seq: int, *, outside: int = 0) -> Network:
    """``layers`` blocks of ``transformer.Block``, 12 width² + 13 width parameters each, and ``outside`` of the blocks
    the rest: embeddings and the like."""
    return Network(
        parameters=layers * (12 * width**2 + 13 * width) + outside,
        kept=lambda batch: layers * activations.activation_numbers(batch, seq, width, heads),
        borders=lambda batch: layers * batch * seq * width,
        largest=lambda batch: activations.activation_numbers(batch, seq, width, heads),
    )


# BERT: Devlin et al. 2018, arXiv 1810.04805. GPT-3: Brown et al. 2020, arXiv 2005.14165. ResNet-152: He et al. 2015,
# arXiv 1512.03385; its parameters as the documentation of torchvision's resnet152 counts them.
NETWORKS = {
    "BERT-base": transformer(12, 768, 12, 512, outside=(30522 + 512 + 2 + 2) * 768 + 768**2 + 768),
    "GPT-3": transformer(96, 12288, 96, 2048, outside=(50257 + 2048 + 2) * 12288),
    "ResNet-152": Network(60_192_808, resnet.activation_numbers, resnet.border_numbers,
                          resnet.largest_block),
}  # fmt: skip
PUBLISHED = {"BERT-base": "110M", "GPT-3": "175B", "ResNet-152": "60.2M"}


@dataclass(frozen=True, repr=False)
class RankMemory:
    """Bytes on one rank."""

    weights: float
    gradients: float
    states: float
    activations: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.states + self.activations

    @property
    def cards(self) -> int:
        """GPUs of 80 GB that would be filled, were everything divisible at will."""
        return math.ceil(self.total / CARD_BYTES)

    def rows(self) -> list[tuple[str, float]]:
        """(name in the current language, bytes), the sum last."""
        return [(t("weights"), self.weights), (t("gradients"), self.gradients), (t("optimizer states"), self.states),
                (t("activations"), self.activations), (t("in all"), self.total)]

    def __str__(self):
        return "; ".join(f"{name} {size(value)}" for name, value in self.rows())

    __repr__ = __str__


def rank_memory(network: Network, *, ranks: int = 1, stage: int = 0, precision: str = "fp32", optimizer: str = "Adam",
                batch: int = 1, checkpointing: bool = False) -> RankMemory:
    """Memory on each of ``ranks`` ranks that each train on ``batch`` examples of their own.

    ``stage`` of ZeRO: 0 everything on every rank, 1 optimiser states divided, 2 gradients too, 3 weights too (FSDP).
    ``checkpointing`` keeps the blocks' inputs, and everything of one block at a time.
    """
    number, copy, activation = PRECISIONS[precision]
    state = copy + 4 * OPTIMIZERS[optimizer]
    share = [1 / ranks if stage >= least else 1.0 for least in (3, 2, 1)]
    kept = network.borders(batch) + network.largest(batch) if checkpointing else network.kept(batch)
    weights, gradients, states = (network.parameters * b * s for b, s in zip((number, number, state), share,
                                                                             strict=True))
    return RankMemory(weights, gradients, states, activation * kept)


class Table:
    """Heads and rows of text that show themselves, in print and in a notebook."""

    def __init__(self, heads: Sequence[str], rows: Sequence[Sequence[str]]):
        self.heads, self.rows = list(map(str, heads)), [list(map(str, row)) for row in rows]

    def __str__(self):
        every = [self.heads, *self.rows]
        widths = [max(len(row[i]) for row in every) for i in range(len(self.heads))]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in every)
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self):
        return html_table(self.heads, self.rows)


def training_table(counted: Mapping[str, int], *, batch: int = 1) -> Table:
    """What training takes in float32 with Adam, for networks of ``NETWORKS`` whose parameters were ``counted``."""
    rows = []
    for name, parameters in counted.items():
        memory = rank_memory(NETWORKS[name], batch=batch)
        if parameters != NETWORKS[name].parameters:
            raise ValueError(t("{name} has {right} parameters; {counted} were counted. Is a layer missing?", name=name,
                               right=NETWORKS[name].parameters, counted=parameters))
        rows.append([name, PUBLISHED[name], f"{parameters:,}", *(size(value) for _, value in memory.rows()),
                     memory.cards])
    parts = [name for name, _ in rank_memory(NETWORKS["GPT-3"]).rows()]
    return Table([t("model"), t("published"), t("counted"), *parts, t("GPUs of 80 GB")], rows)
