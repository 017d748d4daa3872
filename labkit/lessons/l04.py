"""Lesson 04, TorchScript: its checks, and everything that the lesson calls, under one name."""

from __future__ import annotations

import warnings

from labkit._cpp_kernels import patience
from labkit.exercises import exercise
from labkit.language import t
from labkit.lessons.deploying import RUN_CPP, aot_package, cpp_program
from labkit.lessons.fusion import agree
from labkit.lessons.scripting import (
    answer,
    export_refuses,
    inference,
    onednn_fused,
    peak_activations,
    running_graph,
    synthetic_sounds,
    voiced,
    work,
)  # fmt: skip

NEEDS = ("compiler",)
SMALLER_WITHOUT = ("gpu",)

__all__ = [
    "RUN_CPP", "agree", "answer", "aot_package", "cpp_program", "export_refuses", "inference", "onednn_fused",
    "patience", "peak_activations", "running_graph", "synthetic_sounds", "voiced", "work",
]


@exercise("04-1", points=5)
def without_dead(task):
    """``without_dead(program, result)`` -> the lines ``(name, operation, inputs)`` that ``result`` needs, in order."""
    simple = [("a", "relu", ("x",)), ("b", "exp", ("x",)), ("c", "add", ("a", "x"))]
    programs = [_program(task.rng) for _ in range(6)]
    first = _lines(task, simple, "c")
    got = [_lines(task, *case) for case in programs]
    truth = [_needed(*case) for case in programs]
    with task.part(2, t("one dead line")):
        task.expect(first != simple, t("Nothing was left out. Nobody reads `b`, so its line can go."))
        task.expect(("c", "add", ("a", "x")) in first, t("The result itself must stay, although no line reads it."))
        task.expect(sorted(first) != sorted(simple[::2]) or first == simple[::2], t(
            "The right lines, but in another order. A line must come before those that read it."))
        task.expect(first == simple[::2], t("Keep the lines of `a` and `c` here, just as they are: whole tuples."))
    with task.part(3, t("chains of dead lines")):
        once = [[line for line in lines if line[0] == result or any(line[0] in other[2] for other in lines)]
                for lines, result in programs]  # fmt: skip
        task.expect(got != once, t(
            "A line that only a dead line reads is dead too. Go through the program from its end to its beginning."))
        task.expect(got == truth, t(
            "Begin with the names needed: only `result`. Going backwards, keep a line whose name is needed, and its "
            "inputs are needed from then on."))


def _lines(task, program, result) -> list:
    """What the learner makes of a copy of the program, as a list of tuples."""
    kept = task.call(list(program), result, returns=list)
    return [tuple(line) if isinstance(line, list) else line for line in kept]


def _program(rng) -> tuple[list, str]:
    """A random program of 12 lines with a result in it, and a chain of dead lines for certain."""
    names = ["x"]
    lines = []
    for number in range(12):
        inputs = tuple(rng.choice(names) for _ in range(rng.randint(1, 2)))
        lines.append((f"v{number}", rng.choice(["relu", "exp", "add"]), inputs))
        names.append(f"v{number}")
    lines += [("v12", "exp", ("v11",)), ("v13", "relu", ("v12",))]
    return lines, f"v{rng.randint(5, 9)}"


def _needed(lines, result) -> list:
    """Reached from the result by following inputs, until nothing is added."""
    inputs = {name: read for name, _, read in lines}
    needed, size = {result}, 0
    while len(needed) != size:
        size = len(needed)
        needed |= {read for name in needed for read in inputs.get(name, ())}
    return [line for line in lines if line[0] in needed]


