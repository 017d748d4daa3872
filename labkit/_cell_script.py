"""A cell's text as a script: is it one that ranks can run, and in which file does it stand?

Line 1 of the file is a comment in place of the cell's ``%%`` line, so that line numbers are the cell's own.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, ModuleType

from labkit._folders import reason, write_whole
from labkit._launch_errors import BadLaunchError
from labkit.language import t

_OF_MODULES = {"__name__", "__file__", "__doc__", "__builtins__", "__spec__", "__package__", "__loader__"}
_OF_NOTEBOOKS = {"get_ipython", "display", "In", "Out"}


def write_cell(cell: str, path: Path, command: str) -> None:
    """Write the cell to ``path``; ``command`` says how to run that file without a notebook."""
    if not path.parent.is_dir():
        raise BadLaunchError(
            t("The folder {folder} does not exist, so {name} cannot be saved there. Make it first.",
              folder=path.parent, name=path.name)
        )
    try:
        write_whole(path, f"# {command}\n{cell}")
    except OSError as error:
        raise BadLaunchError(t("The cell could not be saved as {name}: {error}. Nothing was run.", name=path.name,
                               error=reason(error))) from None


def check_source(source: str) -> ast.Module:
    """Parse, or say what is wrong at which line."""
    lines = source.splitlines()
    if not any(line.strip() and not line.lstrip().startswith("#") for line in lines):
        raise BadLaunchError(
            t("There is nothing to run. Write the program of the launched processes below the first line: it is a whole"
              " Python script, with its own imports.")
        )
    try:
        return ast.parse(source)
    except SyntaxError as error:
        line = lines[error.lineno - 1] if error.lineno and error.lineno <= len(lines) else ""
        text = t("Line {line} is not valid Python: {problem}", line=error.lineno, problem=error.msg)
        text += f"\n\n    {line.strip()}\n"
        if line.lstrip().startswith(("!", "%")):
            text += "\n" + t("The ranks run a plain Python script, without the notebook's ! and % commands. Put those"
                             " in a cell of their own.")
        raise BadLaunchError(text.rstrip()) from None


def check_names(source: str, tree: ast.Module, namespace: Mapping[str, object]) -> None:
    """Refuse a script that uses names which only the notebook has: ranks are other processes and do not see them."""
    missing = _undefined(source)
    known = {name: namespace.get(name) for name in missing if name in namespace or name in _OF_NOTEBOOKS}
    if not known:
        return
    places = {name: min(_lines_of(tree, name), default=0) for name in known}
    name = min(known, key=lambda key: (places[key], key))
    where = t("Line {line} uses {name}, which exists in the notebook but not in this cell. The ranks are new processes:"
              " they see only what the cell itself imports and defines.", line=places[name], name=name)
    raise BadLaunchError(f"{where}\n{_advice(name, known[name])}")


def _advice(name: str, value: object) -> str:
    if name in _OF_NOTEBOOKS:
        return t("{name} belongs to the notebook. Use print() in the cell, and lab.report(…) to hand values back.",
                 name=name)
    if isinstance(value, ModuleType):
        module = value.__name__
        statement = f"import {module}" if module == name else f"import {module} as {name}"
        if "." in module and module.rpartition(".")[2] == name:
            statement = f"from {module.rpartition('.')[0]} import {name}"
        return t("Add this line to the cell: {statement}", statement=statement)
    if isinstance(value, (type, FunctionType)):
        return t("Define {name} in the cell, or write it to a file with %%writefile and import it from there.",
                 name=name)
    return t("To hand its value over, add --set {name} to the first line, and in the cell write"
             " {name} = lab.launch.value({quoted}).", name=name, quoted=repr(name))


def _undefined(source: str) -> set[str]:
    """Names the script reads as globals and defines nowhere."""
    used, bound, stars = set(), set(), "import *" in source

    def visit(table: symtable.SymbolTable) -> None:
        top = table.get_type() == "module"
        for symbol in table.get_symbols():
            name = symbol.get_name()
            outer = top or symbol.is_global()
            if outer and (symbol.is_assigned() or symbol.is_imported()):
                bound.add(name)
            if outer and symbol.is_referenced():
                used.add(name)
        for child in table.get_children():
            visit(child)

    visit(symtable.symtable(source, "cell", "exec"))
    return set() if stars else used - bound - set(dir(builtins)) - _OF_MODULES


def _lines_of(tree: ast.Module, name: str) -> list[int]:
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
