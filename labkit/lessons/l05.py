"""Lesson 05, torch.compile: its checks, and everything that the lesson calls, under one name."""

from __future__ import annotations

import torch

from labkit import graphs
from labkit._breaks import Break
from labkit._cpp_kernels import patience
from labkit._enough_time import budget
from labkit._torch_private import is_compiled, quiet_logs
from labkit.exercises import exercise
from labkit.language import t
from labkit.lessons.compile_stages import stages
from labkit.lessons.compiled_families import FamilyTable, answer, family, losses_agree
from labkit.lessons.regional import FirstCalls, Tower, graph_sizes, regions
from labkit.lessons.traffic import traffic
from labkit.lessons.vector_loops import half_empty, half_empty_loop, one_core
from labkit.tasks import End, Task

NEEDS = ("compiler",)
SMALLER_WITHOUT = ("gpu", "compile")

__all__ = [
    "FamilyTable", "FirstCalls", "Tower", "answer", "budget", "family", "graph_sizes", "half_empty", "half_empty_loop",
    "losses_agree", "one_core", "patience", "quiet_logs", "regions", "stages", "traffic",
]  # fmt: skip

LONGEST, SIZES = 256, 5  # of exercise 05-2: the longest sentence, and how many lengths may be compiled


@exercise("05-1", points=6, limit_s=90)
def without_breaks(task):
    """``scaled_whole(x)`` -> tanh of ``x``, first divided by its largest absolute value where that is above 1."""
    generator = torch.Generator().manual_seed(task.seed)
    shape = (task.rng.randint(3, 9), task.rng.randint(3, 9))

    def fresh(peak: float):
        x = torch.rand(shape, generator=generator) * 0.8 * peak
        x[0, 0], x[1, 1] = -peak, 0.9 * peak  # the largest absolute value is that of a negative number
        return x

    task.call(fresh(2.0), returns=torch.Tensor)
    found = graphs.breaks(task.answer, fresh(3.0))
    for one in found:
        task.fail(_advice(one, len(found)))
    task.expect(found.graphs == 1, t(
        "No graph was compiled at all. Is the function kept away from the compiler, for instance by "
        "`torch.compiler.disable`?"))
    compiled = task.answer if is_compiled(task.answer) else torch.compile(task.answer, backend="eager", fullgraph=True)
    judged = Task(compiled, task.seed)  # the compiled function is asked, not a Python that could behave otherwise
    judged.returned = True
    for low, label in ((False, t("a peak above 1")), (True, t("a peak below 1"))):
        with task.part(3, label):
            for _ in range(3):
                x = fresh(task.rng.uniform(0.3, 0.8) if low else task.rng.uniform(2.0, 9.0))
                _compare_scaled(task, judged.call(x.clone(), returns=torch.Tensor), x)


def _advice(one: Break, count: int) -> str:
    if ".item()" in one.reason:
        return t("Still {count} graph break(s), the first in {where}: `.item()` fetches the number into Python. Leave "
                 "it a tensor.", count=count, where=one.where)
    if one.meaning != one.reason:
        return t("Still {count} graph break(s), the first in {where}: {why}. `torch.where` and `torch.clamp` decide "
                 "without Python.", count=count, where=one.where, why=one.meaning)
    return t("Still {count} graph break(s): {where} ({why}).", count=count, where=one.where, why=one.meaning)


def _compare_scaled(task, got, x) -> None:
    """End the part with the hint that fits unless ``got`` is right."""
    peak = x.abs().max()

    def is_(other):
        return got.shape == other.shape and torch.allclose(got, other, atol=1e-5)

    scaled = x / peak if peak > 1 else x
    if is_(torch.tanh(scaled)):
        return
    task.expect(not is_(scaled), t("`torch.tanh` at the end is missing."))
    task.expect(not is_(torch.tanh(x / x.max())), t("`abs()` is missing: the largest absolute value may be that of a "
                                                    "negative number."))  # fmt: skip
    if peak > 1:
        task.expect(not is_(torch.tanh(torch.where(x.abs() > 1, x / peak, x))), t(
            "You decided for each element. One decision holds for the whole tensor: look at `peak`, not at `x`."))
        task.expect(not is_(torch.tanh(x.clamp(-1, 1))), t("That cuts off what is above 1; divide everything instead."))
        task.expect(not is_(torch.tanh(x)), t("The peak is above 1, and nothing was divided."))
    task.expect(not is_(torch.tanh(x / peak)), t("The peak is below 1, and still you divided: then `x` stays as it "
                                                 "is."))  # fmt: skip
    task.fail(t("Compare with `scaled(x)` on a few tensors, with a peak above 1 and below."))


