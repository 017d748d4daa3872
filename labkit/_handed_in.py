"""A learner's function as text that stands by itself: with the helpers, numbers and imports it uses, and nothing else.

The text is what a report card carries and what is run, in a process of its own, by whoever made the card and by whoever
verifies it. So a model that was trained before, or data that was loaded before, cannot slip in by way of a variable.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import sys
import textwrap
import types
from pathlib import Path

from labkit import _classroom_plan
from labkit.language import t

LONGEST_BYTES = 12_000  # room for a training function, none for a model's weights or a packed list of all names
_PLAIN = (bool, int, float, str, bytes, type(None))


class HandInError(ValueError):
    """The function cannot stand by itself; the message says what to change."""


def text_of(fn) -> str:
    """Source of ``fn`` and of all it uses from its own notebook or file, in an order that runs.

    Raises HandInError when it uses an object that text cannot make again, when its text is too long or not to be had.
    """
    if not isinstance(fn, types.FunctionType):
        raise HandInError(t("Hand in a function: `def train(names, seed): ...`. It was {kind}.",
                            kind=type(fn).__name__))
    imports: dict[str, str] = {}
    pieces: dict[str, str] = {}
    _gather(fn.__name__, fn, fn.__globals__, imports, pieces)
    text = "\n".join([*imports.values(), "", *("\n" + piece for piece in pieces.values())]).strip() + "\n"
    if (length := len(text.encode())) > LONGEST_BYTES:
        raise HandInError(t("The function and what it uses have {length} bytes; {most} is the most. Data and trained "
                            "weights have no place in it.", length=length, most=LONGEST_BYTES))
    return text


def load(text: str, name: str):
    """The function ``name`` of a text made by ``text_of``."""
    file = f"<handed in: {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # torch.compile reads sources
    module = sys.modules["handed_in"] = types.ModuleType("handed_in")  # dataclasses and pickle look their module up
    exec(compile(text, file, "exec"), vars(module))
    return vars(module)[name]


def missing_in(text: str, notebook: Path) -> list[str]:
    """Functions and classes of ``text`` that do not stand in a notebook as its last word on that name."""
    from labkit import _classroom_notebook

    there: dict[str, str] = {}
    for cell in _classroom_notebook.read(notebook).cells:
        tree = _classroom_plan.parsed(cell.source) if cell.cell_type == "code" else None
        there |= _definitions(tree) if tree else {}
    return [name for name, shape in _definitions(ast.parse(text)).items() if there.get(name) != shape]


def _definitions(tree: ast.Module) -> dict[str, str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name: ast.dump(node) for node in tree.body if isinstance(node, kinds)}


def _gather(name, value, found, imports, pieces) -> None:
    """Add ``name`` and what it needs: to ``imports`` or, after its own helpers, to ``pieces``."""
    if name in imports or name in pieces:
        return
    if isinstance(value, types.ModuleType):
        imports[name] = f"import {value.__name__} as {name}"
    elif isinstance(value, (types.FunctionType, type)) and _is_own(value, found):
        if value.__name__ != name:
            raise HandInError(t("{name} was defined as {other}. Give it its own `def`, `class` or decorator, so that "
                                "its text can be found.", name=name, other=value.__name__))
        pieces[name] = ""  # its place is taken: a function may call itself
        source = _definition(value)
        for used in sorted(_classroom_plan.names(source).reads):  # from outside; its own variables are its own
            if used in found and not hasattr(builtins, used):
                _gather(used, found[used], found, imports, pieces)
        del pieces[name]
        pieces[name] = source
    elif _plain(value):
        pieces[name] = f"{name} = {value!r}"
    elif _importable(value):
        imports[name] = f"from {value.__module__} import {value.__qualname__} as {name}"
    elif type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device"):
        imports.setdefault("torch", "import torch as torch")
        pieces[name] = f"{name} = {value!r}" if type(value).__name__ == "dtype" else f"{name} = torch.{value!r}"
    else:
        raise HandInError(t("The function uses {name}, a {kind} made outside it. Make it inside the function, from "
                            "what the function is given. Functions, classes, numbers, texts and imports may stay "
                            "outside.", name=name, kind=type(value).__name__))


def _is_own(value, found) -> bool:
    """Written in the same notebook or file as the function that is handed in."""
    return value.__module__ == found.get("__name__")


def _plain(value) -> bool:
    if isinstance(value, (list, tuple, set)):
        return type(value) in (list, tuple, set) and all(map(_plain, value))
    if isinstance(value, dict):
        return type(value) is dict and all(_plain(item) for pair in value.items() for item in pair)
    return type(value) in _PLAIN and value == value  # NaN has no literal


def _importable(value) -> bool:
    import importlib

    place, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not place or not name or "." in name or place == "__main__":
        return False
    return getattr(importlib.import_module(place), name, None) is value


def _definition(value) -> str:
    """The statement that defined a function or class, with its decorators, from the cell or file it stands in."""
    code = next((part.__code__ for part in _functions(value)), None)
    lines = linecache.getlines(code.co_filename) if code else []
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        tree = ast.parse(_without_magics(lines))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds) and node.name == value.__name__]
    nodes = [n for n in nodes if _first(n) <= code.co_firstlineno <= n.end_lineno] if code else []
    if not nodes:
        raise HandInError(t("The text of {name} cannot be found. Define it with `def` or `class` in a cell and run "
                            "that cell again.", name=value.__name__))
    node = nodes[0]
    return textwrap.dedent("".join(lines[_first(node) - 1 : node.end_lineno])).rstrip() + "\n"


def _first(node) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _functions(value):
    if isinstance(value, types.FunctionType):
        yield inspect.unwrap(value)
    for member in vars(value).values() if isinstance(value, type) else ():
        member = getattr(member, "__func__", getattr(member, "fget", member))
        if isinstance(member, types.FunctionType) and member.__module__ == value.__module__:
            yield member


def _without_magics(lines: list[str]) -> str:
    """As many lines as before: what only IPython understands becomes an empty statement."""
    return "".join("pass\n" if line.startswith(("%", "!")) else line for line in lines)
