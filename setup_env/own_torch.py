"""``TORCH=installed``: keep the PyTorch that this machine has, rather than download the release that was tested.

For machines whose PyTorch was chosen with care, such as a rented GPU with its image. ``.venv`` is made with the Python
that has it and also sees that Python's packages, behind its own. pip is told to leave that PyTorch as it is.
"""

from __future__ import annotations

import json
import re
import subprocess

from . import pythons
from .words import Stop

OLDEST = (2, 9)
CONSTRAINTS = pythons.VENV / "constraints-own-torch.txt"
# Looked up, not imported: that takes seconds. ``folder``: where packages lie beside torch.
_PROBE = """
import importlib.metadata, importlib.util, json, os, sys
spec = importlib.util.find_spec("torch")
try:
    version = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    version = ""
folder = os.path.dirname(os.path.dirname(spec.origin)) if spec and spec.origin else ""
print(json.dumps([version, folder, sys.executable, os.path.realpath(sys.prefix)]))
"""


def probe(executable):
    """``{"version", "folder", "python"}`` of the PyTorch that this Python sees; None where it has none of its own."""
    try:
        done = subprocess.run([executable, "-c", _PROBE], capture_output=True, text=True, timeout=60)
        version, folder, python, prefix = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if not version or not folder or prefix == str(pythons.VENV.resolve()):
        return None
    return {"version": version, "folder": folder, "python": python}


def again(earlier):
    """That PyTorch as it is now; None where it is gone, or too old. ``earlier``: what was found then, or None."""
    now = probe(earlier["python"]) if earlier else None
    return now if now and not is_old(now["version"]) else None


def find(wanted, command):
    """The PyTorch of the Python ``wanted``, or of the first one that has any. Raises Stop."""
    names = [wanted] if wanted else ["python3", "python", *pythons.candidates()]
    found = [torch for torch in map(probe, names) if torch]
    fit = [torch for torch in found if not is_old(torch["version"])]
    if fit:
        return fit[0]
    if found:
        raise Stop("old_torch", version=found[0]["version"], python=found[0]["python"],
                   oldest="{}.{}".format(*OLDEST), command=command)
    raise Stop("no_torch", python=wanted or "python3", command=command)


def is_old(version):
    """
    >>> [is_old(version) for version in ("2.8.0+cu126", "2.9.0a0+nv25.9", "2.9.0", "2.13.1+cu130", "3.0")]
    [True, True, False, False, False]
    """
    parts = re.match(r"(\d+)\.(\d+)(?:\.\d+)*(a|b|rc|\.dev)?", version)
    number = (int(parts.group(1)), int(parts.group(2))) if parts else (0, 0)
    return number < OLDEST or (number == OLDEST and bool(parts.group(3)))


def let_in(torch):
    """Let ``.venv`` see the packages beside this PyTorch, and write the pins with which pip leaves it alone."""
    [site] = (pythons.VENV / "lib").glob("python3*/site-packages")
    (site / "labkit-own-torch.pth").write_text(f"import site; site.addsitedir({torch['folder']!r})\n")
    lines = (pythons.ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not re.match(r"torch\s*[=<>;@]", line)]
    CONSTRAINTS.write_text("\n".join([*kept, f"torch=={torch['version']}"]) + "\n", encoding="utf-8")
    return CONSTRAINTS
