"""What code of this project may not do: unpickle what others wrote, build a shell's command line, unpack blindly.

JupyterLab on loopback behind a token: test_setup_lab.py. Names, paths and archives of students: test_classroom.py and
test_classroom_class.py. Checkpoints that carry code: test_checkpoint.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("labkit", "notebooks", "setup_env", "data")
# Where a rule does not apply, and why.
ALLOWED = {
    ("labkit/_checkpoint.py", "pickle.Unpickler"),  # its find_class() lets through DCP's own records and nothing else
}
PICKLES = {"pickle.load", "pickle.loads", "pickle.Unpickler", "dill.load", "dill.loads", "cloudpickle.load",
           "cloudpickle.loads", "joblib.load", "marshal.load", "marshal.loads", "shelve.open", "pandas.read_pickle",
           "pd.read_pickle", "torch.hub.load"}  # fmt: skip
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput",
          "asyncio.create_subprocess_shell"}  # fmt: skip
STARTS = {"subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call", "subprocess.check_output"}


def name_of(node: ast.expr) -> str:
    """``a.b.c`` as it is written."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def is_set(call: ast.Call, keyword: str, value) -> bool:
    return any(k.arg == keyword and isinstance(k.value, ast.Constant) and k.value.value is value for k in call.keywords)


def wrong(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, what) of everything that is not allowed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for base in map(name_of, node.bases):
                if base in PICKLES:
                    yield node.lineno, base
        if not isinstance(node, ast.Call):
            continue
        name = name_of(node.func)
        if name in PICKLES | SHELLS:
            yield node.lineno, name
        elif name in ("np.load", "numpy.load") and not is_set(node, "allow_pickle", False):
            yield node.lineno, f"{name} without allow_pickle=False"
        elif name == "torch.load" and not is_set(node, "weights_only", True):
            yield node.lineno, "torch.load without weights_only=True"
        elif name in ("yaml.load", "yaml.unsafe_load", "yaml.full_load"):
            yield node.lineno, f"{name} instead of yaml.safe_load"
        elif any(k.arg == "shell" and not is_set(node, "shell", False) for k in node.keywords):
            yield node.lineno, "shell=…"
        elif name in STARTS and node.args and isinstance(node.args[0], ast.JoinedStr | ast.BinOp):
            if not isinstance(node.args[0], ast.BinOp) or is_text(node.args[0]):
                yield node.lineno, f"{name} of a text instead of a list"
        elif name.endswith((".extractall", ".unpack_archive")):
            yield node.lineno, f"{name}: look at each member's path first"


def is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return is_text(node.left) or is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def sources() -> Iterator[tuple[str, str]]:
    """(path, Python) of every file, and of every lesson's code cells, their magics and shell lines left out."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "notebooks/src").glob("*.md")):
        fence = re.compile(r"^```\{code-cell\}.*?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
        for number, cell in enumerate(fence.findall(path.read_text(encoding="utf-8")), 1):
            body = re.sub(r"\A(---\n.*?\n---\n|(:\w+:.*\n)+)", "", cell, flags=re.DOTALL)
            lines = [line for line in body.splitlines() if not line.lstrip().startswith(("%", "!"))]
            yield f"{path.relative_to(ROOT).as_posix()} cell {number}", "\n".join(lines)


def test_nothing_foreign_is_unpickled_and_no_shell_is_fed():
    found, read = [], 0
    for path, text in sources():
        read += 1
        for line, what in wrong(ast.parse(text)):
            if (path, what) not in ALLOWED:
                found.append(f"{path}:{line}: {what}")
    assert found == []
    assert read > 300


@pytest.mark.parametrize("line", [
    "import pickle; pickle.load(file)", "class Easy(pickle.Unpickler): pass", "np.load(path)",
    "np.load(path, allow_pickle=True)", "torch.load(path)", "torch.load(path, weights_only=False)",
    "yaml.load(text)", "os.system(command)", "subprocess.run(command, shell=True)",
    "subprocess.run(command, shell=wanted)", "subprocess.Popen(f'unzip {name}')", "subprocess.run('unzip ' + name)",
    "archive.extractall(folder)",
])  # fmt: skip
def test_each_rule_catches(line):
    assert len(list(wrong(ast.parse(line)))) == 1


@pytest.mark.parametrize("line", [
    "np.load(file, allow_pickle=False)", "torch.load(file, weights_only=True)", "yaml.safe_load(text)",
    "subprocess.run([name, 'x'])", "subprocess.run([*command, name] + more)", "pickle.dumps(value)",
])  # fmt: skip
def test_what_is_safe_is_allowed(line):
    assert list(wrong(ast.parse(line))) == []
