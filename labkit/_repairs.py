"""What to type to get what is missing, for the machine at hand."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys

from labkit._probes import installed, place, version
from labkit.language import t

_MXNET_WHEELS = {("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "x86_64")}


def _pip(arguments: str) -> str:
    """A pip call for a notebook cell: ``%pip`` reaches the running kernel's own Python."""
    return f"%pip install {arguments}"


def compiler(detail: str) -> str:
    """A C++ compiler, and Python's headers where only those are missing."""
    if platform.system() == "Darwin":
        return "xcode-select --install"
    if platform.system() == "Windows":
        return t("use WSL: wsl --install, then work in its Ubuntu")
    sudo = "!apt-get install -y" if place() != "local" else "sudo apt install"
    headers = f" python3.{sys.version_info.minor}-dev" if detail == "no Python.h" else ""
    return f"{sudo} g++{headers}"


def ninja() -> str:
    """ninja, or the folder it lies in: a kernel started outside its environment does not have it on the PATH."""
    if installed("ninja"):
        return 'import os, ninja; os.environ["PATH"] += os.pathsep + ninja.BIN_DIR'
    return _pip("ninja")


def triton(*, anew: bool = False) -> str:
    """The Triton that this torch asks for; ``anew`` where one is there that does not work. Wheels: Linux only."""
    if platform.system() != "Linux":
        return t("Triton has no package for this system; use Colab")
    try:
        asked = importlib.metadata.requires("torch") or []
    except importlib.metadata.PackageNotFoundError:
        asked = []
    wanted = next((found[0] for line in asked if (found := re.match(r"triton==[\w.]+", line))), "triton")
    return _pip(f"--force-reinstall --no-deps {wanted}" if anew else wanted)


def torch_cuda() -> str:
    """A torch for this GPU; which build depends on the driver, so the choice is the reader's."""
    return t("choose a CUDA build that fits your GPU at pytorch.org/get-started, then: make setup")


def package(name: str) -> str:
    return _pip(name)


def font() -> str:
    """A Bengali font for the browser; the figures bring their own."""
    return "sudo apt install fonts-noto-core"


def mxnet() -> str:
    """The command, or the way out where no wheel exists."""
    if not has_mxnet_wheel():
        return t("MXNet has no package for this machine: use Colab, WSL or a Linux container for lesson 09")
    return mxnet_command()


def has_mxnet_wheel() -> bool:
    """Whether MXNet 1.9.1 has a package for this system and processor."""
    return (platform.system(), platform.machine()) in _MXNET_WHEELS


def mxnet_command() -> str:
    """What gets MXNet on this Python and leaves NumPy and torch alone: MXNet itself asks for NumPy below 2."""
    if sys.version_info < (3, 12) and (version("numpy") or "").startswith("1."):
        return "%pip install -q mxnet==1.9.1"
    # requests and its four helpers are what MXNet imports beside NumPy.
    return ("%pip install -q --no-deps mxnet==1.9.1 graphviz==0.8.4 requests urllib3 idna certifi charset-normalizer "
            "setuptools")  # fmt: skip


def labkit() -> str:
    """labkit itself, by address: a package index may know another package of this name."""
    try:
        links = importlib.metadata.metadata("labkit").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        links = []
    address = next((link.split(",", 1)[1].strip() for link in links if link.startswith("Repository,")), "ADDRESS")
    return _pip(f'--force-reinstall --no-deps "labkit @ git+{address}"')
