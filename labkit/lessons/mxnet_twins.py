"""One model twice, in Gluon and in PyTorch, on Bangladeshi place names: letters of a name in, its division out."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from labkit import datasets

_GLUON_NAMES = {"lr": "learning_rate", "eps": "epsilon"}
LETTERS = 16  # of a name; longer ones are cut, shorter ones filled up with 0
WIDTH, HIDDEN, SEED, BATCH = 16, 64, 2026, 64


@dataclass(frozen=True)
class Names:
    """``letters``: (names, LETTERS) int64, 0 for none; ``division``, ``district``: (names,) int64."""

    letters: np.ndarray
    division: np.ndarray
    district: np.ndarray
    alphabet: str
    divisions: tuple[str, ...]
    districts: tuple[str, ...]

    def counts(self) -> np.ndarray:
        """(names, alphabet) float32: how often each letter stands in a name."""
        return np.stack([np.bincount(row[row > 0] - 1, minlength=len(self.alphabet)) for row in self.letters]).astype(
            np.float32
        )


@functools.cache
def names() -> Names:
    """All unions of Bangladesh by their Bengali names, with their divisions, in a fixed shuffled order."""
    places = datasets.places("union")
    order = np.random.RandomState(SEED).permutation(len(places))
    places = [places[k] for k in order]
    alphabet = "".join(sorted({letter for place in places for letter in place.bn}))
    divisions, districts = (tuple(sorted({getattr(p, level) for p in places})) for level in ("division", "district"))
    code = {letter: number for number, letter in enumerate(alphabet, 1)}
    letters = np.zeros((len(places), LETTERS), np.int64)
    for row, place in enumerate(places):
        known = [code[letter] for letter in place.bn[:LETTERS]]
        letters[row, : len(known)] = known
    division = np.array([divisions.index(place.division) for place in places])
    district = np.array([districts.index(place.district) for place in places])
    return Names(letters, division, district, alphabet, divisions, districts)


def batches(steps: int, size: int = BATCH, *, label: str = "division"):
    """The first ``steps`` batches of ``names()``, ``(letters, label)`` each, from the start again at the end."""
    data = names()
    labels = getattr(data, label)
    for step in range(steps):
        rows = np.arange(step * size, (step + 1) * size) % len(data.letters)
        yield data.letters[rows], labels[rows]


def torch_net():
    """The PyTorch twin, always with the same initial weights; leaves torch's random state alone."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=()):
        torch.manual_seed(SEED)
        data = names()
        return nn.Sequential(
            nn.Embedding(len(data.alphabet) + 1, WIDTH),
            nn.Flatten(),
            nn.Linear(LETTERS * WIDTH, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, len(data.divisions)),
        )


def gluon_net(contexts, *, like=None):
    """The Gluon twin on ``contexts`` (one, or a list), with the weights of ``like`` or of a fresh ``torch_net()``."""
    from labkit import mx

    nn, data = mx.load().gluon.nn, names()
    net = nn.HybridSequential()
    net.add(
        nn.Embedding(len(data.alphabet) + 1, WIDTH),
        nn.Flatten(),
        nn.Dense(HIDDEN, activation="relu", in_units=LETTERS * WIDTH),
        nn.Dense(len(data.divisions), in_units=HIDDEN),
    )
    net.initialize(ctx=contexts)
    return carry(torch_net() if like is None else like, net)


def carry(source, net):
    """Give the Gluon ``net`` the weights of the PyTorch module ``source``, parameter by parameter; returns ``net``.

    Both list a layer's weight before its bias, and both keep a dense weight as (out, in): no transposing.
    """
    from labkit import mx

    module = mx.load()
    for own, other in zip(net.collect_params().values(), source.parameters(), strict=True):
        own.set_data(module.nd.array(other.detach().numpy()))
    return net


