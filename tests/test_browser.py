"""A learner opens a lesson in JupyterLab, runs its first cells, and reads the answers in the edition's language.

Real JupyterLab, real kernel, headless Chromium. With ``LABKIT_PICTURES=folder`` a picture of each page is kept there;
with ``LABKIT_BROWSER_LESSONS=01,02,03`` every cell of those lessons is run in both languages (minutes).
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.jupyterlab import chromium, menu, opened, run, server

pytestmark = pytest.mark.browser
NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
WHOLE = [n for n in os.environ.get("LABKIT_BROWSER_LESSONS", "").split(",") if n]
NO_GUESS = {"bn": "এখনো অনুমান লেখেননি", "en": "No guess yet"}


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory):
    """A JupyterLab of our own on a copy of the notebooks; gives its address."""
    home = tmp_path_factory.mktemp("jupyter")
    for edition in ("bn", "en"):
        shutil.copytree(NOTEBOOKS / edition, home / "notebooks" / edition)
    with server(home) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.mark.parametrize("language", ["bn", "en"])
def test_a_learner_is_answered_in_the_editions_language(jupyter, browser, language):
    with opened(browser, jupyter, f"{language}/02_roofline.ipynb") as page:
        cells = page.locator(".jp-CodeCell .cm-content")
        cells.first.click()  # the menu acts on the notebook only when it has the focus
        menu(page, "Edit", "Clear Outputs of All Cells")
        page.wait_for_function("() => !document.querySelector('.jp-OutputArea-output')", timeout=20_000)
        page.locator(".jp-CodeCell", has_text='lab.predict("02-b"').first.click()
        run(page, "Run All Above Selected Cell", timeout_s=180)
        answer = page.locator(".jp-OutputArea-output", has_text=NO_GUESS[language]).first
        answer.wait_for(state="attached", timeout=10_000)
        assert not page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count()
        assert not page.faults


if WHOLE:

    @pytest.mark.parametrize("language", ["bn", "en"])
    @pytest.mark.parametrize("number", WHOLE)
    def test_a_whole_lesson_runs(jupyter, browser, number, language):
        [notebook] = (NOTEBOOKS / language).glob(f"{number}_*.ipynb")
        with opened(browser, jupyter, f"{language}/{notebook.name}") as page:
            run(page, timeout_s=400)
            # JupyterLab keeps only what is in sight on the page: a cell that failed above shows in the cells after it.
            last = page.locator(".jp-CodeCell .jp-InputPrompt").last.text_content()
            assert last.strip("[]: ").isdigit(), f"the last cell was not run: {last!r}"
            assert not page.locator("[data-mime-type='application/vnd.jupyter.error']").count()
            assert not page.faults
