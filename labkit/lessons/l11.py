"""Lesson 11, the capstone: its checks, and everything that the lesson calls, under one name."""

from __future__ import annotations

import math
import unicodedata

from labkit.exercises import exercise
from labkit.language import t
from labkit.lessons.capstone_view import TIE, Answers, race
from labkit.lessons.climbing import Ladder, whole
from labkit.lessons.ddp_events import group
from labkit.lessons.ladder import NAIVE, PACKED, RUNGS, Training, Way, final, together, train
from labkit.lessons.name_batches import (
    Batch,
    NameDataset,
    Order,
    packed,
    padded,
    plan,
    rows_of,
    steps,
    tokens_in,
)
from labkit.lessons.name_gpt import SIZES, Block, NameGPT, Names, Size, digest, invent, known_pairs, names, network
from labkit.lessons.rank_turns import comparison as turns_compared
from labkit.lessons.rank_turns import take_turns

NEEDS = ("compiler",)
SMALLER_WITHOUT = ("gpu", "compile")

__all__ = [
    "NAIVE", "PACKED", "RUNGS", "SIZES", "TIE", "Answers", "Batch", "Block", "Ladder", "NameDataset", "NameGPT",
    "Names", "Order", "Size", "Training", "Way", "digest", "final", "group", "invent", "known_pairs", "names",
    "network", "packed", "padded", "plan", "race", "rows_of", "steps", "take_turns", "together",
    "tokens_in", "train", "turns_compared", "whole",
]  # fmt: skip


@exercise("11-1", points=6)
def pack(task):
    """``pack(lengths, room)`` -> rows, each a list of indices whose lengths together are at most ``room``."""
    room = task.rng.randint(28, 34)
    cases = [[task.rng.randint(4, room // 2 + 6) for _ in range(task.rng.randint(40, 70))] for _ in range(3)]
    cases.append([room, room, 1])
    found = []
    for lengths in cases:
        rows = task.call(list(lengths), room, returns=(list, tuple))
        task.expect(all(isinstance(row, list | tuple) for row in rows), t(
            "Return a list of rows, each a list of the numbers of its names."))
        found.append([[int(index) for index in row] for row in rows])
    with task.part(3, t("every name once, no row too long")):
        for lengths, rows in zip(cases, found, strict=True):
            flat = sorted(index for row in rows for index in row)
            task.expect(flat != sorted(lengths), t(
                "The rows hold lengths. Put in the numbers of the names, from 0 on."))
            task.expect(len(set(flat)) == len(flat), t("A name stands in two rows."))
            task.expect(flat == list(range(len(lengths))), t(
                "{missing} of {count} names stand in no row.", missing=len(set(range(len(lengths))) - set(flat)),
                count=len(lengths)))
            over = [sum(lengths[index] for index in row) for row in rows]
            task.expect(max(over) <= room, t("A row holds {sum} tokens, and there is room for {room}.", sum=max(over),
                                             room=room))
    with task.part(3, t("few rows")):
        task.expect(not task.parts[0][2], t("First it has to be right."))
        for lengths, rows in zip(cases, found, strict=True):
            fewest = max(rows_of(lengths, room)) + 1
            rows = [row for row in rows if row]
            task.expect(len(rows) < len(lengths) or len(rows) <= fewest, t(
                "One name to a row: that is padding. Put several into one row."))
            task.expect(len(rows) <= fewest, t(
                "{rows} rows, but {fewest} are enough: take the longest names first, and put each into the first row "
                "where it still fits.", rows=len(rows), fewest=fewest))
    task.cost(sum(len(rows) for rows in found), t("rows"))


@exercise("11-2", points=5)
def times_sooner(task):
    """``times_sooner(naive, final)`` -> how many times sooner ``final`` gets to the last loss of ``naive``."""
    def curve(step_s, count, start_s=0.0, floor=1.9):
        return [(start_s + step_s * k, floor + 2.0 / (1 + 0.5 * k)) for k in range(1, count + 1)]

    step_s, compile_s = task.rng.uniform(4, 6), task.rng.uniform(3, 9)
    count = task.rng.randint(10, 14)
    naive, final_ = curve(step_s, count), curve(step_s / task.rng.uniform(2.2, 3.7), count + 4, compile_s)
    truth = naive[-1][0] / final_[count - 1][0]
    with task.part(3, t("to the same loss")):
        got = task.number(list(naive), list(final_))
        task.expect(not _near(got, naive[-1][0] / final_[-1][0]), t(
            "You divided the last seconds. `final` went on after it had reached the loss: stop its clock there."))
        task.expect(not _near(got, 1 / truth), t("Upside down: the seconds of `naive` divided by those of `final`."))
        without = naive[-1][0] / (final_[count - 1][0] - compile_s)
        task.expect(not _near(got, without), t("Compiling is part of the time until the loss is reached."))
        task.expect(_near(got, truth), t(
            "Take the last loss of `naive`. Find the first entry of `final` whose loss is no higher. Divide the "
            "seconds."))
    with task.part(2, t("when it never gets there")):
        high = [(after_s, loss + 5.0) for after_s, loss in final_]
        got = task.call(list(naive), high, returns=float | int)
        task.expect(got == 0, t("A training that never reaches the loss is 0 times as fast, however quick its steps."))


@exercise("11-3", points=4)
def new_names(task):
    """``new_names(made, training)`` -> those of ``made`` that are no copies, each once, in their order."""
    every = list(names().train)
    training = task.rng.sample(every, 60)
    known = [name for name in training if unicodedata.normalize("NFC", name) == name]
    marked = [name for name in every if "\u09af\u09bc" in name or "\u09a1\u09bc" in name]
    composed = task.rng.choice([name for name in marked if name not in training])
    training.append(composed)
    other_form = composed.replace("\u09af\u09bc", "\u09df").replace("\u09a1\u09bc", "\u09dc")
    fresh = [name[::-1] for name in task.rng.sample(every, 6)]
    fresh = [name for name in dict.fromkeys(fresh) if name not in training]

    def ask(made):
        return list(task.call(list(made), list(training), returns=(list, tuple)))

    made = [fresh[0], known[0], *fresh[1:]]
    with task.part(2, t("no copies, none twice")):
        got = ask([*made, fresh[0], ""])
        task.expect(known[0] not in got, t(
            "A name of the training set is still there: it is a copy, not an invention."))
        task.expect("" not in got, t("An empty name is no name."))
        task.expect(len(set(got)) == len(got), t("A name that was made twice counts once."))
        task.expect(got == fresh, t("All other names should stay, in the order in which they were made."))
    with task.part(2, t("copies in disguise")):
        task.expect(not task.parts[0][2], t("First it has to be right."))
        task.expect(ask([f" {known[0]} ", fresh[0]]) == fresh[:1], t(
            "A copy with a space at its end is a copy all the same: `strip()`."))
        task.expect(ask([other_form, fresh[0]]) == fresh[:1], t(
            "The same name, typed with other code points, slipped through. Compare in one form: "
            "`unicodedata.normalize(\"NFC\", name)`."))


def _near(got, truth) -> bool:
    return math.isclose(got, truth, rel_tol=1e-6, abs_tol=1e-9)
