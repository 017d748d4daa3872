"""Checks of lesson 02, where the time goes."""

from __future__ import annotations

import math

from labkit.exercises import exercise
from labkit.language import t

NEEDS = ("compiler",)
SMALLER_WITHOUT = ("gpu", "compile")


@exercise("02-1", points=4)
def intensity(task):
    """``intensity(m, k, n, itemsize)`` -> FLOPs per byte of a matrix product, each matrix moved once."""
    cases = [(*task.rng.sample(range(2, 300), 3), task.rng.choice([2, 4, 8])) for _ in range(4)]
    got = [task.number(*case) for case in cases]

    def off_by(factor):
        return all(_near(g, factor * _intensity(*case)) for g, case in zip(got, cases, strict=True))

    def is_(other):
        return all(_near(g, other(*case)) for g, case in zip(got, cases, strict=True))

    task.expect(not off_by(0.5), t("Exactly half: one multiplication with one addition is two FLOPs."))
    task.expect(not is_(lambda m, k, n, i: 2 * m * k * n / (i * (m * k + k * n))), t(
        "You left out writing the result: it is moved, too."))
    task.expect(not is_(lambda m, k, n, i: 2 * m * k * n / (m * k + k * n + m * n)), t(
        "That is FLOPs per element. An element has `itemsize` bytes."))
    task.expect(not is_(lambda m, k, n, i: 1 / _intensity(m, k, n, i)), t("Upside down: FLOPs divided by bytes."))
    task.expect(off_by(1.0), t("FLOPs: `2 * m * k * n`. Bytes: three matrices, each moved once. Divide the two."))


@exercise("02-2", points=5)
def regime(task):
    """``regime(flops, moved, ops, flop_rate, bandwidth, start_s)`` -> the floor that takes longest."""
    for wanted in task.rng.sample(["compute", "memory", "overhead"], 3):
        floors = {name: task.rng.uniform(1e-4, 1e-3) for name in ("compute", "memory", "overhead")}
        floors[wanted] = task.rng.uniform(2e-3, 1e-2)
        rate, bandwidth, ops = task.rng.uniform(1e10, 1e12), task.rng.uniform(1e9, 1e11), task.rng.randint(2, 50)
        case = (floors["compute"] * rate, floors["memory"] * bandwidth, ops, rate, bandwidth, floors["overhead"] / ops)
        got = task.call(*case, returns=str)
        task.expect(got in floors, t('Return one of `"compute"`, `"memory"` and `"overhead"`, written just so.'))
        shortest = min(floors, key=floors.get)
        task.expect(got == wanted or got != shortest, t("You returned the shortest of the three; the longest decides."))
        task.expect(got == wanted or wanted != "overhead", t(
            "The preparations took longest here: `ops` operations, each of which takes `start_s` seconds to start."))
        task.expect(got == wanted, t("Turn all three into seconds (FLOPs / rate, bytes / bandwidth, operations times "
                                     "start) and compare those."))  # fmt: skip


@exercise("02-3", points=6)
def least_elements(task):
    """``least_elements(ops, start_s, bytes_each, bandwidth, share)`` -> least n with overhead <= share of the whole."""
    def case():
        return (task.rng.randint(2, 20), task.rng.uniform(1e-6, 2e-5), float(task.rng.choice([8, 16, 24])),
                task.rng.uniform(5e9, 5e10), task.rng.choice([0.5, 0.2, 0.1, 0.05]))  # fmt: skip

    def exact(ops, start_s, each, bandwidth, share):
        return ops * start_s * (1 - share) / share * bandwidth / each

    with task.part(4, t("the right size")):
        one = case()
        got, truth = task.number(*one), exact(*one)
        ops, share = one[0], one[4]
        right = _roughly(got, truth)  # at a share of one half, wrong ways lead there as well
        task.expect(right or not _roughly(got, truth / ops), t("Every operation is started, all `ops` of them."))
        task.expect(right or not _roughly(got, truth / (1 - share)), t(
            "You compared the preparations with the traffic alone; `share` is meant of preparations plus traffic."))
        task.expect(right or not _roughly(got, truth * (share / (1 - share)) ** 2), t(
            "That leaves the *traffic* at most `share` of the whole. It is the preparations that should be small."))
        task.expect(right, t("Preparations = share x (preparations + traffic). Solve for the traffic, "
                             "then turn it into elements."))  # fmt: skip
    with task.part(2, t("a whole number, rounded up")):
        for _ in range(4):
            one = case()
            got = task.number(*one)
            task.expect(float(got).is_integer(), t("An element is whole: return a whole number."))
            task.expect(abs(got - math.ceil(exact(*one) - 1e-6)) <= 1, t("Round up: one element less is too few."))


def _intensity(m, k, n, itemsize):
    return 2 * m * k * n / (itemsize * (m * k + k * n + m * n))


def _near(got, truth) -> bool:
    return math.isclose(got, truth, rel_tol=1e-6)


def _roughly(got, truth) -> bool:
    return math.isclose(got, truth, rel_tol=1e-3, abs_tol=2)
