"""The order of work in a pipeline, and what an order costs on paper: slots, bubbles, micro-batches that wait.

A schedule is a function ``schedule(me, ranks, micro)`` that gives rank ``me``'s work in order: ``("F", i)`` is the
forward of micro-batch ``i``, ``("B", i)`` its backward. GPipe: Huang et al. 2018, arXiv 1811.06965; 1F1B: PipeDream,
Harlap et al. 2018, arXiv 1806.03377, in the synchronous form of Narayanan et al. 2021, arXiv 2104.04473.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labkit.language import t

Work = tuple[str, int]
Schedule = Callable[[int, int, int], Sequence[Work]]


def gpipe(me: int, ranks: int, micro: int) -> list[Work]:
    """All forwards, then all backwards."""
    return [("F", i) for i in range(micro)] + [("B", i) for i in range(micro)]


def one_f_one_b(me: int, ranks: int, micro: int) -> list[Work]:
    """A backward as soon as one can be done, then one forward and one backward by turns."""
    ahead = min(ranks - 1 - me, micro)  # forwards before the first gradient can come back
    steady = [work for i in range(micro - ahead) for work in (("F", ahead + i), ("B", i))]
    return [("F", i) for i in range(ahead)] + steady + [("B", i) for i in range(micro - ahead, micro)]


SCHEDULES: dict[str, Schedule] = {"GPipe": gpipe, "1F1B": one_f_one_b}


def orders(schedule: Schedule, ranks: int, micro: int) -> list[list[list]]:
    """Every rank's order, as JSON can carry it to the ranks: ``[[["F", 0], …], …]``."""
    return [[list(work) for work in schedule(me, ranks, micro)] for me in range(ranks)]


def bubble(ranks: int, micro: int) -> float:
    """Idle share of a pipeline of equal stages: (p - 1) / (m + p - 1), for GPipe and 1F1B alike."""
    return (ranks - 1) / (micro + ranks - 1)


class StuckError(ValueError):
    """An order of work in which a rank waits for ever."""


@dataclass(frozen=True)
class Span:
    """One piece of work of one rank; ``start`` and ``end`` in slots or in seconds."""

    kind: str
    micro: int
    start: float
    end: float


@dataclass(frozen=True)
class Plan:
    """A schedule carried out on paper: ``rows[rank]`` are its spans in order."""

    rows: tuple[tuple[Span, ...], ...]

    @property
    def length(self) -> float:
        """From the first start to the last end."""
        return max(span.end for row in self.rows for span in row) - min(s.start for row in self.rows for s in row)

    @property
    def idle(self) -> float:
        """Slots (or seconds) in which a rank does nothing, all ranks together: the bubbles."""
        return self.length * len(self.rows) - sum(span.end - span.start for row in self.rows for span in row)

    @property
    def idle_share(self) -> float:
        return self.idle / (self.length * len(self.rows))

    @property
    def waiting(self) -> list[int]:
        """For each rank, the most micro-batches whose activations wait for their backward at the same time."""
        return [_most_waiting([(span.kind, span.micro) for span in row]) for row in self.rows]

    def __str__(self) -> str:
        """One line a rank, one column a slot; a dot is a bubble. For plans in whole slots."""
        width = len(str(max(span.micro for row in self.rows for span in row))) + 2
        lines = []
        for rank, row in enumerate(self.rows):
            cells = ["."] * round(self.length)
            for span in row:
                for slot in range(round(span.start), round(span.end)):
                    cells[slot] = f"{span.kind}{span.micro}"
            label = t("rank {rank}", rank=rank)
            lines.append(f"{label}  " + "".join(cell.ljust(width) for cell in cells).rstrip())
        return "\n".join(lines)

    __repr__ = __str__


def _most_waiting(order: Sequence[Work]) -> int:
    now = most = 0
    for kind, _ in order:
        now += 1 if kind == "F" else -1
        most = max(most, now)
    return most


def plan(schedule: Schedule, ranks: int, micro: int, *, forward: int = 1, backward: int = 1) -> Plan:
    """Carry a schedule out on paper; a forward takes ``forward`` slots, a backward ``backward``, a message none.

    Work starts when its rank is free and its input is there. Raises StuckError when some rank waits for ever.

    >>> plan(gpipe, 2, 2)
    rank 0  F0 F1 .  .  B0 B1
    rank 1  .  F0 F1 B0 B1 .
    """
    todo = [[tuple(work) for work in schedule(me, ranks, micro)] for me in range(ranks)]
    done: dict[tuple[str, int, int], float] = {}  # (kind, micro-batch, rank) -> end
    rows: list[list[Span]] = [[] for _ in range(ranks)]
    while any(todo):
        moved = False
        for me, order in enumerate(todo):
            while order and (ready := _ready(order[0], me, ranks, done)) is not None:
                kind, i = order.pop(0)
                start = max(ready, rows[me][-1].end if rows[me] else 0)
                done[kind, i, me] = end = start + (forward if kind == "F" else backward)
                rows[me].append(Span(kind, i, start, end))
                moved = True
        if not moved:
            me = next(rank for rank, order in enumerate(todo) if order)
            raise StuckError(t(
                "Every rank waits for another. Rank {rank} wants to do {work} next, and its input never comes.",
                rank=me, work="".join(map(str, todo[me][0]))))
    return Plan(tuple(map(tuple, rows)))


def _ready(work: Work, me: int, ranks: int, done) -> float | None:
    """When the input of ``work`` is there; None when it is not yet known."""
    kind, i = work
    if kind == "F":
        return 0 if me == 0 else done.get(("F", i, me - 1))
    own = done.get(("F", i, me))
    after = own if me == ranks - 1 else done.get(("B", i, me + 1))
    return None if own is None or after is None else max(own, after)
