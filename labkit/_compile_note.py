"""What to know about a compiled candidate after its first call: graph breaks, or that it runs eager all along."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from labkit import _torch_private as private
from labkit import graphs
from labkit._breaks import first_line
from labkit._profiling import runs_compiled
from labkit.language import t


@contextlib.contextmanager
def noting() -> Iterator[Callable[[Callable], str]]:
    """Watch the compilations inside; the function it gives is called after the block, with the step that was compiled,
    and says what there is to know about it. It runs the step once."""
    earlier = len(private.graph_break_reasons())
    with graphs.watching() as seen:
        yield lambda step: _note(seen.compiles, private.graph_break_reasons()[earlier:], step)


def _note(compiles: int, breaks: list, step: Callable) -> str:
    # No new compilation is no proof: code that an earlier candidate compiled may serve this one as well.
    if not compiles and not runs_compiled(step):
        return t("torch.compile found nothing to compile: this ran eager")
    if breaks:
        return t("{count} graph break(s): {reason}", count=len(breaks), reason=first_line(breaks[0].reason))
    return ""
