"""A child process that does not outlive its parent, even when the parent is killed without warning."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1


def end_with(parent: int, signal_number: int = signal.SIGTERM, *, poll_s: float = 0.5) -> None:
    """Send this process ``signal_number`` as soon as the process ``parent`` is gone.

    Linux does it by itself (``prctl(2)``, PR_SET_PDEATHSIG); elsewhere a thread looks every ``poll_s`` seconds whether
    somebody else has become the parent. Call it first thing in the child.
    """
    if not _kernel_promises(signal_number):
        threading.Thread(target=_watch, args=(parent, signal_number, poll_s), daemon=True).start()
    if os.getppid() != parent:  # it died before we asked
        os.kill(os.getpid(), signal_number)


def tidy_up_after(parent: int, folder: str, *, poll_s: float = 0.25) -> None:
    """When the process ``parent`` is gone, remove ``folder`` and end this process by SIGKILL. One process of a run does
    that, the others use ``end_with``."""
    threading.Thread(target=_watch, args=(parent, signal.SIGKILL, poll_s, folder), daemon=True).start()


def _kernel_promises(signal_number: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (OSError, AttributeError):
        return False
    # All five arguments: with two, the rest is whatever stands in the registers, and the call may fail.
    return prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0) == 0


def _watch(parent: int, signal_number: int, poll_s: float, folder: str | None = None) -> None:
    while os.getppid() == parent:
        time.sleep(poll_s)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal_number)
