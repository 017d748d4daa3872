"""The package as a whole: cheap to import, one name one thing, and imports that only go down."""

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import labkit

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "labkit"
HEAVY = ("torch", "numpy", "matplotlib", "ipywidgets", "mxnet", "IPython", "babel", "scipy")
LAYERS = {
    0: ("language", "units"),
    1: ("hardware", "datasets"),
    2: ("timing", "comparison", "ceilings", "graphs", "launch", "mx", "exercises"),
    3: ("advisor", "cost", "models", "transliteration"),
    4: ("plots",),
    5: ("widgets", "classroom", "report_card"),
}
# use_language() is the one call of a notebook's set-up cell, so it also registers launch's magics.
UPWARD_ON_PURPOSE = {("language", "launch")}

WATCH = """
import json, sys, time
{path}
before = set(sys.modules)
begin_s = time.perf_counter()
import {module}
took_s = time.perf_counter() - begin_s
print(json.dumps({{"took_s": took_s, "loaded": sorted(set(sys.modules) - before)}}))
"""


def imported(module: str, folder: Path | None = None) -> dict:
    """Import ``module`` in a new process: seconds, and which modules that loaded."""
    path = f"sys.path.insert(0, {str(folder)!r})" if folder else ""
    code = WATCH.format(module=module, path=path)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout)


def heavy(found: dict) -> set[str]:
    return {name.partition(".")[0] for name in found["loaded"]} & set(HEAVY)


# import


def test_import_is_cheap_and_loads_nothing_heavy():
    runs = [imported("labkit") for _ in range(5)]
    assert [heavy(found) for found in runs] == [set()] * 5
    assert min(found["took_s"] for found in runs) < 0.050


def test_a_heavy_import_would_be_noticed(tmp_path):
    package = tmp_path / "leaky"
    package.mkdir()
    (package / "__init__.py").write_text("from leaky import inner\n")
    (package / "inner.py").write_text("import numpy\n")
    found = imported("leaky", tmp_path)
    assert heavy(found) == {"numpy"}
    assert found["took_s"] > imported("labkit")["took_s"]


@pytest.mark.parametrize("name", ["language", "units", "datasets", "hardware"])
def test_the_lowest_layers_load_nothing_heavy_either(name):
    assert heavy(imported(f"labkit.{name}")) == set()


# names


MANUAL = """
import importlib, inspect, pkgutil, sys, types
import labkit as lab
for found in pkgutil.walk_packages(lab.__path__, "labkit."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
for name, home in lab._HOMES.items():
    module = sys.modules.get(f"labkit.{home}")
    if module is None:
        continue  # a module that is still to be written
    value = getattr(lab, name)
    assert not isinstance(value, types.ModuleType), f"lab.{name} is a module"
    assert value is getattr(module, name), f"lab.{name} is not labkit.{home}.{name}"
    assert callable(value), f"lab.{name} cannot be called"
    assert inspect.getdoc(value), f"lab.{name} has no docstring"
for name in lab._SUBMODULES:
    module = sys.modules.get(f"labkit.{name}")
    assert module is None or getattr(lab, name) is module, f"lab.{name} is not the submodule"
lab.use_language("en")
assert lab.current_language() == "en" and lab.pick(cpu=1, gpu=2) in (1, 2) and lab.sync() is None
for name in set(lab._HOMES) & {"measure", "compare", "check", "predict", "peaks", "roofline", "advise", "claim"}:
    if f"labkit.{lab._HOMES[name]}" in sys.modules:
        try:
            getattr(lab, name)(no_such_argument=1)
        except TypeError as error:
            assert "not callable" not in str(error), f"lab.{name}"
"""


@pytest.mark.slow
def test_every_public_name_is_one_thing_after_all_submodules_are_imported():
    done = subprocess.run([sys.executable, "-c", MANUAL], capture_output=True, text=True, cwd=ROOT, timeout=200)
    assert done.returncode == 0, done.stderr


def test_no_public_name_is_a_submodules_name():
    modules = {path.stem for path in PACKAGE.glob("*.py")} | {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    assert not modules & set(labkit._HOMES)
    assert not set(labkit._SUBMODULES) & set(labkit._HOMES)


def test_a_shadowed_name_would_be_noticed(tmp_path):
    """The trap is real: importing a submodule overwrites a function of the same name."""
    package = tmp_path / "shadow"
    package.mkdir()
    (package / "__init__.py").write_text("def compare(): ...\n")
    (package / "compare.py").write_text("")
    code = "import sys; sys.path.insert(0, sys.argv[1]); import shadow; print(callable(shadow.compare)); "
    code += "import shadow.compare; print(callable(shadow.compare))"
    run = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.split() == ["True", "False"]


def test_dir_is_the_manual():
    listed = dir(labkit)
    assert listed == sorted(listed)
    assert set(labkit._HOMES) | set(labkit._SUBMODULES) <= set(listed)
    assert not [name for name in listed if name.startswith("_") and not name.startswith("__")]
    with pytest.raises(AttributeError, match="no attribute 'mesure'"):
        labkit.mesure  # noqa: B018


def test_the_version_is_pyprojects():
    assert labkit.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


# layers


def imports_of(path: Path, package: Path) -> set[str]:
    """First-level modules of labkit that one file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module] if node.module != "labkit" else [f"labkit.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = path.parent.relative_to(package.parent).parts
            names = [".".join([*base[: len(base) - node.level + 1], node.module or ""])]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("labkit.") and name.count(".")}
    return {name for name in found if (package / f"{name}.py").exists() or (package / name).is_dir()}


def graph(package: Path) -> dict[str, set[str]]:
    """First-level module -> the first-level modules it imports."""
    found: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        name = path.relative_to(package).parts[0].removesuffix(".py")
        if name != "__init__":
            found.setdefault(name, set()).update(imports_of(path, package) - {name})
    return found


def upward(found: dict[str, set[str]], layers: dict[int, tuple[str, ...]]) -> set[tuple[str, str]]:
    """Pairs (module, import) that go up. A module outside the table lives in the lowest layer that uses it."""
    layer = {name: number for number, names in layers.items() for name in names}
    helpers = [name for name in found if name not in layer]
    layer |= dict.fromkeys(helpers, max(layers))
    changed = True
    while changed:
        changed = False
        for name in helpers:
            users = [layer[user] for user, used in found.items() if name in used]
            if users and min(users) < layer[name]:
                layer[name], changed = min(users), True
    return {(name, used) for name, all_used in found.items() for used in all_used if layer[used] > layer[name]}


def test_imports_only_go_down():
    assert upward(graph(PACKAGE), LAYERS) - UPWARD_ON_PURPOSE == set()


def test_an_upward_import_would_be_noticed(tmp_path):
    package = tmp_path / "labkit"
    (package / "lessons").mkdir(parents=True)
    files = {
        "language.py": "",
        "timing.py": "from labkit import _helper\n",
        "_helper.py": "def f():\n    from labkit.plots import bars\n",
        "plots.py": "from labkit.timing import measure\nimport labkit.language\n",
        "lessons/__init__.py": "",
        "lessons/l01.py": "from labkit import plots\n",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    assert upward(graph(package), LAYERS) == {("_helper", "plots")}
    (package / "_helper.py").write_text("from .plots import bars\n")
    assert upward(graph(package), LAYERS) == {("_helper", "plots")}
    (package / "_helper.py").write_text("from labkit import language\n")
    assert upward(graph(package), LAYERS) == set()
