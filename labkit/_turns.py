"""Two notebooks, one machine: measurements of different kernels take turns, as long as waiting is reasonable.

A lock on a small file in the folder for temporary files, held while something is timed. The system releases it when a
kernel dies, however that happens. Where no file can be locked nobody waits: measuring goes on as if alone.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from labkit import _run_files

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

WAIT_S = 10.0
TICK_S = 0.05
_here = threading.Lock()  # held while this process has the machine's turn


@contextlib.contextmanager
def turn(*, wait_s: float | None = None, say: Callable[[], None] | None = None,
         give_up: Callable[[], bool] = lambda: False) -> Iterator[bool]:  # fmt: skip
    """Hold the machine's turn inside; gives whether it came within ``wait_s`` (False: somebody else measures too).

    ``say`` is called once, when there is somebody to wait for; ``give_up`` is asked now and then. Inside another
    ``turn()`` of this process it is that one's turn. Ranks do not wait: the notebook that launched them holds it.
    """
    if fcntl is None or _run_files.inside_run() or not _here.acquire(blocking=False):
        yield True
        return
    handle = None
    try:
        with contextlib.suppress(OSError):
            handle = os.open(_path(), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        yield handle is None or _wait(handle, WAIT_S if wait_s is None else wait_s, say, give_up)
    finally:
        if handle is not None:
            # Unlocked by hand: a child that was forked meanwhile shares the handle, and closing would not be enough.
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)
        _here.release()


def _wait(handle: int, wait_s: float, say, give_up) -> bool:
    end = time.monotonic() + wait_s
    while not _locked(handle):
        if say:
            say()
            say = None
        if give_up() or time.monotonic() >= end:
            return False
        time.sleep(TICK_S)
    return True


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _path() -> Path:
    return Path(tempfile.gettempdir()) / f"labkit-{os.getuid()}.measuring"
