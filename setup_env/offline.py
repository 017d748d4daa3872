"""``make offline``: the project and every wheel it needs in one folder, for a lab with poor or no internet.

In that folder ``make lab`` installs from ``wheels/`` and asks no network (`packages.pip_install` sees the folder). The
wheels fit one Python and one kind of machine: make one folder for each that the lab has.
"""

from __future__ import annotations

import pathlib
import platform
import shutil

from . import packages
from .pythons import ROOT
from .words import Stop, say, text

LEFT_OUT = (".git", ".venv", ".cache", "__pycache__", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints", "build",
            "dist", "wheels", "offline", "ddp_lab", "capstone_lab")  # fmt: skip
# What pip itself and an editable install take from an index, beside the project's own requirements.
BUILDERS = ("pip", "setuptools", "hatchling", "editables")


def pack(folder, version, extras, torch_index):
    """Copy the project to ``folder`` and download its wheels beside it. Raises Stop."""
    if folder.exists() and any(folder.iterdir()):
        raise Stop("offline_folder", folder=folder)
    say("packing", folder=folder)
    shutil.copytree(ROOT, folder, ignore=lambda parent, names: _left_out(parent, names, folder), dirs_exist_ok=True)
    download = ["download", "-q", "-d", str(folder / "wheels")]
    index = ["--extra-index-url", torch_index] if torch_index else []
    wanted = [packages.target(extras), *BUILDERS, "-c", "constraints.txt", *index]
    lines = packages.pip([*download, *wanted])
    if not lines and "mxnet" in extras and version >= (3, 13):
        lines = packages.pip([*download, *packages.MXNET_NEEDS]) or packages.pip(
            [*download, "--no-deps", packages.MXNET])
    if lines:
        shutil.rmtree(folder, ignore_errors=True)
        raise packages.explain(lines, "offline")
    size_gb = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e9
    about = {"python": "{}.{}".format(*version), "machine": f"{platform.system()} {platform.machine()}",
             "extras": ",".join(extras)}  # fmt: skip
    (folder / "START.txt").write_text(text("offline_start", **about) + "\n", encoding="utf-8")
    say("packed", folder=folder, size_gb=size_gb, **about)


def _left_out(parent, names, folder):
    """What is made afresh anywhere, and the new folder itself where it lies inside the project."""
    return {name for name in names if name in LEFT_OUT or (pathlib.Path(parent) / name).resolve() == folder}
