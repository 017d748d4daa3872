"""Read the wrapper code that Inductor generates: which kernels one call of a graph launches, and their sources.

A wrapper is a Python file. Generated kernels are assigned at its top (``name = async_compile.cpp_pybinding(…)`` or
``.triton(…)``), and the function ``call`` launches them, beside library ("extern") kernels such as
``extern_kernels.mm`` and ``torch.ops.aten.convolution_backward.default``. The file is parsed, never searched as text:
comments name kernels too.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from labkit._wrapper_bytes import WrapperBytes
from labkit.language import t

_PHASE = re.compile(r"# AOT ID: \['[^']*?_(forward|backward|inference)'\]")
_NOT_IN_CALL = ("benchmark_compiled_module", "get_args", "recursively_apply_fns", "__init__")
# Calls that hand out or wait for memory and compute nothing.
_NO_WORK = ("_alloc_from_pool", "_reinterpret_tensor", "wait_tensor", "empty", "empty_strided", "set_")


@dataclass(frozen=True)
class GraphKernels:
    """Kernel calls of one compiled graph: ``phase`` is ``"forward"``, ``"backward"`` or ``"inference"``."""

    phase: str
    fused: tuple[str, ...]
    extern: tuple[str, ...]
    bytes_moved: int | None  # None where a size is only known at run time
    wrapper: str
    calls: tuple[tuple[str, int | None], ...] = ()  # kernel and bytes, in the order of launch

    def __repr__(self):
        return f"GraphKernels({self.phase}: fused={len(self.fused)}, extern={len(self.extern)})"


def read_wrapper(code: str) -> GraphKernels:
    """Count the kernel calls of one wrapper.

    Raises ValueError when ``code`` is not a Python wrapper with a ``call`` function (the C++ wrapper, for example).
    """
    tree = ast.parse(code)
    generated = {name: text for name, _kind, text in _generated(tree)}
    bodies = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name not in _NOT_IN_CALL]
    if "CppWrapperCodeCache" in code or not any(body.name == "call" for body in bodies):
        raise ValueError(
            t(
                "This is not the Python wrapper that Inductor writes, so its kernels cannot be counted. Perhaps the "
                "C++ wrapper is switched on: set torch._inductor.config.cpp_wrapper = False and count again."
            )
        )
    fused, extern, sizes = [], [], WrapperBytes(tree, generated)
    launched: list[tuple[str, int]] = []  # and the sum of bytes before it: a library result's size is stated later
    for node, target in _in_order(bodies):
        if isinstance(node, ast.Assign):
            sizes.assign(node)
            continue
        name = ast.unparse(node.func)
        first, _, rest = name.partition(".")
        if first in generated and rest in ("", "run"):
            fused.append(first)
            launched.append((first, sizes.total))
            sizes.generated(first, node)
        elif _is_extern(name):
            extern.append(_extern_name(name))
            launched.append((extern[-1], sizes.total))
            sizes.library(node, target)
        elif name == "assert_size_stride":
            sizes.size_stated(node)
    phase = _PHASE.search(code)
    moved = sizes.total if sizes.is_complete else None
    ends = [*(before for _name, before in launched[1:]), sizes.total]
    calls = tuple((name, None if moved is None else end - before)
                  for (name, before), end in zip(launched, ends, strict=True))  # fmt: skip
    return GraphKernels(phase[1] if phase else "inference", tuple(fused), tuple(extern), moved, code, calls)


def _in_order(bodies):
    """Calls and assignments as they stand in the file, a call with the name that its result gets."""
    targets, nodes = {}, {}
    for body in bodies:
        for node in ast.walk(body):
            if isinstance(node, ast.Assign):
                targets[id(node.value)] = node.targets[0].id if isinstance(node.targets[0], ast.Name) else None
            if isinstance(node, ast.Assign | ast.Call):
                # Keyed by place: a function inside another is walked twice. A call before the assignment it stands in.
                nodes[node.lineno, isinstance(node, ast.Assign), node.col_offset, node.end_col_offset] = node
    return [(node, targets.get(id(node))) for _place, node in sorted(nodes.items(), key=lambda item: item[0])]


def kernel_sources(code: str) -> list[tuple[str, str, str]]:
    """``(name, language, source)`` of every generated kernel of one wrapper; language is ``"cpp"`` or ``"triton"``."""
    return list(_generated(ast.parse(code)))


def _generated(tree: ast.Module):
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        maker = ast.unparse(node.value.func)
        if not maker.startswith("async_compile."):
            continue
        texts = [arg.value for arg in node.value.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        language = "cpp" if "cpp" in maker else "triton"
        yield node.targets[0].id, language, max(texts, key=len, default="")


def _is_extern(name: str) -> bool:
    parts = name.split(".")
    if any(part in _NO_WORK for part in parts):
        return False
    return parts[0] in ("extern_kernels", "aten", "_quantized") or name.startswith("torch.ops.")


def _extern_name(name: str) -> str:
    """``torch.ops.aten.convolution_backward.default`` -> ``aten.convolution_backward``."""
    parts = [part for part in name.removeprefix("torch.ops.").split(".") if part not in ("default", "out")]
    return ".".join(parts)
