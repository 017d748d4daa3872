"""A throw-away course in a temporary folder: one lesson of two hand-written files, registered nowhere."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "notebooks"))

import build  # noqa: E402

NAME = "90_throwaway"
FRONT = """\
---
title:
  bn: পরীক্ষার ল্যাব
  en: A lab for tests
objective:
  bn: শেষে আপনি একটি সংখ্যা দ্বিগুণ করতে পারবেন।
  en: By the end you can double a number.
needs:
  bn: দুই কোরের ল্যাপটপ
  en: a laptop with two cores
minutes: 5
status: ready
---
"""
BODY = """
+++ {"lang": "bn"}

প্রথমে `double` লিখব, পরে [অন্য ল্যাব](../bn/91_other.ipynb) দেখব। সূত্র $y = 2x$, মোট ২টি ধাপ।

+++ {"lang": "en"}

First we write `double`, then see the [other lab](../en/91_other.ipynb). The formula is $y = 2x$, 2 steps in all.

```{code-cell}
x = [1, 2, 3]
print(len(x), "numbers in 12.5 ms")
```

+++ {"lang": "bn"}

## অনুশীলনী ৯০.১

`double(x)` পূরণ করুন।

+++ {"lang": "en"}

## Exercise 90.1

Complete `double(x)`.

```{code-cell}
---
nbgrader: {grade_id: ex-90-1}
---
def double(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION
```

```{code-cell}
---
nbgrader: {grade_id: test-90-1, points: 3}
---
result = lab.check("90-1", double)
### BEGIN HIDDEN TESTS
assert double(21) == 42
### END HIDDEN TESTS
result.points
```

```{code-cell}
:tags: [nbval-ignore-output]

import time

print(time.time())
```

+++ {"lang": "bn"}

শেষ।

+++ {"lang": "en"}

The end.
"""
CHECKS = '''\
"""Checks of the throw-away lesson."""

from labkit.exercises import exercise


@exercise("90-1", points=3)
def double(task):
    task.expect(task.number(21) == 42, "Twice the number.")
'''


def course(root: Path, source: str = FRONT + BODY, *, with_labkit: bool = False) -> Path:
    """Write the course below ``root`` and return ``root``. Running it needs ``with_labkit``: a copy of the package."""
    (root / "notebooks/src").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project.urls]\nRepository = "https://github.com/someone/labs"\n')
    shutil.copy(ROOT / "notebooks/src/glossary.csv", root / "notebooks/src")
    write(root, source)
    if with_labkit:
        shutil.copytree(ROOT / "labkit", root / "labkit", ignore=shutil.ignore_patterns("__pycache__", "fonts"))
        (root / "labkit/lessons/l90.py").write_text(CHECKS, encoding="utf-8")
    return root


def write(root: Path, source: str, name: str = NAME) -> Path:
    path = root / f"notebooks/src/{name}.md"
    path.write_text(source, encoding="utf-8")
    return path


__all__ = ["BODY", "CHECKS", "FRONT", "NAME", "ROOT", "build", "course", "write"]
