"""What the operating system, the compiler and the installed packages say. Nothing here imports torch.

Every function answers with a plain value, never with a user's name, a host name or a path: the answers end up in cards
that people publish.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

_COMPILE_LIMIT_S = 60
# What load_inline and Inductor need in one file: the C++ library, a shared object, and Python's own header.
_CPP_PROBE = """
#include <Python.h>
#include <vector>
extern "C" int probe() { return (int)std::vector<int>(3).size(); }
"""


def version(package: str) -> str | None:
    """Installed version of a distribution, without importing it; None when it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def installed(module: str) -> bool:
    """Whether ``import module`` would find something; imports nothing."""
    if module in sys.modules:
        return sys.modules[module] is not None
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


@functools.cache
def place() -> str:
    """``"kaggle"``, ``"colab"`` or ``"local"``.

    Kaggle sets COLAB_RELEASE_TAG too, so it is asked first.
    """
    if "KAGGLE_KERNEL_RUN_TYPE" in os.environ or "KAGGLE_URL_BASE" in os.environ:
        return "kaggle"
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return "colab" if "google.colab" in str(shell) or "COLAB_RELEASE_TAG" in os.environ else "local"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _sysctl(name: str) -> str:
    try:
        return subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


@functools.cache
def cpu_name() -> str:
    """The processor's name as the system gives it, e.g. ``"AMD EPYC 7B13"``."""
    if sys.platform == "darwin":
        found = _sysctl("machdep.cpu.brand_string")
    else:
        match = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
        found = match.group(1).strip() if match else ""
    return found or platform.processor() or platform.machine() or "unknown"


@functools.cache
def cpu_flags() -> frozenset[str]:
    """Instruction-set flags in Linux spelling (``avx2``, ``avx512_bf16``, ``amx_bf16``, ``bf16`` on Arm)."""
    if sys.platform == "darwin":
        return frozenset({"bf16"} if _sysctl("hw.optional.arm.FEAT_BF16") == "1" else ())
    match = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return frozenset(match.group(1).split()) if match else frozenset()


def cpus() -> int:
    """Logical processors this process may use: its affinity and its cgroup's share both count."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read("/sys/fs/cgroup/cpu.max").strip().partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        count = min(count, max(1, round(int(quota) / int(period))))
    return count


@functools.cache
def memory_bytes() -> int | None:
    """Main memory that this process may use, in bytes: the machine's, or its cgroup's limit when that is lower."""
    total = None
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _read("/sys/fs/cgroup/memory.max").strip()
    return min(total or int(limit), int(limit)) if limit.isdigit() else total


_POWER = Path("/sys/class/power_supply")


def on_battery() -> bool:
    """Whether a laptop runs on its battery now; False where the system does not tell."""
    return any(_read(str(path)).strip() == "Discharging" for path in _POWER.glob("BAT*/status"))


def compiler_command() -> str | None:
    """The C++ compiler torch would call: ``$CXX``, else the first of the usual names on PATH."""
    names = [os.environ.get("CXX", ""), "c++", "g++", "clang++"]
    return next((name for name in names if name and shutil.which(name)), None)


def _patiently(call: list[str], folder: str) -> subprocess.CompletedProcess:
    """Run it; once more when it did not end in time, for the machine itself may have stood still."""
    try:
        return subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=_COMPILE_LIMIT_S)
    except subprocess.TimeoutExpired:
        return subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=_COMPILE_LIMIT_S)


@functools.cache
def compiler() -> tuple[bool, str]:
    """(works, detail): compile and link one small shared object, as torch's extensions and Inductor will."""
    command = compiler_command()
    if command is None:
        return False, "not found"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "probe.cpp").write_text(_CPP_PROBE)
        extra = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
        header = f"-I{sysconfig.get_paths()['include']}"
        call = [command, "-std=c++17", "-shared", "-fPIC", header, *extra, "probe.cpp", "-o", "probe.so"]
        try:
            done = _patiently(call, folder)
        except (OSError, subprocess.SubprocessError) as error:
            return False, type(error).__name__
    if done.returncode:
        return False, "no Python.h" if "Python.h" in done.stderr else "does not compile"
    said = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=30).stdout
    number = re.search(r"\d+\.\d+(?:\.\d+)?", said)
    return True, f"{Path(command).name} {number.group()}" if number else Path(command).name
