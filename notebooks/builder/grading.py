"""Exercises: nbgrader's metadata and regions, and what the learner gets instead of a solution."""

from __future__ import annotations

import re
from collections.abc import Callable

GRADE_ID = re.compile(r"(ex|test)-(\d\d)-([0-9a-z]+)")
STUB = "return None  # your code here"
SOLUTION = re.compile(r"^([ \t]*)### BEGIN SOLUTION.*?### END SOLUTION[^\n]*$", re.M | re.S)
HIDDEN = re.compile(r"^[ \t]*### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS[^\n]*\n?", re.M | re.S)
MARKER = re.compile(r"^[ \t]*### (?:BEGIN|END) (?:SOLUTION|HIDDEN TESTS)[^\n]*\n?", re.M)


def stubbed(code: str) -> str:
    """What the learner gets: each solution region becomes a stub that runs, hidden tests go."""
    return HIDDEN.sub("", SOLUTION.sub(lambda region: region.group(1) + STUB, code)).rstrip()


def unmarked(code: str) -> str:
    """Solutions and hidden tests without the lines that mark them."""
    return MARKER.sub("", code)


def completed(number: str, metadata: dict, wrong: Callable[[str, str], None]) -> dict:
    """Complete ``nbgrader: {grade_id: ex-03-1}`` or ``{grade_id: test-03-1, points: 5}`` to schema 3."""
    given = metadata.get("nbgrader")
    if given is None:
        return metadata
    match = GRADE_ID.fullmatch(str(given.get("grade_id")))
    if not match or match.group(2) != number:
        shown = given.get("grade_id")
        wrong(f"grade_id {shown!r} is not ex-{number}-… or test-{number}-….", f"ex-{number}-1, test-{number}-1.")
        return metadata
    test = match.group(1) == "test"
    full = {"grade": test, "grade_id": match.group(0), "locked": test, "solution": not test, "task": False}
    full["schema_version"] = 3
    if test:
        full["points"] = given.get("points")
        if not isinstance(full["points"], int) or full["points"] <= 0:
            wrong("a test cell needs its points as a whole number.", "nbgrader: {grade_id: test-…, points: 5}")
    different = sorted(key for key, value in given.items() if full.get(key, value) != value or key not in full)
    if different:
        fields = ", ".join(different)
        wrong(f"nbgrader metadata {fields} does not fit {match.group(0)}.", "give grade_id (and points) alone.")
    return metadata | {"nbgrader": dict(sorted(full.items()))}
