"""Ranks that are only threads of this process: exercises on collectives are judged at once, and what is sent counted.

    world = World(3)
    results = world.run(lambda comm: answer(data[comm.rank], comm))     # one result a rank
    world.calls, world.bytes                                            # of each rank

``comm.all_reduce(tensor)`` sums over the ranks in place, like ``torch.distributed.all_reduce``. Where real ranks would
wait for ever, MissingRankError says who is missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from labkit.language import t

_PATIENCE_S = 10.0  # for the learner's own arithmetic between two collectives


class MissingRankError(RuntimeError):
    """Some ranks wait in a collective that another one never joins, or joins with another shape."""


class Comm:
    """What one rank sees: its number ``rank``, how many ``ranks`` there are, and ``all_reduce``."""

    def __init__(self, world: World, rank: int):
        self._world, self.rank, self.ranks = world, rank, world.ranks

    def all_reduce(self, tensor) -> None:
        """Replace ``tensor`` on every rank by its sum over all ranks; every rank has to call it."""
        self._world.calls[self.rank] += 1
        self._world.bytes[self.rank] += tensor.numel() * tensor.element_size()
        total = self._world._meet(self.rank, tensor.detach().clone())
        tensor.detach().copy_(total)


class World:
    """``ranks`` threads that can meet."""

    def __init__(self, ranks: int):
        self.ranks, self.calls, self.bytes = ranks, [0] * ranks, [0] * ranks
        self._gate = threading.Condition()
        self._brought, self._total, self._round = {}, None, 0
        self._left, self._shapes = set(), None

    def run(self, fn: Callable) -> list:
        """``fn(comm)`` in every rank at once; its results by rank. A rank's error is raised here, rank 0's first."""
        results, errors = [None] * self.ranks, {}

        def one(rank: int) -> None:
            try:
                results[rank] = fn(Comm(self, rank))
            except BaseException as error:
                errors[rank] = error
            finally:
                with self._gate:
                    self._left.add(rank)
                    self._gate.notify_all()

        threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(self.ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Whoever waited in vain only suffers from the other's fault.
        causes = sorted(errors.items(), key=lambda item: (isinstance(item[1], MissingRankError), item[0]))
        if causes:
            raise causes[0][1]
        return results

    def _meet(self, rank: int, tensor):
        with self._gate:
            mine = self._round
            self._brought[rank] = tensor
            if len(self._brought) == self.ranks:
                self._finish()
            else:
                self._gate.wait_for(lambda: self._round != mine or self._left, timeout=_PATIENCE_S)
            if self._round == mine:
                raise MissingRankError(t(
                    "Rank {rank} waits in `all_reduce`, but not every rank comes. Each rank has to call it equally "
                    "often, in the same order.", rank=rank))
            if self._shapes:
                raise MissingRankError(t(
                    "The ranks met in `all_reduce` with tensors of different shapes: {shapes}.", shapes=self._shapes))
            return self._total

    def _finish(self) -> None:
        """The last one to come adds up, always in the order of the ranks, and lets all go on."""
        tensors = [self._brought[rank] for rank in range(self.ranks)]
        shapes = {tuple(tensor.shape) for tensor in tensors}
        if len(shapes) > 1:
            self._shapes = ", ".join(map(str, sorted(shapes)))
        else:
            self._total = sum(tensors[1:], tensors[0])
        self._brought = {}
        self._round += 1
        self._gate.notify_all()
