"""The set-up: its files agree with each other, and each fault is explained. Real installs: test_setup_install.py."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import string
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from setup_env import own_torch, packages, pythons, words
from tests import fresh_copy
from tests.fresh_copy import ROOT, make, pretender

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
VERSIONS = ("3.11", "3.12", "3.13")


def pins(text, python):
    """name -> version of the constraints that hold on this Python."""
    found = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        pin = Requirement(line)
        if pin.marker is None or pin.marker.evaluate({"python_version": python}):
            assert canonicalize_name(pin.name) not in found, f"{pin.name} is pinned twice on {python}"
            [specifier] = pin.specifier
            assert specifier.operator == "=="
            found[canonicalize_name(pin.name)] = specifier.version
    return found


def unpinned(requirements, constraints, python):
    """The requirements that no constraint fulfils on this Python."""
    wrong = []
    for requirement in map(Requirement, requirements):
        if requirement.marker and not requirement.marker.evaluate({"python_version": python, "extra": ""}):
            continue
        version = constraints.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version):
            wrong.append(str(requirement))
    return wrong


# ---- files that must agree -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("python", VERSIONS)
def test_every_requirement_is_pinned(python):
    constraints = pins((ROOT / "constraints.txt").read_text(), python)
    wanted = [*PROJECT["dependencies"], *(r for extra in EXTRAS.values() for r in extra)]
    assert unpinned(wanted, constraints, python) == []
    assert constraints["numpy"].split(".")[0] == ("2" if python == "3.13" else "1")


def test_an_unfulfilled_requirement_is_seen():
    constraints = pins("numpy==1.26.4", "3.12")
    wanted = ["numpy>=2", "torch", "mxnet; python_version > '3.12'"]
    assert unpinned(wanted, constraints, "3.12") == ["numpy>=2", "torch"]


def shut_out(requires, python):
    """The packages whose own ``Requires-Python`` leaves this Python out; ``requires``: name -> what it says."""
    return [name for name, said in requires.items() if not SpecifierSet(said).contains(python)]


def test_every_pin_takes_debians_python():
    """Debian 12 has Python 3.11.2, and some releases want a later 3.11."""
    requires = {}
    for name, version in pins((ROOT / "constraints.txt").read_text(), "3.11").items():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed = importlib.metadata.distribution(name)
            if installed.version.partition("+")[0] == version:
                requires[name] = installed.metadata.get("Requires-Python") or ""
    assert len(requires) > 100
    assert shut_out(requires, "3.11.2") == []
    assert shut_out({"soupsieve": ">=3.11.5", "numpy": ">=3.9"}, "3.11.2") == ["soupsieve"]


def test_a_double_pin_is_seen():
    with pytest.raises(AssertionError, match="pinned twice"):
        pins('numpy==1.26.4\nNumPy==2.1.3; python_version >= "3.12"', "3.12")


def test_the_environment_runs_the_tested_releases():
    """The releases of the running environment are the pinned ones; local labels such as +cpu aside."""
    constraints = pins((ROOT / "constraints.txt").read_text(), "{}.{}".format(*sys.version_info))
    names = [Requirement(r).name for r in [*PROJECT["dependencies"], *EXTRAS["lab"]]]
    installed = {name: importlib.metadata.version(name).split("+")[0] for name in names}
    assert installed == {name: constraints[canonicalize_name(name)] for name in names}


def test_conda_installs_the_same():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    [lines] = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    conda = {str(entry).split("=")[0]: str(entry) for entry in environment["dependencies"] if isinstance(entry, str)}
    assert "-c constraints.txt" in lines
    [editable] = [line for line in lines if line.startswith("-e ")]
    extras = re.fullmatch(r"-e \.\[([a-z,]+)\]", editable).group(1)
    default = re.search(r"^EXTRAS \?= (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M).group(1)
    assert extras == default
    assert conda["python"].split("=")[1] in VERSIONS
    assert "cxx-compiler" in conda


def test_pip_reads_the_conda_list(tmp_path):
    """As conda hands it to pip: a requirements file in the project's folder."""
    from pip._internal.network.session import PipSession
    from pip._internal.req.req_file import parse_requirements  # pip offers no public reader

    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    lines = environment["dependencies"][-1]["pip"]
    (tmp_path / "requirements.txt").write_text("\n".join(lines))
    (tmp_path / "constraints.txt").write_text((ROOT / "constraints.txt").read_text())
    rows = list(parse_requirements(str(tmp_path / "requirements.txt"), session=PipSession()))
    assert [row.requirement for row in rows if not row.constraint] == [".[lab,mxnet]"]
    assert len([row for row in rows if row.constraint]) > 100


