"""The small files by which a launcher and its processes tell each other things, in one temporary folder per run.

One process, called ``name`` ("rank0", "worker1", "server0"), writes

    name.pid     its process id, which is also its process group
    name.state   how its script ended: finished, exited or raised, with the line
    name.where   which line it is at, and for how long it has been waiting there
    name.report  what it handed back with ``report()``
    name.out, name.err   what it printed

and the launcher writes ``values`` (what the notebook hands to every process). All but the last two are JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from labkit._folders import reason, write_whole
from labkit._launch_errors import BadLaunchError
from labkit.language import t

FOLDER = "LABKIT_RUN_FOLDER"  # environment: the folder of this run
NAME = "LABKIT_RUN_NAME"  # environment: the name of this process
PARENT = "LABKIT_RUN_PARENT"  # environment: the process id without which this one should not go on
TIDY = "LABKIT_RUN_TIDY"  # environment: this process removes the run's folder when PARENT is gone
IMPORTS = "LABKIT_RUN_IMPORTS"  # environment: the folder that stands first on the script's import path


@contextlib.contextmanager
def temporary() -> Iterator[Path]:
    """A folder for one run, removed at the end. Raises BadLaunchError where none can be made."""
    try:
        made = tempfile.TemporaryDirectory(prefix="labkit-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _no_room(error) from None
    with made as folder:
        yield Path(folder)


def hand_over(folder: Path, values: dict) -> None:
    """What the notebook gives every process. Raises BadLaunchError where nothing can be written."""
    try:
        write(folder / "values", values)
    except OSError as error:
        raise _no_room(error) from None


def _no_room(error: OSError) -> BadLaunchError:
    return BadLaunchError(t("Nothing was started: ranks need a few small files in the folder for temporary files, and "
                            "there {error}.", error=reason(error)))  # fmt: skip


def write(path: Path, value) -> None:
    """Write JSON so that a reader sees the old or the new text, never half of it."""
    write_whole(path, json.dumps(value))


def read(path: Path, default=None):
    """What ``write`` wrote there, or ``default`` when nothing did."""
    with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
        return json.loads(path.read_text(encoding="utf-8"))
    return default


def text(path: Path, *, at_most: int = 1_000_000) -> str:
    """What a process printed: the first ``at_most`` bytes, with what is not UTF-8 made visible."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        return file.read(at_most).decode("utf-8", "replace")
    return ""


def inside_run() -> bool:
    """Is this process one that a launcher of labkit started?"""
    return FOLDER in os.environ and NAME in os.environ


def mine(kind: str) -> Path:
    """This process's own file of that kind."""
    return Path(os.environ[FOLDER]) / f"{os.environ[NAME]}.{kind}"
