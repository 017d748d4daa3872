"""Graph breaks and recompilations as values, in words that hold no path, address or time."""

from __future__ import annotations

import html
import linecache
import re
from dataclasses import dataclass
from pathlib import Path

import torch

from labkit._graph_values import html_table
from labkit.language import t

_TORCH = str(Path(torch.__file__).parent)
_STEP = re.compile(r"^\d+/\d+: ")
_TYPE_GUARD = re.compile(r"___check_type_id\((.+?), \d+\),? type=<class '(.+?)'>.*", re.DOTALL)
_ID_GUARD = re.compile(r"___check_obj_id\((.+?), \d+\).*", re.DOTALL)


@dataclass(frozen=True)
class Break:
    """One place where Dynamo gave up a graph.

    ``where`` is ``"line 5: print(x)"``, outer calls first; ``reason`` is torch's own first line; ``skipped`` says that
    the whole function stays uncompiled.
    """

    where: str
    reason: str
    skipped: bool = False

    @property
    def meaning(self) -> str:
        """The reason in plain words, where it is one of the common ones; else torch's own."""
        if "generic_jump" in self.reason or "ata-dependent" in self.reason:
            return t("a branch depends on the value of a tensor")
        if "graph break in loop" in self.reason:
            return t("a break inside a loop: the whole function runs uncompiled")
        if "graph_break()" in self.reason:
            return t("graph_break() was called")
        if ".item()" in self.reason or "capture_scalar_outputs" in self.reason:
            return t("the value of a tensor is wanted as a Python number")
        if "builtin" in self.reason:
            return t("Python must run this call itself")
        return self.reason

    def __str__(self):
        return f"{self.where}  ({self.meaning})"


@dataclass(frozen=True)
class Breaks:
    """``graphs`` compiled, and the places between them. Iterates over its `Break` values."""

    graphs: int
    reasons: tuple[Break, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(one.where for one in self.reasons)

    def __len__(self):
        return len(self.reasons)

    def __iter__(self):
        return iter(self.reasons)

    def __repr__(self):
        return f"Breaks(graphs={self.graphs}, breaks={len(self)})"

    def __str__(self):
        head = t("graphs: {graphs}, graph breaks: {breaks}", graphs=self.graphs, breaks=len(self))
        return "\n".join([head, *(f"  {one}" for one in self.reasons)])

    def _repr_html_(self):
        head = f"<p>{html.escape(str(self).splitlines()[0])}</p>"
        if not self.reasons:
            return head
        return head + html_table((t("where"), t("why")), [(one.where, one.meaning) for one in self.reasons])


@dataclass(frozen=True)
class Recompile:
    """Call number ``call`` (from 1) compiled ``function`` again because ``guard`` no longer held."""

    call: int
    function: str
    guard: str

    def __str__(self):
        return t("call {call}: {guard}", call=self.call, guard=self.guard)


@dataclass(frozen=True)
class Recompiles:
    """How often a series of calls compiled. ``limit_reached``: Dynamo gave up, and the function now runs eagerly."""

    calls: int
    compiles: int
    reasons: tuple[Recompile, ...]
    limit_reached: bool

    @property
    def guards(self) -> tuple[str, ...]:
        return tuple(one.guard for one in self.reasons)

    def __len__(self):
        return len(self.reasons)

    def __iter__(self):
        return iter(self.reasons)

    def __repr__(self):
        end = ", limit_reached=True" if self.limit_reached else ""
        return f"Recompiles(calls={self.calls}, compiles={self.compiles}, recompiles={len(self)}{end})"

    def _head(self):
        head = t("calls: {calls}, recompilations: {count}", calls=self.calls, count=len(self))
        return f"{head}. {_limit_sentence()}" if self.limit_reached else head

    def __str__(self):
        return "\n".join([self._head(), *(f"  {one}" for one in self.reasons)])

    def _repr_html_(self):
        head = f"<p>{html.escape(self._head())}</p>"
        if not self.reasons:
            return head
        return head + html_table((t("call"), t("guard that failed")), [(one.call, one.guard) for one in self.reasons])


def _limit_sentence() -> str:
    return t("The recompile limit was reached: new inputs now run eagerly.")


def break_from_stack(reason: str, stack) -> Break:
    """A `Break` from torch's reason and the user's stack, without torch's own frames unless there are no others."""
    frames = [frame for frame in stack if not frame.filename.startswith(_TORCH)] or list(stack)[-1:]
    return Break(" > ".join(place(frame.lineno, frame.line or "") for frame in frames), first_line(reason))


def skipped_frame(record) -> Break:
    """A `Break` from the compilation record of a function that Dynamo gave up as a whole."""
    reason = record.fail_reason or ""
    line = record.fail_user_frame_lineno
    code = linecache.getline(record.fail_user_frame_filename or "", line or 0)
    # When a second break happened while the first was handled, the last one is why the function was skipped.
    last = reason.rpartition("another graph break occurred: ***")[2]
    return Break(place(line, code) if line else str(record.co_name), first_line(last), skipped=True)


def place(line: int, code: str) -> str:
    return f"line {line}: {code.strip()}"


def first_line(text: str) -> str:
    """The first line of torch's reason; what follows are explanations, hints and addresses."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[0] if lines else ""


def readable_guard(reason: str) -> str:
    """``0/1: ___check_type_id(k, 1402…), type=<class 'int'>  # def …`` -> ``type(k) is int``."""
    text = _STEP.sub("", reason.strip().splitlines()[0] if reason.strip() else "")
    text = text.partition("  #")[0].strip()
    text = _TYPE_GUARD.sub(r"type(\1) is \2", text)
    text = _ID_GUARD.sub(r"\1 is the same object", text)
    return re.sub(r"\b\d{10,}\b", "…", text)
