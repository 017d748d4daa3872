"""Lesson 07, data parallelism: its checks, and everything that the lesson calls, under one name."""

from __future__ import annotations

import itertools

from labkit.exercises import exercise
from labkit.language import t
from labkit.lessons.ddp_events import group, watch
from labkit.lessons.ddp_scaling import of as scaling
from labkit.lessons.ddp_steps import Steps
from labkit.lessons.digits_net import accuracy, batches, digits, gap, gradients, loss_of, network, train, weights
from labkit.lessons.rank_turns import take_turns
from labkit.lessons.shards import fits, memory_cap, numbers, samples, stream, write_shards
from labkit.lessons.toy_ranks import MissingRankError, World

NEEDS = ()
SMALLER_WITHOUT = ("gpu",)

__all__ = [
    "Steps", "accuracy", "batches", "digits", "fits", "gap", "gradients", "group", "loss_of", "memory_cap",
    "network", "numbers", "samples", "scaling", "stream", "take_turns", "train", "watch", "weights", "write_shards",
]  # fmt: skip


@exercise("07-1", points=6)
def averaged(task):
    """``averaged(gradients, comm)`` -> the gradients' mean over all ranks, with as few collectives as possible."""
    import torch

    ranks = task.rng.choice([3, 4, 5])
    generator = torch.Generator().manual_seed(task.seed)
    shapes = [(task.rng.randint(2, 5), task.rng.randint(2, 4)) for _ in range(task.rng.randint(3, 5))]
    own = [[torch.randn(shape, generator=generator, dtype=torch.double) for shape in shapes] for _ in range(ranks)]
    total = [sum(rank[i] for rank in own) for i in range(len(shapes))]
    world = World(ranks)
    try:
        given = [[g.clone() for g in rank] for rank in own]
        got = world.run(lambda comm: list(task.call(given[comm.rank], comm, returns=(list, tuple))))
    except MissingRankError as error:
        task.fail(str(error))
    with task.part(4, t("the mean, on every rank")):
        task.expect(all(len(result) == len(shapes) for result in got), t(
            "Return one averaged tensor for each gradient, in the same order."))
        task.expect(all(tuple(g.shape) == s for result in got for g, s in zip(result, shapes, strict=True)), t(
            "Each averaged gradient must have the shape of the gradient it belongs to."))

        def is_(factor):
            return all(torch.allclose(g, w * factor) for result in got for g, w in zip(result, total, strict=True))

        if not is_(1 / ranks):
            task.expect(not is_(1.0), t("That is the sum. Divide by the number of ranks, `comm.ranks`."))
            task.expect(not is_(1 / ranks**2), t("You divided twice: once is enough."))
            task.expect(not is_(0.5), t("You divided by 2, but there may be more ranks: take `comm.ranks`."))
            task.expect(any(world.calls), t("Nothing was sent: call `comm.all_reduce(tensor)`, it sums in place."))
            task.fail(t("Not the mean over the ranks: `comm.all_reduce` sums a tensor in place over all ranks, then "
                        "divide."))
    with task.part(2, t("one single collective")):
        task.expect(not task.parts[-1][2], t("First it has to be right."))
        task.expect(max(world.bytes) <= sum(g.numel() * 8 for g in total), t(
            "More bytes were sent than the gradients have: send each number once."))
        task.expect(max(world.calls) == 1, t(
            "Right, with {calls} collectives. Put all gradients into one bucket: `torch.cat` of the flat tensors, one "
            "`all_reduce`, then `split` and `view_as`.", calls=max(world.calls)))
    task.cost(max(world.calls), t("collectives"))


