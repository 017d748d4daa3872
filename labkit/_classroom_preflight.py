"""Before grading: find the answers in what was handed in, put back what was lost, name what cannot be repaired.

What is graded is always the instructor's notebook with the learner's answers in it. So a deleted, edited or unlabelled
test cell costs nobody marks, and nothing that a learner changed elsewhere is run unless an answer needs it.
"""

from __future__ import annotations

import ast
import collections
import copy
import dataclasses
import re

from labkit import _classroom_notebook as notebooks
from labkit import _classroom_plan as plan
from labkit._classroom_words import here, in_both
from labkit.language import nfc, t

_TRACE = re.compile(r"""(?:lab\.check\(\s*["']|\b(?:ex|test)-)(\d\d)-\d|labkit\.lessons(?:\.|\s+import\s+)l(\d\d)""")
_FUNCTION = re.compile(r"^(?:async\s+)?(?:def|class)\s", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Finding:
    """``kind``: repaired (no harm left), note (harmless, worth knowing) or problem (a person has to look)."""

    kind: str
    exercise: str
    said: dict[str, str]  # in each language

    @property
    def text(self) -> str:
        return here(self.said)


def _finding(kind: str, exercise: str, make) -> Finding:
    return Finding(kind, exercise, in_both(make))


@dataclasses.dataclass
class Checked:
    """A notebook ready for grading, or None with the reason among the findings."""

    notebook: object
    findings: list[Finding]
    edition: str = "bn"

    @property
    def usable(self) -> bool:
        return self.notebook is not None


def lesson_of(notebook) -> str:
    """The two digits of the lesson that a notebook's cells speak of; empty when none is recognised."""
    seen = collections.Counter()
    for cell in notebook.cells:
        marks = f"{cell.metadata.get('nbgrader', {}).get('grade_id', '')} {cell.get('id', '')}"
        text = f"{marks}\n{cell.source}" if cell.cell_type == "code" else marks
        seen.update({number for found in _TRACE.findall(text) for number in found if number})
    return seen.most_common(1)[0][0] if seen else ""


def edition_of(notebook) -> str:
    """``bn`` or ``en``: what the set-up cell says, else the script that most of the text is in."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    said = re.findall(r"""use_language\(\s*["'](bn|en)["']""", code)
    if said:
        return said[0]
    text = "".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return "bn" if len(re.findall("[ঀ-৿]", text)) > len(re.findall("[a-zA-Z]", text)) else "en"


def preflight(submitted, master, released) -> Checked:
    """Lay the answers of ``submitted`` into a copy of ``master``; ``released`` is what the learner was given."""
    number = master_number(master)
    found = lesson_of(submitted)
    edition = edition_of(submitted)
    if not found:
        foreign = _finding("problem", "", lambda: t("This is not one of the labs: no exercise of any lesson is in it."))
        return Checked(None, [foreign], edition)
    if found != number:
        other = _finding("problem", "", lambda: t("This is lab {found}, not lab {number}.", found=found, number=number))
        return Checked(None, [other], edition)
    notebook, findings = copy.deepcopy(master), []
    given = {cell.id: cell.source for cell in released.cells if cell.cell_type == "code"}
    cells = [cell for cell in submitted.cells if cell.cell_type == "code"]
    if not any("nbgrader" in cell.metadata for cell in cells):
        findings.append(_finding("repaired", "", lambda: t(
            "The cells had lost their labels; they were found by their content.")))
    used = set()
    for cell in notebook.cells:
        if plan.is_answer(cell):
            source, taken = _answer(cells, cell, given, findings)
            used |= taken
            cell.source = source
        elif cell.metadata.get("nbgrader", {}).get("grade"):
            used |= _test(cells, cell, given, findings)
        elif cell.id == "setup":
            cell.source = re.sub(r"""use_language\("(bn|en)"\)""", f'use_language("{edition}")', cell.source)
    _add_helpers(notebook, [cell for i, cell in enumerate(cells) if i not in used], given)
    return Checked(notebook, findings, edition)


def unreadable(error: notebooks.UnreadableError) -> Checked:
    """What to say of a file that is no notebook."""
    reason = error.reason
    return Checked(None, [_finding("problem", "", lambda: t("The file cannot be read: {reason}", reason=reason()))])


def master_number(master) -> str:
    return next(c.metadata.nbgrader.grade_id.split("-")[1] for c in master.cells if "nbgrader" in c.metadata)


def _answer(cells: list, answer, given: dict, findings: list) -> tuple[str, set[int]]:
    """The learner's source for one answer cell, and which of their cells that took."""
    identity, stub = answer.metadata.nbgrader.grade_id, given[answer.id]
    number = identity.removeprefix("ex-")
    wanted = defined(stub)
    labelled = [i for i, cell in enumerate(cells) if identity in (_grade_id(cell), cell.get("id"))]
    by_name = [i for i, cell in enumerate(cells) if _defines(cell.source, wanted) and _free(cell, identity)]
    stubs = {i for i in {*labelled, *by_name} if same(cells[i].source, stub)}
    real = [i for i in [*labelled, *by_name] if i not in stubs]
    defining = [i for i in real if _defines(cells[i].source, wanted)]
    best = max(defining or real, default=None)
    if best is None:
        if not stubs:
            findings.append(_finding("problem", number, lambda: t(
                "The answer to {id} was not found in the notebook.", id=number)))
        return stub, stubs
    if best not in labelled and labelled:
        findings.append(_finding("note", number, lambda: t("The answer to {id} stands in another cell.", id=number)))
    if len({cells[i].source for i in defining}) > 1:
        findings.append(_finding("note", number, lambda: t(
            "{id} was answered more than once; the last answer counts.", id=number)))
    source = cells[best].source
    if plan.parsed(source) is None:
        findings.append(_finding("note", number, lambda: t("The answer to {id} is no valid Python.", id=number)))
    return source, {best} | stubs | set(defining)


def _test(cells: list, test, given: dict, findings: list) -> set[int]:
    """Note what became of a test cell; the instructor's own is in the notebook already."""
    identity = test.metadata.nbgrader.grade_id
    number = identity.removeprefix("test-")
    call = re.compile(rf"""lab\.check\(\s*["']{re.escape(number)}["']""")
    labelled = {i for i, cell in enumerate(cells) if identity in (_grade_id(cell), cell.get("id"))}
    taken = labelled | {i for i, cell in enumerate(cells) if call.search(cell.source)
                        and not _grade_id(cell).startswith("ex-") and not _FUNCTION.search(cell.source)}
    accepted = [given[test.id], *_exam_texts()]
    if not taken:
        findings.append(_finding("repaired", number, lambda: t(
            "The test cell of {id} was deleted; it was put back.", id=number)))
    elif not any(same(cells[i].source, text) for i in taken for text in accepted):
        findings.append(_finding("repaired", number, lambda: t(
            "The test cell of {id} was edited; ours was used.", id=number)))
    # A cell that holds both, the answer and the call of its check, is still needed for the answer.
    return {i for i in taken if not _FUNCTION.search(cells[i].source)}


def _add_helpers(notebook, own: list, given: dict) -> None:
    """Keep the learner's own cells where an answer may need them: unchanged ones of ours are left out."""
    ours = {_bare(source) for source in given.values()}
    helpers = []
    for cell in own:
        if cell.source.strip() and _bare(cell.source) not in ours and cell.get("id") != "setup":
            helper = copy.deepcopy(cell)
            helper.id = f"helper-{len(helpers) + 1}"
            helper.metadata = {"labkit": {"helper": True}}
            helpers.append(helper)
    at = next((i for i, cell in enumerate(notebook.cells) if cell.id == "setup"), 0) + 1
    notebook.cells[at:at] = helpers


def exam_text() -> str:
    """What a test cell says in an exam, in the current language."""
    return f"print({t('Your answer is marked after you have handed in.')!r})"


def _exam_texts() -> list[str]:
    return list(in_both(exam_text).values())


def _grade_id(cell) -> str:
    return str(cell.metadata.get("nbgrader", {}).get("grade_id", ""))


def _free(cell, identity: str) -> bool:
    """Whether a cell may hold the answer ``identity``: it is not labelled as something else."""
    return _grade_id(cell) in ("", identity)


def same(one: str, other: str) -> bool:
    """Equal but for white space at line ends, line breaks and the form of letters."""
    return _bare(one) == _bare(other)


def _bare(source: str) -> str:
    return nfc("\n".join(line.rstrip() for line in source.replace("\r\n", "\n").strip().split("\n")))


def defined(source: str) -> set[str]:
    """Functions, classes and variables that a cell defines at its top."""
    tree = plan.parsed(source)
    if tree is None:
        return set(re.findall(r"^(?:async\s+)?(?:def|class)\s+(\w+)", source, re.MULTILINE))
    found = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _defines(source: str, wanted: set[str]) -> bool:
    return bool(wanted) and wanted <= defined(source)
