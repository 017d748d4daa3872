"""What a function of MXNet changes besides its result: see ``_training_state``, which asks here about Gluon's objects.

MXNet 1.9.1 is the last release, so its private names used here will not change.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from labkit.language import t


class CannotPutBackError(ValueError):
    """A trainer keeps weights where they cannot be put back, so its steps cannot be made alike."""


@dataclass
class Gluon:
    """Blocks, trainers and arrays with gradients that a function can reach, by the name it uses for them."""

    blocks: dict = field(default_factory=dict)
    trainers: list = field(default_factory=list)
    arrays: dict = field(default_factory=dict)

    def take(self, thing, name: str) -> bool:
        """Keep ``thing`` when it is one of MXNet's; says whether it was."""
        mxnet = sys.modules.get("mxnet")
        if mxnet is None or not hasattr(mxnet, "gluon"):
            return False
        if isinstance(thing, mxnet.gluon.Block):
            self.blocks[name] = thing
        elif isinstance(thing, mxnet.gluon.Trainer):
            self.trainers.append(thing)
        elif isinstance(thing, mxnet.nd.NDArray):
            if thing.grad is not None:
                self.arrays[name] = thing
        else:
            return False
        return True

    def parameters(self) -> Iterator[tuple[str, object]]:
        """(name, parameter), each once. Names come from the net's structure, so they are equal in equal nets."""
        named = [pair for block in self.blocks.values() for pair in block._collect_params_with_prefix().items()]
        named += [(f"parameter {index}", p) for trainer in self.trainers for index, p in enumerate(trainer._params)]
        seen: set[int] = set()
        for name, parameter in named:
            if id(parameter) not in seen and parameter._data is not None and parameter._stype == "default":
                seen.add(id(parameter))
                yield name, parameter

    def trainable(self) -> dict:
        """Name -> array whose ``grad`` is a gradient."""
        found = dict(self.arrays)
        for name, parameter in self.parameters():
            if parameter.grad_req != "null":
                for data in parameter.list_data():
                    found[name if name not in found else f"{name} ({len(found)})"] = data
        return found


class Saved:
    """The state of everything in ``gluons``, to be put back with ``restore()`` and, at the end, ``finish()``."""

    def __init__(self, gluons: Iterable[Gluon]):
        gluons = list(gluons)
        arrays = {id(data): data for g in gluons for _, p in g.parameters() for data in p.list_data()}
        arrays |= {id(data): data for g in gluons for data in g.arrays.values()}
        self._arrays = [(data, data.copy(), data.grad, _copied(data.grad)) for data in arrays.values()]
        trainers = {id(trainer): trainer for g in gluons for trainer in g.trainers}
        self._trainers = [(trainer, _state(trainer)) for trainer in trainers.values()]

    def restore(self) -> None:
        """Weights and optimisers as they were, gradients zero. Raises CannotPutBackError."""
        for data, value, gradient, _ in self._arrays:
            data[:] = value
            if gradient is not None:
                gradient[:] = 0
        for trainer, state in self._trainers:
            _put_back(trainer, state)

    def finish(self) -> None:
        """As before the comparison, the gradients too."""
        self.restore()
        for _, _, gradient, value in self._arrays:
            if gradient is not None:
                gradient[:] = value


def _copied(array):
    return None if array is None else array.copy()


def _state(trainer) -> tuple:
    """Momenta and the like of every context, and the optimiser's counts of its own steps."""
    optimizer = trainer._optimizer
    schedule = vars(optimizer.lr_scheduler) if optimizer.lr_scheduler else {}
    counts = (optimizer._all_index_update_counts, optimizer.num_update, schedule)
    return [updater.get_states(dump_optimizer=False) for updater in trainer._updaters], copy.deepcopy(counts)


def _put_back(trainer, state: tuple) -> None:
    if trainer._kvstore is not None and trainer._update_on_kvstore:
        raise CannotPutBackError(
            t("This gluon.Trainer lets its kvstore update the weights, and the kvstore keeps a copy that nobody can put"
              " back, so two training steps cannot start alike. Nothing was timed. For the comparison, build it with"
              " gluon.Trainer(…, update_on_kvstore=False).")
        )
    states, counts = state
    for updater, bytes_ in zip(trainer._updaters, states, strict=True):
        updater.set_states(bytes_)
    optimizer, (updates, optimizer.num_update, schedule) = trainer._optimizer, copy.deepcopy(counts)
    for device, own in optimizer._all_index_update_counts.items():
        own.clear()
        own.update(updates.get(device, {}))
    if schedule:
        vars(optimizer.lr_scheduler).update(schedule)


@contextlib.contextmanager
def seeded():
    """The same random numbers for every call inside its own ``seeded()``; afterwards the generator goes on elsewhere,
    from a number of its own (its state can be neither read nor put back)."""
    mxnet = sys.modules.get("mxnet")
    if mxnet is None or not hasattr(mxnet, "random"):
        yield
        return
    onward = int(mxnet.nd.random.randint(0, 2**31 - 1).asscalar())
    mxnet.random.seed(0)
    try:
        yield
    finally:
        mxnet.random.seed(onward)
