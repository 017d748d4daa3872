"""Which cells are refused before anything starts, and with which advice."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import labkit as lab
from labkit import _cell_script, launch


@pytest.fixture(autouse=True)
def _english():
    lab.use_language("en")


@pytest.mark.parametrize("source", ["", "\n\n", "# only a comment\n\n   # and another\n"])
def test_an_empty_cell_is_refused(source):
    with pytest.raises(launch.BadLaunchError, match="nothing to run"):
        _cell_script.check_source(source)


def test_a_syntax_error_names_the_cells_own_line():
    with pytest.raises(launch.BadLaunchError, match="Line 3 is not valid Python") as caught:
        _cell_script.check_source("# torchrun …\nimport os\nprint('a'\n")
    assert "print('a'" in str(caught.value)


def test_shell_and_magic_lines_are_explained():
    with pytest.raises(launch.BadLaunchError, match="! and % commands"):
        _cell_script.check_source("# torchrun …\nimport os\n!ls\n")


def names_refused(source: str, namespace: dict) -> str:
    try:
        _cell_script.check_names(source, _cell_script.check_source(source), namespace)
    except launch.BadLaunchError as error:
        return str(error)
    return ""


def test_a_notebook_variable_is_refused_with_the_way_to_pass_it():
    text = names_refused("# line 1\nimport os\nstep = 1\nprint(learning_rate * step)\n", {"learning_rate": 0.1})
    assert "Line 4 uses learning_rate" in text
    assert "--set learning_rate" in text
    assert "lab.launch.value('learning_rate')" in text


@pytest.mark.parametrize(
    ("source", "namespace", "advice"),
    [
        ("x = np.zeros(3)\n", {"np": json}, "import json as np"),
        ("x = json.dumps(3)\n", {"json": json}, "import json"),
        ("x = path.join('a')\n", {"path": os.path}, "posixpath"),
        ("train()\n", {"train": names_refused}, "Define train in the cell"),
        ("def f():\n    return Net()\n", {"Net": Path}, "Define Net in the cell"),
        ("display(3)\n", {}, "belongs to the notebook"),
    ],
)
def test_other_notebook_names(source, namespace, advice):
    assert advice in names_refused(source, namespace)


@pytest.mark.parametrize(
    "source",
    [
        "x = 1\nprint(x, len([x]), __name__, __file__)\n",
        "def f(x, *x2, **x3):\n    return [x for x in x2]\n\nprint(f)\n",
        "from os.path import *\nprint(x)\n",
        "def f():\n    global x\n    x = 2\n\nf()\nprint(x)\n",
        "for x in range(3):\n    pass\nwith open('f') as x2:\n    print(x, x2)\n",
        "class A:\n    x = 1\n    y = x\n",
        "if (x := 3) > 2:\n    print(f'{x}')\ntry:\n    pass\nexcept ValueError as x2:\n    print(x2)\n",
        "import x.y\nimport os as x2\nprint(x, x2, lambda x3: x3)\n",
        "match 3:\n    case x:\n        print(x)\n",
        "print(unknown_everywhere)\n",
    ],
)
def test_a_cell_that_defines_its_names_is_not_refused(source):
    assert names_refused(source, {"x": 1, "x2": 2, "x3": 3, "y": 4}) == ""
