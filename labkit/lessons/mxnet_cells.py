"""Cells that need MXNet: a first line ``%%mxnet`` marks them, and where MXNet has no package they skip themselves.

Without it the other cells of the lesson, PyTorch's half, run as they are. With it the marked cell is an ordinary cell.
"""

from __future__ import annotations

from labkit import mx
from labkit.language import t

_SKIP = '__import__("labkit.lessons.mxnet_cells", fromlist=["x"]).skipped()\n'


class Skipped:
    """What a skipped cell shows."""

    def __str__(self):
        return "○ " + t("Skipped: this cell needs MXNet, which is not here.")

    __repr__ = __str__


def skipped() -> Skipped:
    return Skipped()


def load() -> tuple:
    """``mx, nd, gluon, autograd``, and let cells begin with ``%%mxnet``; where MXNet is missing four times None.

    A missing MXNet is said in words, with the command that brings it where there is one; nothing is raised.
    """
    _register()
    try:
        module = mx.load()
    except mx.MXNetUnavailableError as error:
        print(error)
        return (None,) * 4
    return module, module.nd, module.gluon, module.autograd


def transform(lines: list[str]) -> list[str]:
    """One cell's lines as IPython is to run them."""
    if not lines or not lines[0].startswith("%%mxnet"):
        return lines
    if not mx.is_available():
        return [_SKIP]
    if lines[0].strip() == "%%mxnet":
        return ["# %%mxnet\n", *lines[1:]]  # line numbers stay those of the cell
    return lines


transform.of_mxnet_cells = True


def _register() -> None:
    try:
        from IPython import get_ipython
    except ModuleNotFoundError:
        return
    shell = get_ipython()
    if shell is not None and not any(hasattr(step, "of_mxnet_cells") for step in shell.input_transformers_cleanup):
        shell.input_transformers_cleanup.insert(0, transform)
