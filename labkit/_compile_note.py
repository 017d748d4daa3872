"""What to know about a compiled candidate after its first call: graph breaks, or that it runs eager all along."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from labkit import _torch_private as private
from labkit import graphs
from labkit._breaks import first_line
from labkit.language import t


@contextlib.contextmanager
def noting() -> Iterator[Callable[[], str]]:
    """Watch the compilations inside; the function it gives says, after the block, what there is to know about them."""
    earlier = len(private.graph_break_reasons())
    with graphs.watching() as seen:
        yield lambda: _note(seen.compiles, private.graph_break_reasons()[earlier:])


def _note(compiles: int, breaks: list) -> str:
    if not compiles:
        return t("torch.compile found nothing to compile: this ran eager")
    if breaks:
        return t("{count} graph break(s): {reason}", count=len(breaks), reason=first_line(breaks[0].reason))
    return ""
