"""A cell that was run out of order ends with Python's NameError: say below it what that means in a notebook."""

from __future__ import annotations

from labkit.language import t

_MARK = "labkit_looks_at_names"


def register(shell) -> None:
    """Look at every cell that ends; does nothing where it is registered already."""
    if not getattr(shell, _MARK, False):  # an old IPython wraps callbacks, so they cannot be recognised
        shell.events.register("post_run_cell", _after_cell)
        setattr(shell, _MARK, True)


def _after_cell(result=None) -> None:
    error = getattr(result, "error_in_exec", None)
    if isinstance(error, NameError) and not isinstance(error, UnboundLocalError) and getattr(error, "name", None):
        print(advice(error.name))


def advice(name: str) -> str:
    return t("This kernel does not know `{name}` yet. If it is spelled right, a cell above has not been run since the "
             "kernel was started: choose Run › Run All Above Selected Cell (on Colab: Runtime › Run before), then run "
             "this cell again. Nothing is lost.", name=name)  # fmt: skip
