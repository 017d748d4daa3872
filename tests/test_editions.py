"""The committed notebooks, looked at as plain JSON and not through the build; and the generated set-up cell."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys

import pytest

from tests.throwaway import NAME, ROOT, build, course

from builder import editions, markdown  # isort: skip

LESSONS = sorted(path.stem for path in (ROOT / "notebooks/en").glob("*.ipynb"))
IGNORED = {"nbval-ignore-output", "nbval-skip"}
NEVER_COMPARED = {"image/png", "image/jpeg", "application/vnd.jupyter.widget-view+json"}
BENGALI = re.compile(r"[\u0980-\u09FF]")


def cells(language, lesson):
    return json.loads((ROOT / f"notebooks/{language}/{lesson}.ipynb").read_text(encoding="utf-8"))["cells"]


def code(language, lesson):
    return [cell for cell in cells(language, lesson) if cell["cell_type"] == "code"]


def test_committed_editions_are_what_the_sources_say(capsys):
    assert build.main(["--check"]) == 0, capsys.readouterr().err


def test_every_source_has_its_editions_and_its_checks():
    sources = [path.stem for path in sorted((ROOT / "notebooks/src").glob("*.md"))]
    assert LESSONS
    assert set(LESSONS) <= set(sources)
    for lesson in LESSONS:
        assert (ROOT / f"labkit/lessons/l{lesson[:2]}.py").exists()
        assert (ROOT / f"notebooks/bn/{lesson}.ipynb").exists()


@pytest.mark.parametrize("lesson", LESSONS)
def test_code_is_shared_but_for_the_language(lesson):
    bn, en = code("bn", lesson), code("en", lesson)
    different = [(b["source"], e["source"]) for b, e in zip(bn, en, strict=True) if b["source"] != e["source"]]
    assert len(different) == 1
    one, two = ("".join(source) for source in different[0])
    assert one.replace('lab.use_language("bn")', 'lab.use_language("en")') == two
    names = [[(cell["id"], cell["metadata"]) for cell in cells(language, lesson)] for language in ("bn", "en")]
    assert names[0] == names[1]
    assert not any(BENGALI.search("".join(cell["source"])) for cell in bn)


def shows_what_nbval_compares(cell):
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            return True
        widget = "application/vnd.jupyter.widget-view+json" in output.get("data", {})
        if any(mime not in NEVER_COMPARED and not (mime == "text/plain" and widget) for mime in output.get("data", {})):
            return True
    return False


@pytest.mark.parametrize("lesson", LESSONS)
@pytest.mark.parametrize("language", ["bn", "en"])
def test_most_output_is_compared(language, lesson):
    with_output = [cell for cell in code(language, lesson) if cell["outputs"]]
    kept = [cell for cell in with_output if not IGNORED & set(cell["metadata"].get("tags", []))]
    compared = [cell for cell in kept if shows_what_nbval_compares(cell)]
    assert len(compared) >= 0.6 * len(with_output)


@pytest.mark.parametrize("lesson", LESSONS)
@pytest.mark.parametrize("language", ["bn", "en"])
def test_links_lead_somewhere(language, lesson):
    text = "\n".join("".join(cell["source"]) for cell in cells(language, lesson) if cell["cell_type"] == "markdown")
    here = ROOT / "notebooks" / language
    for pattern in (markdown.FENCED, markdown.CODE):
        text = pattern.sub("", text)  # a C++ lambda looks like a link
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)\s#]+)", text)
    assert targets
    assert [target for target in targets if not (here / target).exists()] == []


def test_the_index_leads_to_every_lesson():
    notebook = json.loads((ROOT / "notebooks/index.ipynb").read_text(encoding="utf-8"))
    text = "".join("".join(cell["source"]) for cell in notebook["cells"])
    assert [x for x in LESSONS for y in ("bn", "en") if f"]({y}/{x}.ipynb)" not in text] == []


# The set-up cell where labkit is missing: pip is replaced, and what it would have been asked is printed.
WITHOUT_LABKIT = """
import importlib.util, json, subprocess, sys, types
found, asked = importlib.util.find_spec, []
importlib.util.find_spec = lambda name: None if name == "labkit" and not asked else found(name)

def run(command, **options):
    asked.append(command)
    sys.modules["labkit"] = types.SimpleNamespace(use_language=asked.append)
    return types.SimpleNamespace(returncode={code}, stderr="ERROR: no network")

subprocess.run = run
setup = {setup!r}
exec(setup)
print(json.dumps(asked))
"""


def set_up(folder, language="en", code=0):
    text = editions.set_up("https://github.com/someone/labs", language)
    program = WITHOUT_LABKIT.replace("{setup!r}", repr(text)).replace("{code}", str(code))
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)


def test_set_up_of_a_lone_notebook_installs_and_replaces_nothing(tmp_path):
    command, language = json.loads(set_up(tmp_path, "bn").stdout)
    assert language == "bn"
    assert command[1:5] == ["-m", "pip", "install", "labkit @ git+https://github.com/someone/labs"]
    kept = [f"{name}=={importlib.metadata.version(name)}" for name in ("torch", "numpy", "ipywidgets")]
    assert command[5:] == kept


def test_set_up_in_a_clone_installs_the_clone(tmp_path):
    for folder in ("labkit", "notebooks/en"):
        (tmp_path / folder).mkdir(parents=True)
    command, _ = json.loads(set_up(tmp_path / "notebooks/en").stdout)
    assert command[4] == str(tmp_path)


def test_set_up_tells_what_pip_said(tmp_path):
    done = set_up(tmp_path, code=1)
    assert done.returncode != 0
    assert "Is the network up? Run this cell again." in done.stderr
    assert "ERROR: no network" in done.stderr


def test_set_up_prints_nothing_and_may_run_again():
    text = editions.set_up("https://github.com/someone/labs", "en")
    program = f"exec({text!r}); exec({text!r}); print(lab.current_language())"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("en\n", "")


def test_set_up_obeys_the_rules_for_cells(tmp_path):
    build.main(["--no-execute"], course(tmp_path))
    text = editions.set_up(editions.repository(ROOT), "bn")
    assert text.count("\n") < 20
    assert max(map(len, text.splitlines())) <= 120
    ruff = [sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), "--extend-ignore=E402"]
    done = subprocess.run([*ruff, str(tmp_path / f"notebooks/en/{NAME}.ipynb")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
