"""Lesson 08, model parallelism: its checks, and everything that the lesson calls, under one name."""

from __future__ import annotations

import inspect
import math
import textwrap

from labkit.exercises import exercise
from labkit.language import t
from labkit.lessons.activations import activation_numbers, alive_bytes
from labkit.lessons.model_memory import NETWORKS, rank_memory, training_table
from labkit.lessons.pipeline_view import gantt, idle_shares, kept_table, shares_table, typical
from labkit.lessons.rank_turns import comparison
from labkit.lessons.resnet import ResNet
from labkit.lessons.schedules import StuckError, bubble, gpipe, one_f_one_b, orders, plan
from labkit.lessons.transformer import Block, blocks

NEEDS = ()
SMALLER_WITHOUT = ("gpu",)

__all__ = [
    "Block", "NETWORKS", "ResNet", "activation_numbers", "alive_bytes", "blocks", "bubble", "code_of", "comparison",
    "gantt", "gpipe", "idle_shares", "kept_table", "one_f_one_b", "orders", "plan", "rank_memory", "ranks_that_fit",
    "shares_table", "training_table", "typical",
]

RANK_BYTES = 700e6  # of memory that a rank of this lesson's size takes, torch itself included


def code_of(*things) -> None:
    """Print the source of functions and classes, so that what runs in the ranks can be read."""
    print("\n\n".join(textwrap.dedent(inspect.getsource(thing)).rstrip() for thing in things))


def ranks_that_fit(wanted: int) -> int:
    """``wanted`` ranks when this machine's free memory holds them, else two. Where it cannot be read: ``wanted``."""
    try:
        with open("/proc/meminfo") as file:
            free = next(int(line.split()[1]) * 1000 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return wanted
    return wanted if free > wanted * RANK_BYTES else 2


@exercise("08-1", points=5)
def rank_bytes(task):
    """``rank_bytes(parameters, ranks, stage)`` -> bytes on one rank in mixed precision with Adam, activations aside."""
    cases = [(task.rng.randint(3, 10**6) * 840, task.rng.choice([2, 3, 4, 5, 6, 7, 8]), stage) for stage in range(4)]
    alone = (840 * task.rng.randint(3, 10**6), 1, 3)
    got = [task.number(*case) for case in cases]
    truth = [_held(*case) for case in cases]
    if got[0] != truth[0]:
        task.expect(got[0] != 12 * cases[0][0], t(
            "12 bytes a parameter: that is the optimizer alone, or its copy of the weights is missing. Weights 2, "
            "gradients 2, and for Adam 12."))
        task.expect(got[0] != 8 * cases[0][0] and got[0] != 6 * cases[0][0], t(
            "Adam keeps three numbers of 4 bytes for each parameter: its own copy of the weight, and two means."))
        task.expect(got[0] * cases[0][1] != truth[0], t(
            "Stage 0 is plain data parallelism: every rank has everything. Nothing is divided."))
    with task.part(1, t("one rank")):
        task.expect(task.number(*alone) == 16 * alone[0], t("With one rank there is nothing to divide: 16 bytes."))
    with task.part(1, t("stage 0")):
        task.expect(got[0] == truth[0], t("Weights 2 bytes, gradients 2, Adam 12: together, whole, on every rank."))
    with task.part(3, t("stages 1, 2 and 3")):
        everything = [16 * parameters / ranks for parameters, ranks, _ in cases]
        task.expect(got[1:3] != everything[1:3], t(
            "You divided everything. Stage 1 divides only the optimizer states, stage 2 the gradients as well."))
        only_one = [16 * n - b * n + b * n / r for (n, r, _), b in zip(cases, (0, 12, 2, 2), strict=True)]
        task.expect(got[2:] != only_one[2:], t(
            "The stages add up: stage 2 divides what stage 1 divides, and the gradients too."))
        task.expect(all(map(_same, got, truth)), t(
            "Stage 1 divides the 12 bytes of Adam, stage 2 the 2 of the gradients too, stage 3 the 2 of the weights."))


def _held(parameters: int, ranks: int, stage: int) -> float:
    """Deal every byte out on paper: what is not divided lies on every rank, what is divided on one of them."""
    in_all = 0
    for bytes_each, divided_from in ((2, 3), (2, 2), (12, 1)):
        in_all += parameters * bytes_each * (1 if stage >= divided_from else ranks)
    return in_all / ranks


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9)


