"""Before class, on the lab's own PC: how long a lesson takes here, and which of its claims do not hold."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable
from pathlib import Path

from labkit import _classroom_course as courses
from labkit._kernel_sockets import unix_sockets
from labkit.language import t

# What claim() prints begins like this, in either language.
_FAILS = re.compile(r"^(Does not hold here: .*|দাবিটি এখানে খাটে না: .*)$", re.MULTILINE)


@dataclasses.dataclass
class Rehearsal:
    """``cells_s``: seconds of each code cell by id; ``fails``: lines of claims; ``errors``: (cell, what was raised)."""

    lesson: str
    seconds: float
    cells_s: dict[str, float]
    fails: list[str]
    errors: list[tuple[str, str]]

    def lines(self) -> list[str]:
        """What an instructor wants to know, one thought a line."""
        slow = sorted(self.cells_s.items(), key=lambda item: -item[1])[:3]
        minutes = self.seconds / 60
        out = [t("{lesson}: {minutes:.1f} minutes of machine time here.", lesson=self.lesson, minutes=minutes)]
        out.append(t("Slowest cells: {cells}.", cells=", ".join(f"{name} {s:.0f} s" for name, s in slow)))
        out += [t("✗ cell {cell} stopped: {error}", cell=cell, error=error) for cell, error in self.errors]
        if self.fails:
            out.append(t("Claims that do not hold on this machine ({count}):", count=len(self.fails)))
            out += [f"  {line}" for line in self.fails]
        elif not self.errors:
            out.append(t("Every claim of the lesson holds on this machine."))
        return out


def rehearse(number: str, *, language: str, say: Callable[[str], None] = print, limit_s: float = 600.0) -> Rehearsal:
    """Run the learners' edition from top to bottom, as a learner would who changes nothing. Raises ClassroomError."""
    lesson = courses.named(number)
    notebook = courses.read(courses.CLONE / "notebooks" / language / f"{lesson}.ipynb")
    return run(notebook, lesson, courses.CLONE / "notebooks" / language, say=say, limit_s=limit_s)


def run(notebook, lesson: str, folder: Path, *, say: Callable[[str], None], limit_s: float) -> Rehearsal:
    """Time every cell of ``notebook``, started in ``folder``; a cell that fails does not stop the others."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    client = NotebookClient(notebook, timeout=limit_s, kernel_name="python3", record_timing=False, allow_errors=True,
                            resources={"metadata": {"path": str(folder)}})
    done = Rehearsal(lesson, 0.0, {}, [], [])
    with unix_sockets(client), client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            if cell.cell_type != "code":
                continue
            began = time.monotonic()
            try:
                client.execute_cell(cell, index)
            except CellTimeoutError:
                done.errors.append((cell.id, t("not finished after {seconds:g} seconds", seconds=limit_s)))
            except DeadKernelError:
                done.errors.append((cell.id, t("the notebook's kernel died, perhaps for lack of memory")))
                break
            done.cells_s[cell.id] = time.monotonic() - began
            _look(cell, done)
            say(f"  {cell.id}  {done.cells_s[cell.id]:.1f} s")
    done.seconds = sum(done.cells_s.values())
    return done


def _look(cell, done: Rehearsal) -> None:
    for output in cell.outputs:
        if output.output_type == "stream":
            done.fails += _FAILS.findall(output.text)
        elif output.output_type == "error":
            done.errors.append((cell.id, f"{output.ename}: {output.evalue}"[:300]))
