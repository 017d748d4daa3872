"""What the learner sees after a check: a verdict in words, the marks, a hint. Drawn as HTML and as plain text."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html import escape

from labkit.language import current_language, t

# A sign and a word stand beside the colour: the verdict must reach those who do not see colours, or hear the page.
_LOOKS = {
    "passed": ("✓", "#1b7f3b"),
    "partial": ("◐", "#9a6700"),
    "wrong": ("✗", "#b3261e"),
    "error": ("✗", "#b3261e"),
    "todo": ("○", "#57606a"),
}
_PRINTED_LINES = 8


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one ``check()``.

    ``points`` of ``max_points``; ``status`` is ``"passed"``, ``"partial"``, ``"wrong"``, ``"error"`` (could not be
    judged) or ``"todo"``; ``hint`` is text in the language of the moment; ``seed`` repeats the inputs; ``cost`` is
    (value, unit, own best).
    """

    id: str
    points: int
    max_points: int
    status: str
    hint: str = ""
    seed: int | None = None
    parts: tuple = ()
    printed: str = ""
    last_call: str = ""
    cost: tuple | None = None
    _shown_in: int | None = field(default=None, repr=False, compare=False)

    @property
    def passed(self) -> bool:
        """Whether the answer earns all its points."""
        return self.status == "passed"

    def title(self) -> str:
        """One line: which exercise, the verdict in words, the marks."""
        lesson, _, number = self.id.partition("-")
        number = f"{int(lesson)}.{number}" if lesson.isdigit() else self.id
        name = t("Exercise {number}", number=number)
        marks = t("marks {points}/{max_points}", points=self.points, max_points=self.max_points)
        return f"{_LOOKS[self.status][0]} {name} · {_word(self.status)} · {marks}"

    def lines(self) -> list[str]:
        """What follows the title, one thought a line."""
        out = []
        if self.status == "todo":
            out.append(t("Write your answer in the cell above, run that cell, then this one."))
        for points, label, hint in self.parts:
            out.append(f"{'✗' if hint else '✓'} {label} " + t("({points} marks)", points=points))
        if self.hint:
            out.append(t("Hint: {hint}", hint=self.hint) if self.status in ("wrong", "partial") else self.hint)
        if self.last_call:
            out.append(t("Last call: {call}", call=self.last_call))
        if self.cost:
            value, unit, best = self.cost
            out.append(t("Score: {value} {unit}, your best so far: {best}.", value=value, unit=unit, best=best))
        return out

    def printed_lines(self) -> list[str]:
        """The first lines that the learner's own code printed, kept for those who search a fault with print()."""
        return [] if self.passed else self.printed.splitlines()[:_PRINTED_LINES]

    def __str__(self):
        printed = self.printed_lines()
        tail = [t("Your code printed:"), *(f"  {line}" for line in printed)] if printed else []
        return "\n".join([self.title(), *(f"  {line}" for line in [*self.lines(), *tail])])

    def _repr_html_(self):
        body = "".join(f"<div>{escape(line)}</div>" for line in self.lines())
        printed = self.printed_lines()
        if printed:
            body += "<div>" + escape(t("Your code printed:")) + f"</div><pre>{escape(chr(10).join(printed))}</pre>"
        return box(self.title(), body, _LOOKS[self.status][1])

    def _ipython_display_(self):
        # check() has shown the verdict already; as the last line of the same cell it would appear twice.
        shell = _shell()
        if shell is None or shell.execution_count != self._shown_in:
            show(self)


def box(title: str, body: str, colour: str) -> str:
    """A bordered note that reads well on light and dark themes; ``body`` is HTML, ``title`` is text."""
    style = f"border-left:4px solid {colour};padding:.3em .8em;margin:.3em 0"
    return f'<div lang="{current_language()}" role="status" style="{style}"><b>{escape(title)}</b>{body}</div>'


def show(result: CheckResult) -> None:
    """Display in a notebook, print elsewhere (never on stderr: nbgrader would score the cell 0)."""
    shell = _shell()
    if shell is None:
        print(result)
        return
    from IPython.display import display

    display({"text/plain": str(result), "text/html": result._repr_html_()}, raw=True)
    object.__setattr__(result, "_shown_in", shell.execution_count)


def _shell():
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


def _word(status: str) -> str:
    if status == "passed":
        return t("Correct")
    if status == "partial":
        return t("Partly right")
    if status == "wrong":
        return t("Not right yet")
    return t("Not yet") if status == "todo" else t("Could not be checked")