def torch_losses(optimizer: str, steps: int, **options) -> list[float]:
    """Train a fresh PyTorch twin for ``steps`` batches; the mean loss of each batch, before its step."""
    import torch
    import torch.nn.functional as F

    net = torch_net()
    chosen = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](net.parameters(), **options)
    losses = []
    for letters, division in batches(steps):
        loss = F.cross_entropy(net(torch.from_numpy(letters)), torch.from_numpy(division))
        chosen.zero_grad()
        loss.backward()
        chosen.step()
        losses.append(loss.item())
    return losses


def gluon_losses(optimizer: str, steps: int, *, contexts=None, net=None, **options) -> list[float]:
    """The same in Gluon, on one context or several, on a fresh twin or on ``net``, which is trained on."""
    from labkit import mx

    module = mx.load()
    nd, gluon, autograd = module.nd, module.gluon, module.autograd
    contexts = contexts or [module.cpu()]
    net, loss_fn = net or gluon_net(contexts), gluon.loss.SoftmaxCrossEntropyLoss()
    options = {_GLUON_NAMES.get(name, name): value for name, value in options.items()}
    trainer = gluon.Trainer(net.collect_params(), optimizer, options)
    losses = []
    for letters, division in batches(steps):
        parts = [gluon.utils.split_and_load(nd.array(whole), contexts) for whole in (letters, division)]
        with autograd.record():
            each = [loss_fn(net(x), y) for x, y in zip(*parts, strict=True)]
        autograd.backward(each)
        trainer.step(len(letters))
        losses.append(sum(float(part.sum().asscalar()) for part in each) / len(letters))
    return losses


def flat(net) -> np.ndarray:
    """All weights of a twin, Gluon's or PyTorch's, one after the other in one vector."""
    if hasattr(net, "collect_params"):
        every = [p.list_data()[0].asnumpy() for p in net.collect_params().values()]
    else:
        every = [p.detach().numpy() for p in net.parameters()]
    return np.concatenate([array.ravel() for array in every])


def training_pass(net, letters, division):
    """A function that runs one batch forward and backward through a twin, of either framework: what is timed.

    It returns the loss of every name, not yet waited for. No step is made, so every call does the same work.
    """
    if hasattr(net, "collect_params"):
        from labkit import mx

        module = mx.load()
        x, y, loss_fn = module.nd.array(letters), module.nd.array(division), module.gluon.loss.SoftmaxCrossEntropyLoss()

        def run():
            with module.autograd.record():
                loss = loss_fn(net(x), y)
            loss.backward()
            return loss

        return run
    import torch
    import torch.nn.functional as F

    x, y = torch.from_numpy(letters), torch.from_numpy(division)

    def run():
        net.zero_grad()
        loss = F.cross_entropy(net(x), y, reduction="none")
        loss.sum().backward()
        return loss.detach()

    return run


def agree(one, other) -> bool:
    """Whether two passes gave the same losses, whichever framework computed them."""
    one, other = (np.asarray(loss.asnumpy() if hasattr(loss, "asnumpy") else loss.numpy()) for loss in (one, other))
    return bool(np.allclose(one, other, rtol=1e-4, atol=1e-5))


def late_losses(learning_rate: float, *, delay: int, batch: int, samples: int = 24_000) -> float:
    """Loss over all names after stochastic gradient descent whose gradients are ``delay`` updates old.

    A linear classifier on the letter counts, in torch, alike on every machine. ``delay`` stands for what other workers
    have pushed between this worker's pull and its push. Starts from zero, so log(8) is the loss of not knowing.
    """
    import torch
    import torch.nn.functional as F

    data = names()
    x, y = torch.from_numpy(data.counts()), torch.from_numpy(data.division)
    weight = torch.zeros(x.shape[1], len(data.divisions))
    past = [weight]
    for step in range(samples // batch):
        rows = torch.arange(step * batch, (step + 1) * batch) % len(y)
        old = past[0].clone().requires_grad_()
        F.cross_entropy(x[rows] @ old, y[rows]).backward()
        weight = weight - learning_rate * old.grad
        past = [*past, weight][-(delay + 1) :]
    return F.cross_entropy(x @ weight, y).item()
