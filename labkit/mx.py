"""The one place that imports MXNet: ``mx = lab.mx.load()``.

MXNet 1.9.1 is its last release (the project was retired in 2023). It expects an older NumPy than today's; ``load()``
supplies the missing names for MXNet alone and leaves NumPy as it was.
"""

from __future__ import annotations

import importlib
import importlib.util
import platform
import sys
import warnings

from labkit import _repairs
from labkit.language import t

# Modules that look old NumPy names up while they are imported, and that MXNet itself loads late.
_LATE_MODULES = ("mxnet.gluon.contrib.estimator", "mxnet.test_utils")


class MXNetUnavailableError(ImportError):
    """MXNet is not there or does not load; the text says why and what to type."""


def load():
    """Import MXNet once and return the module ``mxnet``.

    Raises MXNetUnavailableError, whose text names the cause and the command that mends it. The import runs with the
    NumPy names that MXNet needs; afterwards NumPy's namespace is what it was. In a process whose ``DMLC_ROLE`` is
    ``server`` or ``scheduler`` importing MXNet runs that role and ends the process.
    """
    return load_with(_LATE_MODULES)


def load_with(late_modules: tuple[str, ...]):
    """``load()``, with a choice of the modules that MXNet itself would load late."""
    if "mxnet" in sys.modules:
        return sys.modules["mxnet"]
    if importlib.util.find_spec("mxnet") is None:
        raise MXNetUnavailableError(how_to_get_it())
    from labkit import _legacy_numpy

    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else None
    try:
        with _legacy_numpy.standing_on_numpy(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module("mxnet")
            for name in late_modules:
                importlib.import_module(name)
    except Exception as error:
        for name in [n for n in sys.modules if n.partition(".")[0] == "mxnet"]:
            del sys.modules[name]
        raise MXNetUnavailableError(_why_it_failed(error)) from error
    _legacy_numpy.give_view_to("mxnet")
    if torch:
        torch.set_num_threads(threads)  # MXNet's own OpenMP leaves a torch that was there before with one
    return module


def is_available() -> bool:
    """Whether MXNet is installed; does not import it."""
    return "mxnet" in sys.modules or importlib.util.find_spec("mxnet") is not None


def install_command() -> str:
    """What to run in a notebook cell to get MXNet on this Python, without touching NumPy or torch."""
    return _repairs.mxnet_command()


def how_to_get_it() -> str:
    """Where MXNet is not installed: the command, or the way out where there is no package."""
    if _repairs.has_mxnet_wheel():
        return t(
            "MXNet is not installed here. Run this in a cell, then run your cell again: {command}",
            command=install_command(),
        )
    return t(
        "MXNet has no package for this machine ({system}, {processor}): its last release, 1.9.1, was built for Linux "
        "and for Intel Macs only. Ways out: open this notebook in Colab, use WSL on Windows, or a Linux container. The "
        "PyTorch half of the lesson runs here as it is.",
        system=platform.system(),
        processor=platform.machine(),
    )


def _why_it_failed(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = {"distutils": "setuptools", "graphviz": "graphviz==0.8.4"}.get(error.name, error.name)
        return t(
            "MXNet is installed, but it needs the module {module}, which is missing. Run this in a cell, then run your "
            'cell again: %pip install -q "{package}"',
            module=error.name,
            package=package,
        )
    return t(
        "MXNet is installed but does not load here: {kind}: {text}. NumPy is {numpy}, Python is {python}. Use the "
        "tested versions: make setup, or open this notebook in Colab.",
        kind=type(error).__name__,
        text=str(error),
        numpy=sys.modules["numpy"].__version__,
        python=platform.python_version(),
    )
