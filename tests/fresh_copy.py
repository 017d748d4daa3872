"""A copy of what the set-up needs, in a folder of its own, and faults to put in its way."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("Makefile", "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "labkit", "data", "setup_env")

# A Python that says it is another version, and may lack ensurepip as on a bare Debian. It is a real one underneath.
_PRETENDER = """#!{python} -S
import importlib.util, runpy, sys
sys.version_info, sys.executable, sys._base_executable = {version}, __file__, __file__
if {bare}:
    found = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *rest: None if name == "ensurepip" else found(name, *rest)
flag, argument = sys.argv[1:3]
if flag == "-c":
    exec(argument)
else:
    sys.path[0], sys.argv[:] = "", [argument, *sys.argv[3:]]
    runpy.run_module(argument, run_name="__main__", alter_sys=True)
"""


def copy(folder: Path) -> Path:
    """The project, without .venv and without what only its tests and lessons need."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    return folder


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def pretender(path: Path, version: tuple[int, ...], *, bare: bool = False) -> Path:
    base = getattr(sys, "_base_executable", sys.executable)
    return executable(path, _PRETENDER.format(python=base, version=version, bare=bare))


def make(folder: Path, *arguments: str, path: Path | str, home: Path, **environment: str):
    """``make …`` in ``folder``, where only the programs below ``path`` are to be found."""
    return subprocess.run(
        [shutil.which("make"), *arguments],
        cwd=folder,
        env={"PATH": str(path), "HOME": str(home), "PYENV_ROOT": str(home / ".pyenv"), **environment},
        capture_output=True,
        text=True,
    )


def stub_torch(folder: Path, version: str) -> str:
    """The address of a package index with an empty torch, for tests of all the rest: the real one has gigabytes."""
    name, info = f"torch-{version}+stub-py3-none-any.whl", f"torch-{version}+stub.dist-info"
    (folder / "torch").mkdir(parents=True)
    with zipfile.ZipFile(folder / "torch" / name, "w") as wheel:
        wheel.writestr("torch/__init__.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}+stub\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    (folder / "torch/index.html").write_text(f'<a href="{name}">{name}</a>')
    return folder.as_uri()


def usual_path() -> str:
    """The caller's PATH without the tests' own environment."""
    own = str(Path(sys.executable).parent)
    return os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if part != own)
