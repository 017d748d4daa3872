"""Lesson 05: vector loops in generated C++ that are shorter than their vector, so that most of it stays empty."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import torch

from labkit._graph_values import Kernels
from labkit._lab_source import LabSource

# ``for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(2L); x1+=static_cast<int64_t>(8L))``, tidied or not
_NUMBER = r"(?:static_cast<int64_t>\()?(\d+)L?\)?"
_LOOP = re.compile(rf"for\s*\(int64_t (\w+)={_NUMBER}; \1<{_NUMBER}; \1\+={_NUMBER}\)")
_SHOWN = 18  # lines of a loop that are enough to see what it does


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """torch uses one thread inside, in eager mode and in what is compiled and called there: no dividing of work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def loops(text: str) -> list[tuple[int, int]]:
    """(elements, step) of every loop of a generated C++ kernel that advances by more than one: the vector loops."""
    found = [(int(end) - int(begin), int(step)) for _name, begin, end, step in _LOOP.findall(text)]
    return [(elements, step) for elements, step in found if step > 1]


def half_empty(kernels: Kernels) -> int:
    """How many vector loops of these kernels have fewer elements than their vector has places; none in Triton code."""
    return sum(elements < step for text in kernels.source.raw.values() for elements, step in loops(text))


def half_empty_loop(source: LabSource) -> LabSource:
    """A few lines of such a loop, one that computes an exponential if there is one; the whole source where none is."""
    found = []
    for name, text in source.kernels.items():
        lines = text.splitlines()
        for number, line in enumerate(lines):
            if any(elements < step for elements, step in loops(line)):
                found.append((name, "\n".join(lines[max(0, number - 2) : number + _SHOWN])))
    if not found:
        return source
    name, excerpt = next((one for one in found if "exp()" in one[1]), found[0])
    return LabSource({name: excerpt}, {name: source.raw[name]}, source.language)
