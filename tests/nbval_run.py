"""Run nbval over one notebook as the lane does, and look at its comparison without a kernel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SANITIZE = ROOT / "tests/nbval_sanitize.cfg"


def nbval(path: Path, **environment: str) -> tuple[int, list[str], str]:
    """(exit code, names of the failed cells, everything printed) of a run in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    command += ["--nbval", "--nbval-current-env", f"--nbval-sanitize-with={SANITIZE}", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ | environment)
    return done.returncode, re.findall(r"^FAILED .*?::(Cell \d+)", done.stdout, re.M), done.stdout + done.stderr


def patterns() -> dict[str, str]:
    """Regular expression -> replacement, of the sanitise file, read as nbval reads it."""
    from nbval.plugin import get_sanitize_patterns

    return dict(get_sanitize_patterns(SANITIZE.read_text(encoding="utf-8")))


def compared_cells(path: Path, request: pytest.FixtureRequest) -> list:
    """nbval's own items for the cells of a notebook whose output it compares; no kernel is started."""
    from nbval.plugin import IPyNbFile

    notebook = IPyNbFile.from_parent(request.session, path=path)
    notebook.sanitize_patterns.update(patterns())
    cells = list(notebook.collect())
    return [c for c in cells if c.options["check"] and c.cell.execution_count is not None and c.cell.outputs]