def test_pythons_agree():
    oldest, newest = (".".join(map(str, version)) for version in (pythons.OLDEST, pythons.NEWEST))
    assert (oldest, newest) == (VERSIONS[0], VERSIONS[-1])
    assert PROJECT["requires-python"] == f">={oldest},<3.{pythons.NEWEST[1] + 1}"
    listed = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if c.startswith("Programming Language")]
    assert tuple(listed) == VERSIONS
    assert PYPROJECT["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")


def test_mxnet_is_named_once_everywhere():
    [pin] = [r for r in EXTRAS["mxnet"] if r.startswith("mxnet")]
    assert pin.startswith(packages.MXNET + ";")
    assert packages.MXNET in (ROOT / "constraints.txt").read_text().splitlines()


def test_make_knows_its_extras_and_commands():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for extras in re.findall(r"^(?:TEST_)?EXTRAS \??= (\S+)$", makefile, re.M):
        assert set(extras.split(",")) <= set(EXTRAS)
    targets = re.search(r"^\.PHONY: (.+)$", makefile, re.M).group(1).split()
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^  make (\S+)", listed, re.M) == targets


# ---- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", words.MESSAGES)
def test_both_languages_say_the_same(message):
    bengali, english = words.MESSAGES[message]
    fields = [sorted({name for _, name, _, _ in string.Formatter().parse(part) if name}) for part in (bengali, english)]
    if message != "remaking":  # the reason itself comes in both languages
        assert fields[0] == fields[1]
    assert re.search("[\u0980-\u09ff]", bengali)
    assert not re.search("[\u0980-\u09ff]", english)
    assert re.findall(r"make [a-z]+|sudo apt install \S+|[A-Z_]{3,}=", bengali) == re.findall(
        r"make [a-z]+|sudo apt install \S+|[A-Z_]{3,}=", english
    )


def test_every_message_is_used_and_every_use_has_a_message():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "setup_env").glob("*.py"))
    assert set(re.findall(r'\b(?:say|Stop|text)\(\s*"(\w+)"', source)) | {"no_network", "failed"} == set(words.MESSAGES)


def test_the_setup_loads_on_old_pythons():
    """Nothing newer than Python 3.8 in its grammar: an old Python must reach the explanation."""
    import ast

    for path in (ROOT / "setup_env").glob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))


# ---- faults ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(tmp_path):
    return fresh_copy.copy(tmp_path / "project folder")


@pytest.mark.parametrize("version", [(3, 8, 18), (3, 10, 2), (3, 14, 0)])
def test_only_a_wrong_python(fresh, tmp_path, version):
    pretender(tmp_path / "bin/python3", version)
    done = make(fresh, "setup", path=tmp_path / "bin", home=tmp_path)
    assert done.returncode == 2
    found = ".".join(map(str, version))
    assert f"Python 3.11, 3.12 বা 3.13 লাগবে। এখানে পাওয়া গেছে: {found} (python3)" in done.stdout
    assert f"Python 3.11, 3.12 or 3.13 is needed. Found here: {found} (python3)" in done.stdout
    assert not (fresh / ".venv").exists()


def test_a_python_that_does_not_start_is_passed_over(tmp_path, monkeypatch):
    shims = tmp_path / "bin"
    fresh_copy.executable(shims / "python3", "#!/bin/sh\necho 'pyenv: version not installed' >&2\nexit 127\n")
    monkeypatch.setenv("PATH", str(shims))
    monkeypatch.setattr(pythons, "candidates", lambda: ["python3", "no-such-python", sys.executable])
    version, executable = pythons.find("", "setup")
    assert version == sys.version_info[:3]
    assert os.path.realpath(executable) == os.path.realpath(sys.executable)


def test_no_python_at_all(fresh, tmp_path):
    (tmp_path / "bin").mkdir()
    done = make(fresh, "setup", path=tmp_path / "bin", home=tmp_path)
    assert done.returncode == 2
    assert "none was found" in done.stdout
    assert "পাওয়া গেল না" in done.stdout


def test_the_python_asked_for_is_not_there(fresh, tmp_path):
    pretender(tmp_path / "bin/python3", (3, 12, 1))
    done = make(fresh, "setup", "PYTHON=/nowhere/python3.12", path=tmp_path / "bin", home=tmp_path)
    assert done.returncode == 2
    assert "Found here: /nowhere/python3.12." in done.stdout


