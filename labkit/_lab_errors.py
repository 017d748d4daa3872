"""What went wrong in a lab, in words: what happened, the likely cause, what to do next."""

from __future__ import annotations

import sys

from labkit._callables import is_out_of_memory
from labkit.language import t


def explained(error: BaseException) -> str:
    """The learner's text for what a lab's function raised."""
    text = str(error).strip()
    if is_out_of_memory(error) or is_out_of_memory(error.__cause__):
        return t("The memory ran out, so nothing was measured. Choose a smaller size, close other programs, and press "
                 "Run again.")  # fmt: skip
    if type(error).__module__.startswith("labkit"):
        return text + " " + t("Change a control and press Run again.")
    kind = type(error).__name__
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return t("The function ended with an error, so nothing was measured: {error}. Change a control, or mend the "
             "function, and press Run again.", error=f"{kind}: {first}"[:300] if first else kind)  # fmt: skip


def ran_out_of_time(limit_s: float, *, has_ended: bool) -> str:
    """The text for a run that reached its time limit."""
    text = t("It was not finished after {limit} s and was stopped. Choose a smaller size or a shorter measurement, and "
             "press Run again.", limit=f"{limit_s:g}")  # fmt: skip
    if has_ended:
        return text
    return text + " " + t("A part that cannot be interrupted runs on to its end; what it gives is thrown away.")


def disturbed_by_a_cell() -> str:
    return t("A cell ran at the same time, so the numbers may be off: measure again while nothing else runs.")


class CellWatch:
    """Whether a cell of the notebook was run inside a with-block: it would share the processor with the measurement."""

    def __enter__(self) -> CellWatch:
        self.saw_a_cell = False
        ipython = sys.modules.get("IPython")
        self._shell = ipython.get_ipython() if ipython else None
        if self._shell is not None:
            self._shell.events.register("pre_run_cell", self._note)
        return self

    def _note(self, *_info) -> None:
        self.saw_a_cell = True

    def __exit__(self, *_error) -> None:
        if self._shell is not None:
            self._shell.events.unregister("pre_run_cell", self._note)
