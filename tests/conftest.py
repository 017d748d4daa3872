"""What every test shares: a clean language, tools on PATH, and the reasons for which a marked test is skipped.

``make test`` prints every skip and fails on one that tests/allowed_skips.txt does not list.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", "")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.pop("LABKIT_LANG", None)
os.environ.pop("LABKIT_STRICT", None)


@functools.cache
def no_cuda() -> str:
    import torch

    return "" if torch.cuda.is_available() else "no CUDA GPU"


@functools.cache
def no_browser() -> str:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return "" if any(shutil.which(name) for name in names) else "no Chromium"


@functools.cache
def no_namespaces() -> str:
    """Tries it: in a container, root may lack the right to make one."""
    if not shutil.which("ip"):
        return "no network namespaces (iproute2 is missing)"
    name = f"labkit-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "no network namespaces (not allowed here)"
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=True)
    return ""


# They start processes, end them by force and bound by the clock how long the news of it takes: nothing beside them
# that works without a pause.
ALONE = ("test_kernel_faults", "test_launch", "test_launch_faults", "test_mxnet_faults", "test_mxnet_hosts",
         "test_mxnet_launch", "test_torchrun_magic", "test_two_hosts")  # fmt: skip

# They take minutes: they come first, so that with two workers none of them is left over for the end.
LONG = ("test_setup_install", "test_setup_offline", "test_colab", "test_lesson10", "test_classroom_class",
        "test_parallel_scripts", "test_faults", "test_models", "test_checkpoint", "test_lesson05", "test_mx_313",
        "test_lesson11", "test_transliteration")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))
    for item in items:
        if item.path.stem in ALONE:
            item.add_marker("alone")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, why_not in (("gpu", no_cuda), ("browser", no_browser), ("netns", no_namespaces)):
        if item.get_closest_marker(marker) and (reason := why_not()):
            pytest.skip(reason)


@pytest.fixture(autouse=True)
def _own_language():
    """A test that switches the language does not switch it for the next one."""
    from labkit import language

    before = dict(language._state)
    yield
    language._state.clear()
    language._state.update(before)


@pytest.fixture
def english():
    """Texts are asserted on in English; `_own_language` puts the language back."""
    from labkit import use_language

    use_language("en")
