"""Which cells a graded cell needs: names read and names bound, cell by cell. Nothing is run to find out."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import re
import symtable

_MAGIC = re.compile(r"^\s*%%\w+([^\n]*)")
_ALWAYS = set(vars(builtins)) | {"get_ipython", "display", "In", "Out", "_", "__name__", "__file__", "__doc__"}


@dataclasses.dataclass(frozen=True)
class Names:
    """``reads`` must be there before the cell runs, ``binds`` are there afterwards."""

    reads: frozenset[str] = frozenset()
    binds: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Exercise:
    """What to run for one exercise, in order: our cells, then the learner's, then the graded cell."""

    id: str
    points: float
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    test: str
    keep: frozenset[str]  # names of ours that the test reads: put back after the learner's cells have run


def exercises(notebook) -> list[Exercise]:
    """The plan of every graded cell of a checked notebook (see ``_classroom_preflight``)."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [_plan(cells, cell) for cell in cells if cell.metadata.get("nbgrader", {}).get("grade")]


def _plan(cells: list, test) -> Exercise:
    grade = test.metadata.nbgrader
    number = grade.grade_id.removeprefix("test-")
    own = next(cell for cell in cells if is_answer(cell) and cell.metadata.nbgrader.grade_id == f"ex-{number}")
    chosen: list = [own]
    wanted = set(names(own.source).reads | names(test.source).reads - names(own.source).binds) - _ALWAYS
    while wanted:
        name = min(wanted)  # in a fixed order, so that two runs choose the same cells
        wanted.discard(name)
        provider = _provider(cells, cells.index(own), name, chosen)
        if provider is not None and provider not in chosen:
            chosen.append(provider)
            wanted |= names(provider.source).reads - _ALWAYS
    ordered = [cell for cell in cells if cell in chosen]
    ours = [cell for cell in ordered if not _is_theirs(cell)]
    setup = next((cell for cell in cells if cell.id == "setup"), None)
    if setup is not None and setup not in ours:
        ours.insert(0, setup)
    theirs = [cell for cell in ordered if _is_theirs(cell) and cell is not own]
    keep = names(test.source).reads & {name for cell in ours for name in names(cell.source).binds}
    return Exercise(number, float(grade.points), tuple(cell.source for cell in ours),
                    tuple(cell.source for cell in [*theirs, own]), test.source, frozenset(keep))


def _provider(cells: list, at: int, name: str, chosen: list):
    """The cell to take ``name`` from: ours before the exercise, another answer, the learner's own cell, ours later."""
    if any(name in names(cell.source).binds for cell in chosen):
        return None
    before, after = cells[:at], cells[at + 1:]
    ours = [cell for cell in before if not _is_theirs(cell) and not _is_graded(cell)]
    answers = [cell for cell in before if is_answer(cell)]
    helpers = [cell for cell in cells if is_helper(cell)]
    later = [cell for cell in reversed(after) if not _is_theirs(cell) and not _is_graded(cell)]
    for group in (ours, answers, helpers, later):
        if found := [cell for cell in group if name in names(cell.source).binds]:
            return found[-1]
    return None


def is_answer(cell) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("solution"))


def is_helper(cell) -> bool:
    """Whether the cell is the learner's own, beside the answers."""
    return bool(cell.metadata.get("labkit", {}).get("helper"))


def _is_graded(cell) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("grade"))


def _is_theirs(cell) -> bool:
    return is_answer(cell) or is_helper(cell)


@functools.lru_cache(maxsize=4096)
def names(source: str) -> Names:
    """Names that a cell reads and binds at its top level; nothing for code that cannot be parsed.

    >>> names("y = scale * x").binds, sorted(names("y = scale * x").reads)
    (frozenset({'y'}), ['scale', 'x'])
    """
    magic = _MAGIC.match(source)
    if magic:  # %%torchrun … --set lr --into results: the rest is a script of its own
        words = dict.fromkeys(("set", "into"), ())
        words |= {key: re.findall(rf"--{key}\s+(\w+)(?!=)\b", magic[1]) for key in words}
        return Names(frozenset(words["set"]), frozenset(words["into"]))
    tree = parsed(source)
    if tree is None:
        return Names()
    reads, binds, later = set(), set(), set()
    for statement in tree.body:
        table = symtable.symtable(ast.unparse(statement), "cell", "exec")
        here = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
        reads |= here - binds
        later |= set(_inner(table))
        binds |= {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    return Names(frozenset(reads | (later - binds)), frozenset(binds))


def parsed(source: str) -> ast.Module | None:
    """The cell's syntax tree, line magics and ``!`` taken care of; None where there is a mistake in it."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        return ast.parse(TransformerManager().transform_cell(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _inner(table: symtable.SymbolTable):
    """Global names that functions and classes inside ``table`` read."""
    for child in table.get_children():
        yield from (s.get_name() for s in child.get_symbols() if s.is_global() and s.is_referenced())
        yield from _inner(child)
