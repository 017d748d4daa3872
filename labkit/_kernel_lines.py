"""Which lines of Python each kernel of a compiled call came from, and the bytes it moves: the linked view of a lab."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from labkit import _torch_private as private
from labkit._lab_source import LabSource
from labkit._measurement_view import CELL
from labkit._undisturbed import copied, undisturbed
from labkit._wrapper_code import read_wrapper
from labkit.language import t
from labkit.units import size

_FRAME = re.compile(r'File "[^"]*", line (\d+), in [^\n]*\n\s*([^\n]+)')
SHOWN = 12


@dataclass(frozen=True)
class KernelCall:
    """One launch: ``lines`` of Python in the order they stand in the code; ``bytes_moved`` is None where unknown."""

    name: str
    lines: tuple[str, ...]
    bytes_moved: int | None


@dataclass(frozen=True)
class KernelLines:
    """The kernel calls of one compiled call, in order, and the sources of the generated ones."""

    calls: tuple[KernelCall, ...]
    source: LabSource

    def html(self) -> str:
        """A table of Python line, kernel and bytes, the first ``SHOWN``; below it the generated sources to open."""
        heads = (t("Python line"), t("kernel"), t("bytes read and written"))
        head = "".join(f'<th scope="col" style="{CELL}">{html.escape(text)}</th>' for text in heads)
        body = "".join(_row(number, call) for number, call in enumerate(self.calls[:SHOWN], 1))
        more = len(self.calls) - SHOWN
        rest = f"<p>{html.escape(t('… and {count} more kernels.', count=more))}</p>" if more > 0 else ""
        return (f'<details><summary>{html.escape(t("Python line, kernel, bytes: side by side"))}</summary>\n'
                f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
                f"{rest}{_sources(self.source)}</details>")  # fmt: skip


def kernel_lines(fn, *args, **compile_options) -> KernelLines:
    """Compile ``fn`` anew for ``args``, without gradients, and link its kernels to their lines.

    With gradients torch loses the lines on the way. State as in `labkit.graphs`.

    Raises TorchMovedError where this torch does not keep track of the lines.
    """
    private.reset_dynamo()
    try:
        with torch.no_grad(), undisturbed(fn), private.quiet(), private.captured_origins() as found:
            torch.compile(fn, **compile_options)(*copied(args))
    finally:
        private.reset_dynamo()
    calls = []
    for code, stacks in found:
        for number, (name, moved) in enumerate(read_wrapper(code).calls, 1):
            mine = [stack for key, stack in stacks.items() if key.rpartition(":")[2] == str(number)]
            calls.append(KernelCall(name, _lines(mine[0] if mine else ()), moved))
    return KernelLines(tuple(calls), LabSource.from_wrappers(code for code, _stacks in found))


def _lines(stacks: Sequence[str]) -> tuple[str, ...]:
    """The innermost line of each stack, each once, by its place in the code."""
    innermost = [frames[-1] for stack in stacks if (frames := _FRAME.findall(stack))]
    return tuple(dict.fromkeys(text.strip() for _line, text in sorted(innermost, key=lambda one: int(one[0]))))


def _row(number: int, call: KernelCall) -> str:
    lines = "".join(f"<div><code>{html.escape(line)}</code></div>" for line in call.lines) or "–"
    moved = "–" if call.bytes_moved is None else size(call.bytes_moved)
    edge = "border-top:1px solid var(--jp-border-color2,#bbb)"
    return (f'<tr style="{edge}"><td style="{CELL}" lang="en">{lines}</td>'
            f'<td style="{CELL}" lang="en"><code>{number}: {html.escape(call.name)}</code></td>'
            f'<td style="{CELL}">{moved}</td></tr>')  # fmt: skip


def _sources(source: LabSource) -> str:
    """Every generated kernel to be opened, the first three; plain text keeps a page of kernels small."""
    shown = list(source.kernels.items())[:3]
    return "".join(
        f'<details><summary lang="en"><code>{html.escape(name)}</code></summary>\n'
        f'<pre lang="en" style="line-height:1.3;overflow-x:auto">{html.escape(text)}</pre></details>'
        for name, text in shown
    )
