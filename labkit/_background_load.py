"""Other programs, started on purpose: what a busy computer does to a measurement."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys


@contextlib.contextmanager
def background_load(*, for_s: float = 20.0, programs: int | None = None):
    """Keep the processor busy with ``programs`` other programs for ``for_s`` seconds, at most until the block ends.

    Two a core unless told: with one each, a machine of many cores would hardly feel it.
    """
    code = "import sys, time; end = time.monotonic() + float(sys.argv[1]); print('on', flush=True)\n"
    code += "while time.monotonic() < end: pass"
    command = [sys.executable, "-c", code, str(for_s)]
    count = 2 * (os.cpu_count() or 1) if programs is None else programs
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for program in running:
            program.stdout.readline()
        yield running
    finally:
        for program in running:
            program.kill()
            program.wait()
            program.stdout.close()