@exercise("05-2", points=6, limit_s=60)
def few_lengths(task):
    """``pad_to_bucket(x)`` on ``(batch, length, width)``: zeros at the end, so that few lengths are left."""
    generator = torch.Generator().manual_seed(task.seed)
    batch, width = task.rng.randint(2, 4), task.rng.randint(3, 6)
    lengths = {1, LONGEST, *(2**k + task.rng.randint(1, 2**k) for k in range(4, 8))}
    lengths |= {task.rng.randint(2, LONGEST - 1) for _ in range(14)}
    sentences = [torch.randn(batch, n, width, generator=generator) for n in sorted(lengths)]
    padded = [task.call(x.clone(), returns=torch.Tensor) for x in sentences]
    for x, got in zip(sentences, padded, strict=True):
        _contents(task, x, got)
    with task.part(3, t("few compilations")):
        compiles = graphs.recompiles(_sentence_mean, padded, dynamic=False)
        count = len({x.shape for x in padded})
        task.expect(not compiles.limit_reached and compiles.compiles <= SIZES, t(
            "{calls} batches came out in {count} lengths, and each length is compiled anew. At most {sizes} are "
            "wanted: for instance 16, 32, 64, 128, 256.", calls=len(padded), count=count, sizes=SIZES))
    with task.part(3, t("little padding")):
        task.expect(not task.parts[-1][2], t("First the number of lengths has to come down."))
        for x, got in zip(sentences, padded, strict=True):
            task.expect(got.shape[1] < max(17, 2 * x.shape[1]), t(
                "A batch of length {length} came out with length {padded}: more than half of it is padding. Take the "
                "next larger length of the few.", length=x.shape[1], padded=got.shape[1]))
    task.cost(sum(got.shape[1] - x.shape[1] for x, got in zip(sentences, padded, strict=True)), t("padded places"))


def _sentence_mean(x):
    return torch.tanh(x).sum(dim=1)


def _contents(task, x, got) -> None:
    """End the check unless ``got`` is ``x`` with zeros after it along dimension 1."""
    length = x.shape[1]
    task.expect(got.ndim == 3 and got.shape[::2] == x.shape[::2], t(
        "Only dimension 1, the length, may change: {before} became {after}. `F.pad` counts from the last dimension: "
        "`F.pad(x, (0, 0, 0, n))` adds `n` places to dimension 1.", before=tuple(x.shape), after=tuple(got.shape)))
    task.expect(got.shape[1] >= length, t("Length {length} was cut to {padded}.", length=length, padded=got.shape[1]))
    more = got.shape[1] - length
    task.expect(torch.equal(got[:, :length], x) or not torch.equal(got[:, more:], x), t(
        "The zeros stand in front. They belong behind the sentence."))
    task.expect(torch.equal(got[:, :length], x), t("The numbers of the sentence have changed; only add zeros."))
    task.expect(not got[:, length:].any(), t("The places added must hold zeros."))


@exercise("05-3", points=6, limit_s=60)
def block_by_block(task):
    """``compile_blocks(model, **options)``: compile every block of ``model.blocks`` by itself, in place."""
    torch.manual_seed(task.seed)
    model = Tower(task.rng.randint(3, 6), task.rng.choice([8, 12, 16]))
    names, depth, compiled = list(model.state_dict()), len(model.blocks), []
    x = torch.randn(4, model.head.in_features)
    expected = model(x).detach()

    def backend(graph, _inputs):
        compiled.append(graph)
        return graph.forward

    torch.compiler.reset()
    try:
        result = task.call(model, returns=torch.nn.Module, backend=backend)
        with torch.no_grad():
            got = result(x)
            entered = graphs.compiled_regions(result, x)
    except End as end:
        with torch.no_grad():
            model(x)
        if end.status == "todo" and compiled:
            raise End("wrong", t("The blocks are compiled; now `return model`.")) from None
        raise
    finally:
        torch.compiler.reset()
    with task.part(4, t("each block by itself, compiled once")):
        task.expect(entered, t("Nothing was compiled with the given options. Hand them on: "
                               "`block.compile(**options)`."))  # fmt: skip
        task.expect(entered != 1 or len(compiled) > 1 or not _holds_all(compiled[0], depth), t(
            "The whole model became one graph. Compile each of `model.blocks`, not `model`."))
        task.expect(entered == depth, t("{entered} of {depth} blocks run compiled.", entered=entered, depth=depth))
        task.expect(len(compiled) == 1, t("The block was compiled {count} times; once serves all.",
                                          count=len(compiled)))  # fmt: skip
        task.expect(torch.allclose(got, expected, atol=1e-5), t("The model gives another result than before."))
    with task.part(2, t("names of the weights as before")):
        task.expect(not task.parts[-1][2], t("First compile the blocks."))
        task.expect(list(result.state_dict()) == names, t(
            "`torch.compile(block)` gives a new module around the block, and its weights are now called "
            "`_orig_mod…`: a saved checkpoint no longer fits. `block.compile()` changes the block itself."))


def _holds_all(graph, depth: int) -> bool:
    return sum(node.target is torch.tanh for node in graph.graph.nodes) == depth