@exercise("07-2", points=5)
def my_samples(task):
    """``my_samples(n, rank, ranks, epoch)`` -> the numbers of this rank's samples in this epoch."""
    ranks = task.rng.choice([3, 4, 5])
    n = ranks * task.rng.randint(8, 14) + task.rng.randint(1, ranks - 1)  # never divides

    def lists(epoch, count=n, over=ranks):
        return [[int(i) for i in task.call(count, rank, over, epoch)] for rank in range(over)]

    first = lists(3)
    everything = list(itertools.chain(*first))
    with task.part(3, t("every sample exactly once")):
        task.expect(lists(3) == first, t(
            "Called again for the same epoch it gives other samples: seed the shuffle with `epoch`, and with nothing "
            "else."))
        task.expect(all(0 <= i < n for i in everything), t("Samples are numbered from 0 to n - 1."))
        doubles = len(everything) - len(set(everything))
        missing = n - len(set(everything))
        task.expect(not (doubles and missing), t(
            "{doubles} samples come twice and {missing} never: every rank must shuffle in the same way before each "
            "takes its part, so `rank` has no place in the seed.", doubles=doubles, missing=missing))
        task.expect(not missing, t(
            "{missing} of {n} samples are never seen: where n does not divide, some ranks get one more.",
            missing=missing, n=n))
        task.expect(not doubles, t("{doubles} samples come twice. Do not pad; let some ranks have one more.",
                                   doubles=doubles))
        task.expect(sorted(itertools.chain(*lists(0, 7, 2))) == list(range(7)), t(
            "With 7 samples and 2 ranks it is not every sample once."))
    sizes = [len(mine) for mine in first]
    with task.part(1, t("fair shares")):
        task.expect(not task.parts[0][2], t("First it has to be right."))
        task.expect(max(sizes) - min(sizes) <= 1 and sum(sizes) == n, t(
            "The ranks have {sizes} samples. No rank should have two more than another: the others wait for it.",
            sizes=", ".join(map(str, sizes))))
    with task.part(1, t("a new order in every epoch")):
        task.expect(not task.parts[0][2], t("First it has to be right."))
        task.expect(lists(4) != first, t("The order is the same in every epoch: use `epoch` as the seed."))
        task.expect(everything != sorted(everything) and first[0] != sorted(first[0]), t(
            "Not shuffled: the samples come in the order of the file."))


class Shard:
    """A shard that notes when it is opened: ``load()`` gives its samples, ``len()`` costs nothing."""

    def __init__(self, rows: list, opened: list, number: int):
        self._rows, self._opened, self._number = rows, opened, number

    def __len__(self):
        return len(self._rows)

    def __repr__(self):
        return f"<shard {self._number}>"

    def load(self) -> list:
        self._opened.append(self._number)
        return list(self._rows)


@exercise("07-3", points=6)
def stream_of(task):
    """``stream(shards, rank, ranks, done)`` yields this rank's samples from the shards k = rank, rank + ranks, …"""
    ranks, count = task.rng.choice([2, 3]), task.rng.randint(7, 10)
    numbered, shards = itertools.count(), []
    opened: list[int] = []
    for number in range(count):
        rows = [f"sample-{next(numbered)}" for _ in range(task.rng.randint(3, 6))]
        shards.append(Shard(rows, opened, number))
    truth = [[row for shard in shards[rank::ranks] for row in shard._rows] for rank in range(ranks)]

    def taken(rank, done=0):
        """What comes out, at most a few more than should, and which shards were opened for it."""
        opened.clear()
        found = list(itertools.islice(iter(task.call(shards, rank, ranks, done)), len(truth[rank]) + 50))
        return found, list(opened)

    got = [taken(rank) for rank in range(ranks)]
    rows = [found for found, _ in got]
    with task.part(3, t("every sample exactly once")):
        everything = list(itertools.chain(*rows))
        task.expect(len(set(everything)) == len(everything), t(
            "Some samples come more than once: shard k belongs to rank k % ranks and to no other."))
        task.expect(len(everything) == sum(map(len, shards)), t(
            "{got} of {all} samples come out: go through all shards from `rank` on, in steps of `ranks`.",
            got=len(everything), all=sum(map(len, shards))))
        task.expect(rows == truth, t("Right samples, wrong order or wrong rank: shard k belongs to rank k % ranks."))
        task.expect(all(len(files) == len(set(files)) for _, files in got), t("A shard was opened twice."))
    with task.part(2, t("goes on where it stopped")):
        task.expect(not task.parts[-1][2], t("First it has to be right from the beginning."))
        rank = task.rng.randrange(ranks)
        mine = shards[rank::ranks]
        for done in (len(mine[0]) + 1, len(mine[0]), len(mine[0]) + len(mine[1]) - 1):
            found, files = taken(rank, done)
            task.expect(found == truth[rank][done:], t(
                "With done = {done} it must go on with this rank's sample number {done}, counted from 0.", done=done))
            task.expect(rank not in files, t(
                "A shard whose samples are all done was opened again. `len(shard)` tells how many to skip, without "
                "`load()`."))
    with task.part(1, t("one shard in memory at a time")):
        task.expect(not task.parts[0][2], t("First it has to be right from the beginning."))
        opened.clear()
        next(iter(task.call(shards, 0, ranks, 0)))
        task.expect(len(opened) == 1, t(
            "{count} shards were opened before the first sample came out. Use `yield` inside the loop, so that the "
            "next shard waits until it is needed.", count=len(opened)))
