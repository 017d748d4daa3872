"""Set up the labs in ``.venv``, and open them. ``make`` runs this; by hand, from the project's folder:

python3 -m setup_env setup [--extras lab,mxnet] [--python PATH] [--torch-index URL or cpu] [--torch installed]
python3 -m setup_env lab [--edition bn|en]       set up if need be, then JupyterLab on the lesson index
python3 -m setup_env offline [--out FOLDER]      set up if need be, then pack the project and its wheels into FOLDER
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import pathlib
import shutil
import sys
import time

from . import offline, own_torch, packages, pythons
from .words import Stop, say

COMMANDS = ("setup", "lab", "offline", "test", "check", "notebooks", "bench", "gpu")


def set_up(options):
    """Bring ``.venv`` up to date; within a second when it already is. Raises Stop."""

    def check_disk():
        if packages.free_gb() < packages.NEEDED_GB:
            raise packages.disk_full(options.command)

    before = pythons.stamp()
    torch, python = _own_torch(options, before), options.python
    if torch:
        python = python or torch["python"]
    version = pythons.ensure_venv(python, options.command, check_disk, torch)
    before = pythons.stamp()
    torch_index = packages.CPU_INDEX if options.torch_index == "cpu" else options.torch_index
    torch_index = torch_index or before.get("torch_index", "")
    extras = sorted({e for e in options.extras.split(",") if e} | set(before.get("extras", [])))
    after = {
        "key": packages.key(version, torch_index),
        "extras": extras,
        "torch_index": torch_index,
        "root": str(pythons.ROOT),
    }
    if torch:
        after["own_torch"] = torch
    if before == after:
        say("ready")
        return
    began = time.monotonic()
    say("installing", extras=", ".join(["labkit", *extras]))
    if torch:
        say("own_torch", version=torch["version"], python=torch["python"])
    elif sys.platform == "linux" and not torch_index and not shutil.which("nvidia-smi"):
        say("no_gpu", command=options.command)
    constraints = own_torch.let_in(torch) if torch else "constraints.txt"
    mxnet = packages.install(version, extras, torch_index, options.command, constraints)
    packages.check_packages(extras, mxnet)
    packages.trust_lessons()
    packages.check_compiler(version)
    pythons.STAMP.write_text(json.dumps(after, indent=1))
    say("done", seconds=time.monotonic() - began)


def _own_torch(options, before):
    """The PyTorch of this machine where it was asked for, now or when ``.venv`` was made; None for the tested one."""
    if options.torch:
        return own_torch.find(options.python, options.command)
    return None if options.python else own_torch.again(before.get("own_torch"))


def open_lab(edition):
    """Become JupyterLab, on loopback and with its token; it takes the next port itself when 8888 is busy."""
    home = "notebooks/index.ipynb"
    if edition:
        lessons = sorted((pythons.ROOT / "notebooks" / edition).glob("[0-9][0-9]_*.ipynb"))
        home = lessons[0].relative_to(pythons.ROOT).as_posix() if lessons else home
    environment = dict(os.environ, LABKIT_LANG=edition or "bn")
    # Lessons that compile C++ look for ninja on PATH, nbgrader for alembic.
    environment["PATH"] = str(pythons.EXECUTABLE.parent) + os.pathsep + os.environ.get("PATH", "")
    command = [
        str(pythons.EXECUTABLE),
        "-m",
        "jupyterlab",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={pythons.ROOT}",
        f"--LabApp.default_url=/lab/tree/{home}",
    ]
    if os.geteuid() == 0:
        command.append("--allow-root")  # a container has no other user; loopback and the token still guard it
    if packages.encrypts_kernels():
        command.append("--KernelManager.transport_encryption=auto")
    packages.quiet_jupyterlab()
    say("opening")
    os.execve(command[0], command, environment)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="setup_env", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--extras", default="lab,mxnet")
    parser.add_argument("--python", default="")
    parser.add_argument("--torch-index", default="")
    parser.add_argument("--torch", choices=("", "installed"), default="")
    parser.add_argument("--edition", choices=("", "bn", "en"), default="")
    parser.add_argument("--out", default="")
    options = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        set_up(options)
        if options.command == "offline":
            stamp = pythons.stamp()
            folder = pathlib.Path(options.out or pythons.ROOT / "offline" / "labkit").resolve()
            offline.pack(folder, pythons.probe(str(pythons.EXECUTABLE))[0], stamp["extras"], stamp["torch_index"])
    except Stop as stop:
        print(stop, flush=True)
        return 1
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(packages.disk_full(options.command), flush=True)
        return 1
    except KeyboardInterrupt:
        say("stopped")
        return 130
    if options.command == "lab":
        open_lab(options.edition)
    return 0


if __name__ == "__main__":
    sys.exit(main())
