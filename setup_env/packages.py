"""Install the package, its extras and the tested releases into ``.venv``, and explain what goes wrong."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time

from .pythons import EXECUTABLE, ROOT, UNFINISHED
from .words import Stop, say

NEEDED_GB = 3
WHEELS = ROOT / "wheels"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
MXNET = "mxnet==1.9.1"
MXNET_NEEDS = ("graphviz==0.8.4", "requests")  # beside NumPy, where it is installed without its own requirements
_DISK_FULL = re.compile(r"No space left|Errno 28\b|Errno 122\b|[Dd]isk quota")
_NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|Failed to establish a new connection|ConnectTimeout|Read timed out"
    r"|Network is unreachable|Connection (refused|reset|aborted)|ProxyError|SSLError|getaddrinfo|IncompleteRead"
    r"|requirement (pip|hatchling)\S* \(from versions: none\)"  # every index has these: it could not be read
)


def free_gb():
    return shutil.disk_usage(str(ROOT)).free / 1e9


def disk_full(command):
    return Stop("disk_full", folder=ROOT, free_gb=free_gb(), needed_gb=NEEDED_GB, command=command)


def key(version, torch_index):
    """A digest that changes with anything that decides what gets installed."""
    digest = hashlib.sha256(repr((version[:2], torch_index)).encode())
    for path in ("pyproject.toml", "constraints.txt", "setup_env/packages.py"):
        digest.update((ROOT / path).read_bytes())
    return digest.hexdigest()


def pip_install(*arguments):
    """``pip install``; see ``pip()``. Python compiles a module when it is first imported, and keeps that.

    Compiling all of them at once, most of which are never imported, would take half of the set-up's time.
    """
    keeps = not os.environ.get("PYTHONDONTWRITEBYTECODE")
    return pip(["install", *(["--no-compile"] if keeps else []), *arguments])


def pip(arguments):
    """Run pip with its own progress in sight. Returns the lines it wrote to stderr when it failed, else None."""
    # PIP_CONSTRAINT: images with a PyTorch of their own set it, and their pins would contradict ours.
    mine = ("PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_CONSTRAINT")
    environment = {k: v for k, v in os.environ.items() if k not in mine}
    # Slow lines break in the middle of a large file: wait longer, and go on where it broke.
    environment = {"PIP_DEFAULT_TIMEOUT": "60", "PIP_RESUME_RETRIES": "20", **environment}
    if WHEELS.is_dir():  # packed by make offline: no index is asked, and isolated builds inherit this
        environment = {k: v for k, v in environment.items() if k not in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL")}
        environment.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=WHEELS.as_uri())
    command = [str(EXECUTABLE), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    finished = threading.Event()
    threading.Thread(target=_tick, args=(finished,), daemon=True).start()
    lines = collections.deque(maxlen=300)
    try:
        with subprocess.Popen(
            command, cwd=str(ROOT), env=environment, stderr=subprocess.PIPE, text=True, errors="replace"
        ) as process:
            lines.extend(line.rstrip() for line in process.stderr)
        return list(lines) if process.returncode else None
    finally:
        finished.set()


def _tick(finished, every_s=30):
    began = time.monotonic()
    while not finished.wait(every_s):
        say("still_busy", seconds=time.monotonic() - began)


def explain(lines, command):
    """The Stop that fits what pip wrote."""
    output = "\n".join(lines)
    print("\n".join(lines[-15:]), file=sys.stderr, flush=True)
    if _DISK_FULL.search(output):
        return disk_full(command)  # the packages may be half written: .venv is made afresh next time
    UNFINISHED.unlink(missing_ok=True)  # pip ended in good order, so what it has installed is whole
    return Stop("no_network" if _NO_NETWORK.search(output) else "failed")


def install(version, extras, torch_index, command, constraints="constraints.txt"):
    """Install everything that ``extras`` name. Returns whether MXNet, if among them, was to be had. Raises Stop."""
    index = ["--extra-index-url", torch_index] if torch_index and not WHEELS.is_dir() else []
    pins = ["-c", str(constraints), *index]
    mxnet = "mxnet" in extras
    UNFINISHED.touch()
    # pip first: the one that comes with Python 3.11 and 3.12 starts a broken download from the beginning.
    lines = pip_install("-q", "pip", *pins) or pip_install("-e", target(extras), *pins)
    if lines and mxnet and _mxnet_missing(pip_install("-q", "--dry-run", "--no-deps", MXNET)):
        mxnet = False
        lines = pip_install("-e", target([e for e in extras if e != "mxnet"]), *pins)
    if not lines and mxnet and version >= (3, 13):
        # MXNet asks for NumPy below 2, which Python 3.13 has not; labkit.mx makes it load on NumPy 2.
        lines = pip_install("-q", *MXNET_NEEDS, *pins) or pip_install("-q", "--no-deps", MXNET)
        if lines and _mxnet_missing(lines):
            mxnet, lines = False, None
    if lines:
        raise explain(lines, command)
    UNFINISHED.unlink()
    return mxnet and not fails("import importlib.metadata as m; m.version('mxnet')")


def target(extras):
    """The project with these extras, as pip is told it."""
    return ".[{}]".format(",".join(extras)) if extras else "."


def _mxnet_missing(lines):
    output = "\n".join(lines or [])
    return f"No matching distribution found for {MXNET}" in output and not _NO_NETWORK.search(output)


def fails(code):
    """The last line of the error that ``code`` raises in ``.venv``; empty when it runs."""
    done = subprocess.run([str(EXECUTABLE), "-c", code], cwd=str(ROOT), capture_output=True, text=True)
    return (done.stderr.strip().splitlines() or ["?"])[-1] if done.returncode else ""


def check_packages(extras, mxnet):
    """Try what was installed; warn of what is missing. Raises Stop when the labs could not start."""
    error = fails("import torch, matplotlib, ipywidgets, labkit.language; labkit.language.t('ready')")
    if error:
        raise Stop("does_not_load", error=error)
    if "mxnet" in extras and not mxnet:
        say("no_mxnet", machine=f"{platform.system()} {platform.machine()}")
    elif mxnet:
        error = fails("import labkit.mx; labkit.mx.load()")
        if error:
            say("mxnet_broken", error=error)


def trust_lessons():
    """Let JupyterLab show the saved figures and labs of the lessons as they came; without trust it hides them.

    Only now, right after installing: what a learner puts there later is trusted once they have run it themselves.
    """
    tool = EXECUTABLE.parent / "jupyter-trust"
    lessons = sorted(str(path) for path in (ROOT / "notebooks").glob("*/*.ipynb"))
    if tool.exists() and lessons:
        subprocess.run([str(tool), *lessons], cwd=str(ROOT), capture_output=True)


def quiet_jupyterlab():
    """JupyterLab of ``.venv`` neither asks, in English, whether one wants its news, nor calls its site for them.

    These are defaults: what a learner chooses in the settings counts for more.
    """
    settings = EXECUTABLE.parent.parent / "share" / "jupyter" / "lab" / "settings"
    news = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
    with contextlib.suppress(OSError):  # where .venv cannot be written to, JupyterLab asks
        settings.mkdir(exist_ok=True)
        (settings / "overrides.json").write_text(json.dumps(news, indent=1))


def encrypts_kernels():
    """Whether JupyterLab of ``.venv`` can encrypt what it and its kernels say to each other.

    Loopback and signatures keep others from speaking to a kernel; on a computer that several use this keeps them from
    listening too, of which ipykernel 7 warns in English.
    """
    able = "import jupyter_client, zmq; assert zmq.has('curve') and jupyter_client.KernelManager.transport_encryption"
    return not fails(able)


def check_compiler(version):
    """Warn when the labs that compile C++, by hand or through torch.compile, will not find what they need."""
    compilers = [os.environ.get("CXX"), "c++", "g++", "clang++"]
    if not any(c and shutil.which(c) and runs(c) for c in compilers):
        say("no_compiler")
    elif fails("import os, sysconfig as s; open(os.path.join(s.get_path('include'), 'Python.h')).close()"):
        say("no_header", version="{}.{}".format(*version))


def runs(compiler):
    """Whether it starts: on a new Mac, c++ is there and only offers to install itself."""
    return subprocess.run([compiler, "--version"], capture_output=True).returncode == 0
