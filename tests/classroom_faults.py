"""A class of lesson 01 as it really hands in: good work, mishaps, and those who would rather not do it.

Each student has the marks that are right for (01-1, 01-2, 01-3), or None where nothing can be graded.
"""

from __future__ import annotations

import copy
import json
import os
import zipfile
from pathlib import Path

import nbformat

LESSON = "01_measuring"
FULL = {"01-1": 4.0, "01-2": 5.0, "01-3": 8.0}
LATE_S = 3 * 3600
DUE = 1_790_000_000.0  # seconds since 1970; the punctual hand in an hour before

# Each of these stands where the answer to 01-1 should be, followed by a right answer: the marks must be lost anyway.
CHEATS = {
    "clock": "import time\ntime.perf_counter = time.perf_counter_ns = lambda: 1",
    "check": "lab.check = lambda *given: type('Right', (), {'points': 4})()",
    "result": "from labkit.marks import CheckResult\nCheckResult.points = property(lambda self: 4)",
    "rule": "import labkit.tasks\nlabkit.tasks.Task.expect = lambda *given: None",
    "exercise": "from labkit.lessons import l01\nfor e in vars(l01).values():\n"
                "    if type(e).__name__ == 'Exercise':\n        object.__setattr__(e, 'points', 4)\n"
                "        object.__setattr__(e, 'fn', lambda task: None)",
    "frames": "import sys\nsys._getframe(0)",
    "through inspect": "import inspect\ninspect.currentframe()",
    "collector": "import gc\ngc.get_objects()",
    "traceback": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    error.__traceback__.tb_frame",
    "memory": "import ctypes\nctypes.string_at(id(1), 8)",
    "forged answer": "import os\nfor number in range(3, 9):\n    try:\n"
                     "        os.write(number, b'[\"x\", {\"points\": 4, \"last\": true}]\\n')\n"
                     "    except OSError:\n        pass",
    "exit": "import os\nos._exit(0)",
    "loop": "while True:\n    pass",
    "stubborn loop": "while True:\n    try:\n        while True:\n            pass\n"
                     "    except BaseException:\n        pass",
    "hog": "held = []\nwhile True:\n    held.append(bytearray(2**28))",
    "forks": "import os, time\nfor _ in range(1000):\n    if not os.fork():\n        time.sleep(100)\n"
             "        os._exit(0)",
}  # fmt: skip
GREEDY = ("loop", "stubborn loop", "hog", "forks")  # stopped by limits, not suspected of cheating
# What the system has to keep out; where it cannot, the answer is right and harmless.
OUTSIDE = {
    "editor": "import labkit.exercises\nopen(labkit.exercises.__file__, 'a').close()",
    "spy": "import os\nos.listdir({course!r})",
    "scribbler": "open({outside!r}, 'w').close()",
}


def answers(notebook, chosen: dict[str, str]):
    """A copy with these answers: exercise -> source."""
    filled = copy.deepcopy(notebook)
    for cell in filled.cells:
        key = cell.metadata.get("nbgrader", {}).get("grade_id", "").removeprefix("ex-")
        if key in chosen:
            cell.source = chosen[key]
    return filled


def as_colab(notebook):
    """What Colab leaves of a notebook: other ids, its own metadata, none of nbgrader's."""
    saved = copy.deepcopy(notebook)
    saved.metadata = {"colab": {"provenance": [], "gpuType": "T4"}, "accelerator": "GPU",
                      "kernelspec": {"name": "python3", "display_name": "Python 3"}}
    for number, cell in enumerate(saved.cells):
        cell.metadata = {"id": f"Xy{number}zQ", "colab": {"base_uri": "https://localhost:8080/"}}
        cell.id = f"Xy{number}zQ"
    return saved


