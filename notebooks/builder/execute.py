"""Run an edition with nbclient, make its outputs stable, and refuse what must not be published."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from labkit._kernel_sockets import unix_sockets

from . import widget_state
from .leaks import leak
from .source import Problem, RefusedError

TIMEOUT_S = 300
LIMIT_BYTES = 400_000
SVG_LIMIT = 6
# Of whoever builds; they would show in the outputs.
CHOICES = ("MPLBACKEND", "LABKIT_LANG", "LABKIT_SAVE_RUNS", "LABKIT_STRICT")


def execute(notebook: nbformat.NotebookNode, folder: Path, shown: str, *, save_runs: bool = False) -> None:
    """Run every cell in place, in ``folder``. Raises RefusedError naming the cell that failed.

    ``save_runs``: each lab of `labkit.widgets` runs once and leaves its result, for readers who have no kernel.
    """
    client = NotebookClient(
        notebook, timeout=TIMEOUT_S, kernel_name="python3", record_timing=False, coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}}, extra_arguments=["--HistoryManager.enabled=False"],
    )
    metadata = dict(notebook.metadata)
    with unix_sockets(client):
        try:
            client.execute(env=_environment(folder) | ({"LABKIT_SAVE_RUNS": "1"} if save_runs else {}))
        except (CellExecutionError, CellTimeoutError, DeadKernelError, RuntimeError) as error:
            raise RefusedError([_failure(notebook, shown, error)]) from None
    widgets = notebook.metadata.get("widgets")
    # The kernel writes its exact Python version here; the edition must not depend on it.
    notebook.metadata = nbformat.from_dict(metadata)
    if widgets:
        notebook.metadata["widgets"] = widgets
        widget_state.settle(notebook)


def inspect(notebook: nbformat.NotebookNode, shown: str, size_bytes: int) -> list[Problem]:
    """What the outputs of an executed edition show that must not be published."""
    problems = []
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type != "code":
            continue

        def wrong(what: str, fix: str, number=number, cell=cell) -> None:
            problems.append(Problem(shown, 0, f"cell {number} ({cell.id})", what, fix))

        for output in cell.outputs:
            if what := leak(_shown(output)):
                wrong(f"the output shows {what}.", "show a value that is equal on every machine.")
            if output.output_type == "stream" and output.name == "stderr":
                said = output.text.strip()[:200]
                wrong(f"writes to stderr: {said!r}", "filter the expected warning in this cell, or print.")
    drawings = sum("image/svg+xml" in o.get("data", {}) for cell in notebook.cells for o in cell.get("outputs", []))
    if drawings > SVG_LIMIT:
        fix = f"show {SVG_LIMIT} at most, others as PNG."
        problems.append(Problem(shown, 0, "notebook", f"{drawings} SVG figures.", fix))
    if size_bytes > LIMIT_BYTES:
        sizes = sorted(((len(json.dumps(cell.get("outputs", []))), cell.id) for cell in notebook.cells), reverse=True)
        largest = ", ".join(f"{name} {size // 1000} kB" for size, name in sizes[:3])
        fix = f"{LIMIT_BYTES // 1000} kB at most: smaller pictures."
        problems.append(Problem(shown, 0, "notebook", f"{size_bytes // 1000} kB ({largest}).", fix))
    return problems


def _environment(folder: Path) -> dict[str, str]:
    """This clone's labkit and this Python's tools (ninja among them), as a learner has them who set nothing."""
    kept = {name: value for name, value in os.environ.items() if name not in CHOICES}
    root = folder.resolve().parent.parent
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    tools = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "PATH": os.pathsep.join(tools)}


def _failure(notebook: nbformat.NotebookNode, shown: str, error: Exception) -> Problem:
    where = "notebook"
    for number, cell in enumerate(notebook.cells, 1):
        if any(output.output_type == "error" for output in cell.get("outputs", [])):
            where = f"cell {number} ({cell.id})"
    return Problem(shown, 0, where, f"does not run:\n{error}")


def _shown(output) -> str:
    """All text that one output shows."""
    parts = [output.get("text", ""), output.get("evalue", ""), "\n".join(output.get("traceback", []))]
    data = output.get("data", {})
    parts += [value for mime, value in data.items() if isinstance(value, str) and mime != "image/png"]
    return "\n".join(parts)
