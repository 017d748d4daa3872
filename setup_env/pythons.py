"""Find a Python that is fit for the labs, and make ``.venv`` with it."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from pathlib import Path

from .words import Stop, say

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "labkit-setup.json"
UNFINISHED = VENV / "labkit-setup-unfinished"
EXECUTABLE = VENV / "bin" / "python"
OLDEST, NEWEST = (3, 11), (3, 13)
# Run on each candidate, because a name on PATH may be a shim for a version that does not start.
_PROBE = """
import importlib.util, json, sys
whole = bool(importlib.util.find_spec("ensurepip") and importlib.util.find_spec("venv"))
print(json.dumps([list(sys.version_info[:3]), getattr(sys, "_base_executable", sys.executable), whole]))
"""


def probe(executable):
    """``(version, the executable behind any venv, whether it can make a venv)``; None when it does not run."""
    try:
        done = subprocess.run([executable, "-c", _PROBE], capture_output=True, text=True, timeout=60)
        version, base, whole = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return tuple(version), base, whole


def candidates():
    """Names and paths to try: what ``.venv`` was made with, the learner's own ``python3``, then the rest."""
    earlier = probe(str(EXECUTABLE))
    home = os.path.expanduser("~")
    patterns = (
        os.path.join(os.environ.get("PYENV_ROOT", os.path.join(home, ".pyenv")), "versions/3.1[123].*/bin/python3"),
        os.path.join(home, ".local/share/uv/python/cpython-3.1[123].*/bin/python3"),
    )
    found = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    usual = ["python3", "python", "python3.12", "python3.11", "python3.13", sys.executable]
    return [*([earlier[1]] if earlier else []), *usual, *found]


def find(wanted, command):
    """``(version, executable)`` of ``wanted``, or of the first fit candidate. Raises Stop."""
    seen, without_venv = {}, None
    for name in [wanted] if wanted else candidates():
        found = probe(name)
        if found is None:
            continue
        version, base, whole = found
        if OLDEST <= version[:2] <= NEWEST:
            if whole:
                return version, base
            without_venv = without_venv or version
        seen.setdefault(dotted(version), name)
    if without_venv:
        raise Stop("no_venv_module", version=dotted(without_venv), short=dotted(without_venv[:2]))
    listed = ", ".join(f"{version} ({name})" for version, name in seen.items())
    raise Stop("wrong_python", found=listed or wanted or "-", command=command)


def dotted(version):
    return ".".join(map(str, version))


def stamp():
    """What the last finished set-up wrote down; empty when there is none."""
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}


def why_remake(wanted, own_torch=None):
    """``(version in .venv, None)`` when it can stay, else ``(None, why it cannot, in both languages)``."""
    current = probe(str(EXECUTABLE))
    if current is None or not OLDEST <= current[0][:2] <= NEWEST:
        return None, ("এটি আর চলে না", "it does not run any more")
    if UNFINISHED.exists():
        return None, ("আগের ইনস্টল মাঝপথে থেমে গিয়েছিল", "the last installation stopped half-way")
    if stamp().get("root", str(ROOT)) != str(ROOT):
        return None, ("প্রজেক্টের ফোল্ডার বদলে গেছে", "the project's folder has moved")
    if (own_torch or stamp()) and stamp().get("own_torch") != own_torch:
        return None, ("আপনি অন্য PyTorch চেয়েছেন", "another PyTorch was asked for")
    chosen = probe(wanted) if wanted else None
    if wanted and (chosen is None or chosen[0][:2] != current[0][:2]):
        return None, ("আপনি অন্য Python চেয়েছেন", "another Python was asked for")
    return current[0], None


def ensure_venv(wanted, command, check_disk, own_torch=None):
    """Keep ``.venv`` when it is fit, else make it; the Python version in it. Raises Stop.

    ``own_torch``: the PyTorch of this machine that it has to see (see `own_torch.probe`), or None.
    """
    if VENV.exists():
        version, why = why_remake(wanted, own_torch)
        if version:
            return version
        say("remaking", bengali=why[0], english=why[1])
    version, executable = find(wanted, command)
    check_disk()
    say("making", version=dotted(version))
    done = subprocess.run([executable, "-m", "venv", "--clear", str(VENV)], capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr, file=sys.stderr, flush=True)
        check_disk()
        raise Stop("failed")
    return version