@exercise("08-2", points=8)
def one_f_one_b_order(task):
    """``order(me, ranks, micro)`` -> rank ``me``'s work as a list of ("F", i) and ("B", i)."""
    cases = [(2, 4), (task.rng.randint(3, 5), task.rng.randint(5, 9)), (task.rng.randint(3, 6), 2)]
    found = {}
    with task.part(2, t("every forward and backward once")):
        for ranks, micro in cases:
            found[ranks, micro] = [_order(task, me, ranks, micro) for me in range(ranks)]
    plans = {}
    with task.part(2, t("no rank waits for ever")):
        task.expect(len(found) == len(cases), t("First every rank must do all of its work."))
        for (ranks, micro), rows in found.items():
            try:
                plans[ranks, micro] = plan(lambda me, *_, rows=rows: rows[me], ranks, micro)
            except StuckError as error:
                task.fail(str(error))
    with task.part(2, t("no more bubbles than GPipe")):
        task.expect(len(plans) == len(cases), t("First it has to run to its end."))
        for (ranks, micro), it in plans.items():
            least = 2 * ranks * (ranks - 1)
            task.expect(it.idle <= least, t(
                "{ranks} ranks and {micro} micro-batches: {idle} idle slots; {least} are enough. Does a rank wait for "
                "a gradient while it could do a forward?", ranks=ranks, micro=micro, idle=round(it.idle), least=least))
    with task.part(2, t("few micro-batches wait")):
        task.expect(len(plans) == len(cases), t("First it has to run to its end."))
        for (ranks, micro), it in plans.items():
            most = [min(ranks - me, micro) for me in range(ranks)]
            task.expect(it.waiting != [micro] * ranks or most == it.waiting, t(
                "That is GPipe: every micro-batch waits. Begin with a backward as soon as the gradient can be there."))
            task.expect(all(map(_at_most, it.waiting, most)), t(
                "{ranks} ranks and {micro} micro-batches: on the ranks {waiting} micro-batches wait at the same time; "
                "{most} are enough.", ranks=ranks, micro=micro, waiting=it.waiting, most=most))


def _at_most(one: int, other: int) -> bool:
    return one <= other


def _order(task, me: int, ranks: int, micro: int) -> list[tuple[str, int]]:
    """The learner's order for one rank, which must hold every piece of work once, forward before backward."""
    given = task.call(me, ranks, micro, returns=(list, tuple))
    try:
        order = [(str(kind), int(i)) for kind, i in given]
    except (TypeError, ValueError):
        task.fail(t('Return a list of pairs such as [("F", 0), ("B", 0)].'))
    wanted = sorted((kind, i) for kind in "FB" for i in range(micro))
    task.expect(sorted(order) == wanted, t(
        "Rank {me} of {ranks} with {micro} micro-batches: each number from 0 to {last} must stand there once with F "
        "and once with B.", me=me, ranks=ranks, micro=micro, last=micro - 1))
    early = next((i for i in range(micro) if order.index(("B", i)) < order.index(("F", i))), None)
    task.expect(early is None, t("B{i} stands before F{i}: a gradient needs its forward first.", i=early))
    return order


@exercise("08-3", points=6)
def part_of_mlp(task):
    """``my_part(x, up, down, me, ranks)`` -> this rank's addend of ``gelu(x @ up) @ down``: (batch, width)."""
    import torch
    import torch.nn.functional as F
    from torch.utils.flop_counter import FlopCounterMode

    ranks, batch = task.rng.choice([2, 3, 4]), task.rng.randint(2, 6)
    width = 12 * task.rng.randint(1, 3)
    random = torch.Generator().manual_seed(task.seed)
    shapes = ((batch, width), (width, 4 * width), (4 * width, width))
    x, up, down = (torch.randn(shape, generator=random, dtype=torch.double) for shape in shapes)
    parts, flops = [], []
    for me in range(ranks):
        with FlopCounterMode(display=False) as counter:
            parts.append(task.call(x.clone(), up.clone(), down.clone(), me, ranks, returns=torch.Tensor))
        flops.append(counter.get_total_flops())
    with task.part(1, t("the shape")):
        shape = tuple(parts[0].shape)
        task.expect(shape == (batch, width), t("Wanted shape {wanted}, got {shape}. After `down` it is as wide as x.",
                                               wanted=(batch, width), shape=shape))
    with task.part(3, t("the sum over the ranks")):
        task.expect(not task.parts[-1][2], t("First the shape has to be right."))
        whole, total = F.gelu(x @ up) @ down, sum(part.double() for part in parts)
        task.expect(not torch.allclose(total, ranks * whole), t(
            "The sum is {ranks} times too large: every rank computed everything. Take only this rank's columns of `up` "
            "and rows of `down`.", ranks=ranks))
        task.expect(not torch.allclose(total, x @ up @ down), t("GELU is missing: it stands between the two products."))
        rows = sum(F.gelu(a @ b) for a, b in zip(x.chunk(ranks, 1), up.chunk(ranks, 0), strict=True)) @ down
        task.expect(not torch.allclose(total, rows), t(
            "You cut `up` by rows. Then each rank has only a part of every sum, and GELU of parts is not a part of "
            "GELU. Cut `up` by columns: `dim=1`."))
        task.expect(torch.allclose(total, whole), t(
            "The ranks' parts do not add up to `F.gelu(x @ up) @ down`. `up` by columns (`dim=1`), `down` by rows "
            "(`dim=0`), and both cuts at the same place."))
    with task.part(2, t("an equal share of the work")):
        task.expect(not task.parts[-1][2], t("First the sum has to be right."))
        in_all = 2 * batch * width * 4 * width * 2
        task.expect(flops == [in_all // ranks] * ranks, t(
            "Each rank should do {wanted} FLOPs, an equal share; counted: {flops}. Cut the weights before you "
            "multiply.", wanted=in_all // ranks, flops=flops))
