"""How nbval runs the lessons: ``python -m pytest --nbval … notebooks/bn notebooks/en``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# Lessons that compile C++ look for ninja on PATH, also where the environment was not activated.
os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With LABKIT_SKIP_SVG=1 drawings are not compared: another matplotlib draws the same figure otherwise."""
    if os.environ.get("LABKIT_SKIP_SVG") != "1":
        return
    for notebook in {item.parent for item in items}:
        if hasattr(notebook, "skip_compare") and "image/svg+xml" not in notebook.skip_compare:
            notebook.skip_compare += ("image/svg+xml",)