def with_outputs(notebook, size: int):
    """As after a loop that printed for an hour."""
    loud = copy.deepcopy(notebook)
    cell = next(cell for cell in loud.cells if cell.cell_type == "code")
    line = 'it said "]}" and \\ and {"outputs": [' + "x" * 60 + "\n"
    cell.outputs = [nbformat.v4.new_output("stream", text=line * (size // len(line)))]
    return loud


class Class:
    """Writes the downloads of a class and knows the marks that are right."""

    def __init__(self, released: dict[str, Path], solved, downloads: Path, course: Path):
        self.given = {language: nbformat.read(path, as_version=4) for language, path in released.items()}
        self.right = {cell.metadata.nbgrader.grade_id.removeprefix("ex-"): cell.source for cell in solved.cells
                      if cell.metadata.get("nbgrader", {}).get("solution")}
        self.downloads, self.course = downloads, course
        self.expected: dict[str, dict[str, float] | None] = {}
        self.contained: dict[str, dict[str, float]] = {}  # as expected, but only where files are out of reach

    def file(self, name: str, notebook, *, when: float = DUE - 3600) -> Path:
        path = self.downloads / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = notebook if isinstance(notebook, str) else nbformat.writes(notebook)
        path.write_text(text, encoding="utf-8")
        os.utime(path, (when, when))
        return path

    def solved(self, *exercises: str, language: str = "en", **changed: str):
        """A released notebook with right answers to these exercises, or to all."""
        chosen = {key: self.right[key] for key in exercises or FULL}
        return answers(self.given[language], chosen | changed)

    def expect(self, student: str, *points: float | None) -> None:
        self.expected[student] = None if points == (None,) else dict(zip(FULL, points, strict=True))

    def write(self) -> None:
        """Everybody."""
        self.good()
        self.mishaps()
        for number, (name, code) in enumerate(CHEATS.items()):
            student = f"cheat {number} {name}"
            cheat = {"01-1": f"{code}\n{self.right['01-1']}"}
            self.file(f"{LESSON}-{student}.ipynb", answers(self.solved("01-2"), cheat))
            self.expect(student, 0, 5, 0)
        for name, code in OUTSIDE.items():
            text = code.format(course=str(self.course), outside=str(self.downloads / "scribble"))
            mischief = {"01-1": f"{text}\n{self.right['01-1']}"}
            self.file(f"{LESSON}-{name}.ipynb", answers(self.solved("01-2"), mischief))
            self.contained[name] = {"01-1": 0.0, "01-2": 5.0, "01-3": 0.0}
        # A result that claims to equal everything it is compared with.
        liar = "class Liar(float):\n    __eq__ = __le__ = __ge__ = __lt__ = __gt__ = lambda self, other: True\n" \
               "    __sub__ = __rsub__ = lambda self, other: 0.0\n    __hash__ = float.__hash__\n\n\n"
        lies = {"01-2": f"{liar}def aa_wrong_share(judge, trials):\n    return Liar(0.3)",
                "01-3": f"{liar}def abba_ratio(run_a, run_b, clock, rounds):\n    return Liar(1.3)"}
        self.file(f"{LESSON}-liar.ipynb", answers(self.given["en"], lies))
        self.expect("liar", 0, 0, 0)

    def good(self) -> None:
        self.file("রহিমা খাতুন_812345_assignsubmission_file_/01_measuring.ipynb", self.solved(language="bn"))
        self.expect("রহিমা খাতুন", 4, 5, 8)
        self.file("Copy of 01_measuring-১৯০৪০০১ (1).ipynb", self.solved())
        self.expect("1904001", 4, 5, 8)
        self.file("01_measuring-1904002.ipynb", self.given["bn"])
        self.expect("1904002", 0, 0, 0)
        own = "def seconds(clock):\n    return clock()"
        using = self.right["01-1"].replace("clock()", "seconds(clock)")
        helped = answers(self.given["en"], {"01-1": using})
        helped.cells.insert(3, nbformat.v4.new_code_cell(own))
        self.file("1904003_lab1.ipynb", helped)
        self.expect("1904003", 4, 0, 0)
        loud = "import sys\nprint('to the error stream', file=sys.stderr)\n" + self.right["01-1"]
        self.file("01_measuring (2)-1904004.ipynb", self.solved(**{"01-1": loud}))
        self.expect("1904004", 4, 5, 8)

    def mishaps(self) -> None:
        self.file("01_measuring-1904005.ipynb", as_colab(self.solved(language="bn")))
        self.expect("1904005", 4, 5, 8)
        without = self.solved("01-1")
        without.cells = [cell for cell in without.cells if not cell.metadata.get("nbgrader", {}).get("grade")]
        self.file("01_measuring-1904006.ipynb", without)
        self.expect("1904006", 4, 0, 0)
        edited = copy.deepcopy(self.given["en"])
        for cell in edited.cells:
            if cell.metadata.get("nbgrader", {}).get("grade"):
                cell.source += " + 4"
        self.file("01_measuring-1904007.ipynb", edited)
        self.expect("1904007", 0, 0, 0)
        self.file("01_measuring-1904008.ipynb", nbformat.writes(self.solved())[:9000])
        self.expect("1904008", None)
        self.file("01_measuring-1904009.ipynb", "<!DOCTYPE html><html><body>Sign in</body></html>")
        self.expect("1904009", None)
        self.file("01_measuring-1904010.ipynb", with_outputs(self.solved(), 20_000_000))
        self.expect("1904010", 4, 5, 8)
        with zipfile.ZipFile(self.downloads / "1904011.zip", "w") as archive:
            archive.writestr("01_measuring.ipynb", nbformat.writes(self.solved("01-2")))
            archive.writestr("../../01_measuring-evil.ipynb", nbformat.writes(self.solved()))
        self.expect("1904011", 0, 5, 0)
        self.file("01_measuring-1904012.ipynb", self.given["en"], when=DUE - 7200)
        self.file("01_measuring-1904012 (1).ipynb", self.solved("01-1", "01-2"))
        self.expect("1904012", 4, 5, 0)
        self.file("01_measuring-1904013.ipynb", self.solved("01-1"), when=DUE + LATE_S)
        self.expect("1904013", 4, 0, 0)
        self.file("=SUM(A1)-01_measuring.ipynb", self.solved("01-2"))
        self.expect("=SUM(A1)", 0, 5, 0)
        broken = {"01-1": "def timed(fn, wait, clock:\n    return 1"}
        self.file("01_measuring-1904014.ipynb", self.solved("01-2", **broken))
        self.expect("1904014", 0, 5, 0)
        moved = copy.deepcopy(self.given["en"])
        moved.cells.append(nbformat.v4.new_code_cell(self.right["01-3"]))
        self.file("01_measuring-1904015.ipynb", moved)
        self.expect("1904015", 0, 0, 8)
        self.file("01_measuring-1904016.ipynb", json.dumps({"cells": "none", "metadata": {}}))
        self.expect("1904016", None)
        self.file("Untitled.ipynb", self.solved())  # nobody's
