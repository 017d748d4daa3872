"""Generated kernel source, made readable: no paths, no addresses, no book-keeping lines."""

from __future__ import annotations

import ast
import html
import re
from dataclasses import dataclass, field

from labkit._wrapper_code import kernel_sources
from labkit.language import t

# (pattern, replacement), in order. Each takes away what a reader of the arithmetic does not need.
_CPP_TIDY = (
    (re.compile(r"^.*inductor_cpu_(integer_div_error|throw_if_integer_div_error).*\n", re.M), ""),
    (re.compile(r'#include [<"](?:[^>"]*/)?([^/>"]+)[>"]'), r"#include <\1>"),
    (re.compile(r"static_cast<(?:int64_t|long|float|std::size_t)>\((-?[0-9.e+-]+)L?\)"), r"\1"),
    (re.compile(r"\bstd::size_t\((\d+)\)"), r"\1"),
    (re.compile(r"\bat::vec::"), ""),
)
_TRITON_DROP = re.compile(r"^\s*(import |from |@triton_heuristics|triton_helpers\.|tl_math|libdevice)")


@dataclass(frozen=True)
class LabSource:
    """Sources of generated kernels: ``kernels`` maps a kernel's name to its tidied text, ``raw`` to the full one."""

    kernels: dict[str, str]
    raw: dict[str, str] = field(repr=False)
    language: str = "cpp"

    @classmethod
    def from_wrappers(cls, wrappers) -> LabSource:
        kernels, raw, language = {}, {}, "cpp"
        for position, code in enumerate(wrappers):
            for name, language, text in kernel_sources(code):
                # Every graph numbers its kernels from 0: keep names of different graphs apart.
                key = name if name not in raw or raw[name] == text else f"{name}@{position}"
                raw[key] = text
                kernels[key] = tidy_cpp(text) if language == "cpp" else tidy_triton(text)
        return cls(kernels, raw, language)

    def __str__(self):
        if not self.kernels:
            return t("No kernel was generated: everything runs in library kernels.")
        mark = "//" if self.language == "cpp" else "#"
        return "\n\n".join(f"{mark} {name}\n{text}" for name, text in self.kernels.items())

    __repr__ = __str__

    def _repr_html_(self):
        if not self.kernels:
            return f"<p>{html.escape(str(self))}</p>"
        # Text only, no scripts and no ids: the same source gives the same bytes.
        return "".join(
            f"<details{'' if index else ' open'}><summary><code>{html.escape(name)}</code></summary>\n"
            f'<pre lang="en" style="line-height:1.3">{html.escape(text)}</pre></details>'
            for index, (name, text) in enumerate(self.kernels.items())
        )


def tidy_cpp(text: str) -> str:
    """A generated C++ kernel with plain numbers for casts, and half the indentation."""
    for pattern, replacement in _CPP_TIDY:
        text = pattern.sub(replacement, text)
    lines = [line.rstrip() for line in text.strip().splitlines()]
    return "\n".join(" " * (_indent(line) // 2) + line.lstrip() for line in lines if line)


def tidy_triton(text: str) -> str:
    """The ``@triton.jit`` function of a generated Triton kernel, without imports, heuristics and device facts."""
    try:
        functions = [node for node in ast.parse(text.strip()).body if isinstance(node, ast.FunctionDef)]
    except SyntaxError:
        functions = []
    if not functions:
        return "\n".join(line for line in text.strip().splitlines() if not _TRITON_DROP.match(line))
    lines = text.strip().splitlines()
    return "\n\n".join("\n".join(["@triton.jit", *lines[f.lineno - 1 : f.end_lineno]]) for f in functions)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
