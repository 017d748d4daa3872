"""The round trip as people make it: released, opened in JupyterLab, two exercises solved, handed in, graded, read."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from labkit.language import speaking, t
from tests.jupyterlab import chromium, opened, picture, server, wait_until_idle

pytestmark = [pytest.mark.browser, pytest.mark.skipif(os.name != "posix", reason="grading needs POSIX limits")]
ROOT = Path(__file__).resolve().parent.parent
LESSON = "01_measuring"
AS_ROOT = ["--as-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []


def classroom(home: Path, *words: str) -> str:
    command = [sys.executable, "-m", "labkit.classroom", *words, "--course", str(home / "course"), "--lang", "bn"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def set_up(page) -> None:
    """Run the first code cell; the page may still be moving when it is clicked, so look and click again."""
    first = page.locator(".jp-CodeCell").first
    for _ in range(5):
        first.locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        wait_until_idle(page, 120)
        if re.search(r"[0-9]", first.locator(".jp-InputPrompt").first.inner_text()):
            return
    raise AssertionError("the set-up cell did not run")


def until(page, condition) -> None:
    """Wait while the page goes on working: it saves when it gets round to it."""
    for _ in range(60):
        if condition():
            return
        page.wait_for_timeout(500)
    raise AssertionError("the notebook was not saved")


def fill_in(page, stub: str, solution: str) -> None:
    """Write the answer over the stub as a learner would, run the cell and the test cell below it."""
    editor = page.locator(".jp-CodeCell .cm-content", has_text=stub).first
    editor.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(solution)
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")


@pytest.mark.timeout(600)
def test_from_handing_out_to_reading_the_feedback(tmp_path):
    home = tmp_path
    classroom(home, "release", "01", "--out", str(home / "notebooks"))
    master = nbformat.read(home / "course/source" / LESSON / f"{LESSON}.ipynb", as_version=4)
    solutions = {cell.id: cell.source for cell in master.cells}
    with speaking("bn"):
        right = [t("marks {points}/{max_points}", points=n, max_points=n) for n in (4, 5)]  # catalogue: there already
    with server(home) as address, chromium() as browser:
        with opened(browser, address, f"{LESSON}.ipynb") as page:
            set_up(page)
            answers = {"def timed": "ex-01-1", "def aa_wrong_share": "ex-01-2"}
            for (stub, cell), verdict in zip(answers.items(), right, strict=True):
                fill_in(page, stub, solutions[cell])
                page.locator(".jp-OutputArea-output", has_text=verdict).first.wait_for(state="attached", timeout=60_000)
            page.keyboard.press("Control+S")
            saved = home / "notebooks" / f"{LESSON}.ipynb"
            until(page, lambda: "verdicts.count" in saved.read_text(encoding="utf-8"))
            picture(page, "classroom-solved")
            assert not page.faults
        handed = home / "downloads/রহিমা খাতুন" / f"Copy of {LESSON} (1).ipynb"
        handed.parent.mkdir(parents=True)
        shutil.copy(home / "notebooks" / f"{LESSON}.ipynb", handed)
        classroom(home, "collect", str(home / "downloads"))
        assert "✗" not in classroom(home, "preflight", "01")
        classroom(home, "grade", "01", "--csv", str(home / "grades.csv"), "--workers", "1", *AS_ROOT)
        classroom(home, "feedback", "01")
        assert "রহিমা খাতুন,,bn,4,5,0,9,17" in (home / "grades.csv").read_text(encoding="utf-8-sig")
        page = browser.new_page()
        page.context.set_offline(True)
        path = home / "course/feedback/রহিমা খাতুন" / LESSON / f"{LESSON}.html"
        page.goto(path.as_uri())
        assert page.locator("html").get_attribute("lang") == "bn"
        assert page.locator("tr").last.inner_text().split() == ["মোট", "9", "17"]
        assert page.get_by_text(right[0]).count()
        picture(page, "classroom-feedback")
        page.close()
