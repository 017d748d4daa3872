"""Folders that cannot be written to, and disks that are full: make do where that is possible, else say it in words."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path

from labkit.language import t

# What libraries keep in the home folder: the variable that sends them elsewhere -> where they look without it.
_CACHES = {"MPLCONFIGDIR": ".config/matplotlib", "TORCH_EXTENSIONS_DIR": ".cache/torch_extensions"}


def make_do() -> None:
    """Where the home folder is read-only, let matplotlib and torch's extensions keep their files elsewhere."""
    home = Path(os.path.expanduser("~"))
    for variable, place in _CACHES.items():
        if variable not in os.environ and not writable(home / place):
            with contextlib.suppress(OSError):  # nowhere to write at all: the libraries say so when they need it
                os.environ[variable] = str(_own_folder() / Path(place).name)


def writable(path: Path) -> bool:
    """Whether ``path``, or the nearest folder above it that exists, can be written to."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return os.access(path, os.W_OK)


def reason(error: OSError) -> str:
    """Why nothing could be written, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return t("the disk is full. Delete what you do not need, then try again; what was there before is unharmed")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return t("this folder cannot be written to. Copy the notebook into a folder of your own, or give another path")
    return error.strerror or str(error)


def write_whole(path: Path, text: str, *, encoding: str = "utf-8", newline: str | None = None) -> None:
    """Write ``text`` so that whoever reads the file sees all of it or what was there before. Raises OSError."""
    half = path.with_name(f".{path.name}.{os.getpid()}.half")
    try:
        half.write_text(text, encoding=encoding, newline=newline)
        os.replace(half, path)
    except OSError:
        half.unlink(missing_ok=True)
        raise


def _own_folder() -> Path:
    """A folder of this user's own in the system's temporary one, the same each time; never one that others prepared."""
    path = Path(tempfile.gettempdir()) / f"labkit-{os.getuid() if hasattr(os, 'getuid') else 'home'}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    others = hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077)
    return Path(tempfile.mkdtemp(prefix="labkit-")) if others or not stat.S_ISDIR(found.st_mode) else path