@exercise("04-2", points=5)
def safe_to_trace(task):
    """``limit(x)``: divide by the largest magnitude where that is above 1; its trace must be right on every input."""
    import torch

    scale = task.rng.uniform(2, 9)
    generator = torch.Generator().manual_seed(task.seed)
    quiet = torch.rand(50, generator=generator).sub_(0.5)
    loud = scale * quiet
    loud[task.rng.randrange(50)] = -2 * scale  # the largest magnitude is negative
    silent = torch.zeros(50)
    cases = [quiet, loud, silent]
    truth = [x / max(1.0, x.abs().max().item()) for x in cases]

    def are(tensors, others) -> bool:
        return all(torch.allclose(a, b, atol=1e-6) for a, b in zip(tensors, others, strict=True))

    plain = [task.call(x.clone(), returns=torch.Tensor) for x in cases]
    with task.part(2, t("right in eager mode")):
        task.expect(not torch.allclose(plain[1], loud.clamp(-1, 1)), t(
            "That cuts off single values. Here the whole tensor is divided by one number."))
        task.expect(not torch.allclose(plain[1], loud / loud.max()), t(
            "The largest magnitude may belong to a negative number: take `abs()` first."))
        task.expect(torch.allclose(plain[0], quiet), t("A tensor that stays below 1 must come back as it is."))
        task.expect(are(plain, truth), t("Divide by `x.abs().max()` where that is above 1; else leave `x` alone."))
    with task.part(3, t("right when traced")):
        task.expect(are(plain, truth), t("First it has to be right in eager mode."))
        traced = _traced(task, quiet)
        task.expect(are([traced(x.clone()) for x in cases], truth), t(
            "The trace remembers the way that its one example took. Let no `if`, no `float()` and no `.item()` depend "
            "on the numbers: compute with tensors, such as `torch.clamp(peak, min=1.0)` or `torch.where`."))
        traced = _traced(task, loud)
        task.expect(are([traced(x.clone()) for x in cases], truth), t(
            "Traced with a loud example it is wrong on quiet ones: a decision still depends on the numbers."))


def _traced(task, example):
    """The trace of the learner's function; a function that was scripted keeps its decisions and needs none."""
    import torch

    if isinstance(task.answer, torch.jit.ScriptFunction):
        return task.answer
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(task.answer, example, check_trace=False)


@exercise("04-3", points=8)
def fold(task):
    """``fold(weight, bias, mean, var, gamma, beta, eps)`` -> weight and bias of one convolution that does both."""
    import torch
    import torch.nn.functional as F

    generator = torch.Generator().manual_seed(task.seed)
    out, into, eps = task.rng.randint(4, 6), task.rng.randint(2, 3), task.rng.uniform(0.2, 0.5)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    weight, bias, mean, gamma, beta = draw(out, into, 3, 3), draw(out), draw(out), draw(out), draw(out)
    var, x = draw(out).square() + 0.3, draw(2, into, 7, 7)
    arguments = (weight, bias, mean, var, gamma, beta)
    pair = task.call(*(value.clone() for value in arguments), eps, returns=(tuple, list))
    task.expect(len(pair) == 2 and all(isinstance(value, torch.Tensor) for value in pair), t(
        "Return two tensors, the new weight and the new bias: `return new_weight, new_bias`."))
    new_weight, new_bias = pair
    scale = gamma / torch.sqrt(var + eps)

    def is_(got, other):
        return got.shape == other.shape and torch.allclose(got, other)

    with task.part(4, t("weight")):
        task.expect(new_weight.shape == weight.shape, t(
            "The new weight needs the shape of the old one. Give the scale of each output channel the shape "
            "`(-1, 1, 1, 1)`."))
        task.expect(not is_(new_weight, weight * (gamma / var.sqrt()).view(-1, 1, 1, 1)), t("`eps` is missing."))
        task.expect(not is_(new_weight, weight * (gamma / (var + eps)).view(-1, 1, 1, 1)), t(
            "Batch norm divides by the standard deviation: take the root of `var + eps`."))
        task.expect(not is_(new_weight, weight), t("The weight has to change, too: multiply it by the scale."))
        expected = F.batch_norm(F.conv2d(x, weight), torch.zeros_like(mean), var, gamma, eps=eps)
        task.expect(torch.allclose(F.conv2d(x, new_weight), expected), t(
            "Scale of each output channel: `gamma / torch.sqrt(var + eps)`. Multiply the weight by it."))
    with task.part(4, t("bias")):
        task.expect(not is_(new_bias, beta - mean * scale), t("The bias that the convolution had is missing."))
        task.expect(not is_(new_bias, (bias - mean) * scale), t("`beta` is missing at the end."))
        task.expect(not is_(new_bias, bias - mean + beta), t("`bias - mean` has to be scaled like the weight."))
        task.expect(not is_(new_bias, bias * scale + beta), t("`mean` is missing: batch norm subtracts it first."))
        task.expect(is_(new_bias, beta + (bias - mean) * scale), t(
            "What becomes of the old bias in batch norm? Subtract `mean`, multiply by the scale, add `beta`."))