def test_debian_without_the_venv_module(fresh, tmp_path):
    pretender(tmp_path / "bin/python3", (3, 11, 2), bare=True)
    done = make(fresh, "setup", path=tmp_path / "bin", home=tmp_path)
    assert done.returncode == 2
    assert "sudo apt install python3.11-venv" in done.stdout
    assert not (fresh / ".venv").exists()


@pytest.fixture
def tiny_disk(tmp_path):
    """A real file system of 60 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m", "none", str(disk)], capture_output=True)
    if done.returncode:
        pytest.skip("no tmpfs can be mounted")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_disk_full_before_anything_is_written(tiny_disk, tmp_path):
    project = fresh_copy.copy(tiny_disk / "project")
    done = make(project, "lab", path=fresh_copy.usual_path(), home=tmp_path)
    assert done.returncode == 2
    assert "ডিস্কে জায়গা নেই" in done.stdout
    assert re.search(r"The disk is full: 0\.[01] GB free .* TMPDIR=\$HOME make lab", done.stdout)
    assert not (project / ".venv").exists()


# ---- the PyTorch that is there ---------------------------------------------------------------------------------------


def environment_with_torch(folder, version):
    """The Python of an environment that has an empty torch; without ``version``, none."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [site] = folder.glob("lib/python3*/site-packages")
    if version:
        for path, text in (("torch/__init__.py", f"__version__ = {version!r}\n"), ("beside_torch.py", ""),
                           (f"torch-{version}.dist-info/METADATA",
                            f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")):  # fmt: skip
            (site / path).parent.mkdir(exist_ok=True)
            (site / path).write_text(text)
    return folder / "bin/python3"


@pytest.fixture
def own_venv(tmp_path, monkeypatch):
    """A folder for ``.venv`` that is not the project's."""
    venv = tmp_path / "project/.venv"
    monkeypatch.setattr(pythons, "VENV", venv)
    for name, path in (("EXECUTABLE", "bin/python"), ("STAMP", "stamp"), ("UNFINISHED", "unfinished")):
        monkeypatch.setattr(pythons, name, venv / path)
    monkeypatch.setattr(own_torch, "CONSTRAINTS", venv / "pins.txt")
    return venv


@pytest.mark.parametrize(("version", "old"), [
    ("2.8.0+cu126", True), ("1.13.1", True), ("2.9.0a0+50eac811a6.nv25.09", True), ("2.9.0", False),
    ("2.9.1+cu130", False), ("2.10.0a0+b4e4ee81d3.nv25.12", False), ("2.13.0+rocm6.4", False), ("3.0.0", False),
    ("unknown", True),
])  # fmt: skip
def test_what_is_too_old(version, old):
    """As pip sees it: a pre-release of 2.9 is not yet 2.9."""
    assert own_torch.is_old(version) is old
    if version != "unknown":
        assert Requirement("torch>=2.9").specifier.contains(version, prereleases=True) is not old
    assert "torch>=2.9" in PROJECT["dependencies"]


@pytest.mark.parametrize(("version", "said"), [
    ("2.8.0+cu126", ("is 2.8.0+cu126, but the labs need 2.9 or newer", "ভার্সন 2.8.0+cu126, কিন্তু ল্যাবগুলোর লাগে 2.9")),
    ("", ("has no PyTorch. If another Python has it, say which: make gpu TORCH=installed PYTHON=",
          "কোনো PyTorch পাওয়া গেল না")),
])  # fmt: skip
def test_no_fit_torch_is_installed(fresh, tmp_path, version, said):
    python = environment_with_torch(tmp_path / "env", version)
    done = make(fresh, "gpu", "TORCH=installed", f"PYTHON={python}", path=python.parent, home=tmp_path)
    assert done.returncode == 2
    for part in said:
        assert part in done.stdout
    assert not (fresh / ".venv").exists()


def test_the_torch_that_is_there_is_found_and_let_in(tmp_path, own_venv, monkeypatch):
    python = environment_with_torch(tmp_path / "env", "2.9.1+cu130")
    monkeypatch.setenv("PATH", str(python.parent))
    torch = own_torch.find("", "gpu")
    assert torch["version"] == "2.9.1+cu130"
    assert os.path.samefile(torch["python"], python)
    environment_with_torch(own_venv, "")
    constraints = own_torch.let_in(torch)
    code = "import torch, beside_torch; print(torch.__version__, torch.__file__)"
    done = subprocess.run([pythons.EXECUTABLE, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["2.9.1+cu130", f"{torch['folder']}/torch/__init__.py"], done.stderr
    before, after = ((path).read_text().splitlines() for path in (ROOT / "constraints.txt", constraints))
    assert [line for line in after if line not in before] == ["torch==2.9.1+cu130"]
    assert [line for line in before if line not in after] == [f"torch=={pins(chr(10).join(before), '3.11')['torch']}"]
    # Through its own door .venv sees that torch too; it must not be taken for the machine's own.
    assert own_torch.probe(str(pythons.EXECUTABLE)) is None


def test_when_the_environment_is_made_afresh_for_a_torch(tmp_path, own_venv):
    import json

    torch = own_torch.probe(str(environment_with_torch(tmp_path / "env", "2.9.1")))
    environment_with_torch(own_venv, "")
    stamp = {"root": str(ROOT)}
    for written, asked, stays in (({}, None, True), ({}, torch, False), (stamp, None, True), (stamp, torch, False),
                                  (stamp | {"own_torch": torch}, torch, True),
                                  (stamp | {"own_torch": torch}, torch | {"version": "2.9.2"}, False),
                                  (stamp | {"own_torch": torch}, None, False)):  # fmt: skip
        pythons.STAMP.write_text(json.dumps(written))
        version, why = pythons.why_remake("", asked)
        assert bool(version) is stays, (written, asked)
        assert stays or why[1] == "another PyTorch was asked for"
    assert own_torch.again(torch) == torch
    assert own_torch.again(None) is None
    assert own_torch.again(torch | {"python": str(tmp_path / "gone")}) is None


PIP_SAYS = [
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk_full"),
    ("OSError: [Errno 122] Disk quota exceeded: '/home/me'", "disk_full"),
    ("WARNING: Retrying ... NewConnectionError('Failed to establish a new connection: [Errno 111]", "no_network"),
    ("ReadTimeoutError(\"HTTPSConnectionPool(host='x', port=443): Read timed out. (read timeout=15)\")", "no_network"),
    ("ERROR: Could not find a version that satisfies the requirement pip==26.3 (from versions: none)", "no_network"),
    ("ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: none)", "failed"),
    ("error: command '/usr/bin/gcc' failed with exit code 1", "failed"),
    ("ERROR: Ignored the following versions that require a different python version", "failed"),
]


@pytest.mark.parametrize(("line", "message"), PIP_SAYS)
def test_what_pip_says_is_explained(line, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(packages, "UNFINISHED", tmp_path / "unfinished")
    packages.UNFINISHED.touch()
    stop = packages.explain(["Collecting numpy", line, "hint: see above"], "lab")
    assert stop.message == message
    assert line in capsys.readouterr().err
    assert packages.UNFINISHED.exists() is (message == "disk_full")  # only that may leave packages half written


def test_no_compiler(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    packages.check_compiler((3, 12, 1))
    said = capsys.readouterr().out
    assert "Warning: no C++ compiler found" in said
    assert "C++ কম্পাইলার পাওয়া যায়নি" in said


def test_a_compiler_that_only_offers_to_install_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("CXX", raising=False)
    fresh_copy.executable(tmp_path / "c++", "#!/bin/sh\necho 'xcode-select: note: no developer tools' >&2\nexit 1\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    packages.check_compiler((3, 12, 1))
    assert "no C++ compiler" in capsys.readouterr().out


def test_a_compiler_without_python_h(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CXX", str(fresh_copy.executable(tmp_path / "my c++", "#!/bin/sh\nexit 0\n")))
    monkeypatch.setattr(packages, "fails", lambda code: "FileNotFoundError: Python.h")
    packages.check_compiler((3, 12, 1))
    assert "sudo apt install python3.12-dev" in capsys.readouterr().out
    monkeypatch.setattr(packages, "fails", lambda code: "")
    packages.check_compiler((3, 12, 1))
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_lessons_are_trusted_as_they_came(tmp_path):
    """JupyterLab shows their saved figures at once; what somebody changed since is another matter."""
    code = "from setup_env import packages; packages.trust_lessons()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ | {"HOME": str(tmp_path)}, check=True)
    code = """
import sys, nbformat
from nbformat.sign import NotebookNotary
notebook = nbformat.read(sys.argv[1], as_version=4)
as_it_came = NotebookNotary().check_signature(notebook)
notebook.cells[2].source += " "
print(as_it_came, NotebookNotary().check_signature(notebook))
"""
    done = subprocess.run([sys.executable, "-c", code, ROOT / "notebooks/bn/01_measuring.ipynb"], capture_output=True,
                          text=True, env=os.environ | {"HOME": str(tmp_path)}, check=True)  # fmt: skip
    assert done.stdout.split() == ["True", "False"]
