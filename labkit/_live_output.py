"""What ranks print, shown while they run and, in a notebook, put in order when they have ended.

Ranks print in whatever order the machine runs them. A notebook keeps only the ordered text, so that the same cell gives
the same output every time: the live part is a display that is emptied at the end (its first and last content are equal,
which matters to nbval: it sees no updates).
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable

from labkit.language import t

_LIVE_LINES = 100
_REDRAW_S = 0.25
_KEPT_LINES = 1000


class LiveOutput:
    """``add`` lines as they come, ``finish`` with the text that stays."""

    def __init__(self, *, clock=time.monotonic):
        self._clock, self._drawn, self._lines = clock, 0.0, deque(maxlen=_LIVE_LINES)
        self._in_notebook = _kernel_runs()
        self._handle = None

    def add(self, label: str, line: str) -> None:
        line = f"[{label}] {line}"
        if not self._in_notebook:
            print(line, flush=True)
            return
        self._lines.append(line)
        if self._clock() - self._drawn >= _REDRAW_S:
            self._draw("\n".join(self._lines))

    def finish(self, text: str) -> None:
        if not self._in_notebook:
            return
        if self._handle is not None:
            self._draw("")
        if text:
            print(text, flush=True)

    def _draw(self, text: str) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display({"text/plain": ""}, raw=True, display_id=True)
        self._handle.update({"text/plain": text}, raw=True)
        self._drawn = self._clock()


def ordered(texts: Iterable[tuple[str, str]]) -> str:
    """(label, everything it printed) pairs as labelled lines, one label after the other."""
    lines = []
    for label, text in texts:
        own = text.splitlines()
        lines += [f"[{label}] {line}" for line in own[:_KEPT_LINES]]
        if len(own) > _KEPT_LINES:
            more = t("{count} more lines: print(lab.launch.log()) shows them", count=len(own) - _KEPT_LINES)
            lines.append(f"[{label}] … {more}")
    return "\n".join(lines)


def _kernel_runs() -> bool:
    """Is this a notebook kernel, and not a plain Python or a terminal IPython?"""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return getattr(shell, "kernel", None) is not None
