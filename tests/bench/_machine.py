"""A process that disturbs a measurement on purpose, and how much the others on this machine disturb it unasked."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

# Burns one core for 20-200 ms, sleeps 20-200 ms, and so on; seeded, so every run meets the same load. It ends with the
# process that started it, also when that was killed.
_BURST = """
import os, random, sys, time
random.seed(1)
while os.getppid() == int(sys.argv[1]):
    end = time.perf_counter() + random.uniform(0.02, 0.2)
    while time.perf_counter() < end:
        pass
    time.sleep(random.uniform(0.02, 0.2))
"""


@contextlib.contextmanager
def bursts(on: bool = True):
    """With ``on``, a process burns a core in bursts while the block runs."""
    child = subprocess.Popen([sys.executable, "-c", _BURST, str(os.getpid())]) if on else None
    try:
        if child:
            time.sleep(0.3)
        yield
    finally:
        if child:
            child.kill()
            child.wait()


class Others:
    """Cores that other processes kept busy while the block ran: ``text`` afterwards, empty where /proc/stat is not.

    Children that ended within the block, and theirs, are not others; one that still runs, such as `bursts`, is.
    """

    text = ""

    def __enter__(self):
        self._before = self._now()
        return self

    def __exit__(self, *_):
        after = self._now()
        if self._before and after:
            wall, busy, own = (b - a for a, b in zip(self._before, after, strict=True))
            self.text = f"others busy: {max(0.0, (busy - own) / wall):.2f} cores"

    @staticmethod
    def _now():
        try:
            with open("/proc/stat") as file:
                fields = [int(field) for field in file.readline().split()[1:9]]
        except OSError:
            return None
        ticks = os.sysconf("SC_CLK_TCK")
        user, nice, system, _idle, _iowait, irq, softirq, _steal = fields
        own = sum(os.times()[:4])
        return time.perf_counter(), (user + nice + system + irq + softirq) / ticks, own
