"""A learner opens a lesson in JupyterLab, runs its first cells, and reads the answers in the edition's language.

Real JupyterLab, real kernel, headless Chromium. With ``LABKIT_PICTURES=folder`` a picture of each page is kept there;
with ``LABKIT_BROWSER_LESSONS=01,02,03`` every cell of those lessons is run in both languages (minutes).
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser
NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
WHOLE = [n for n in os.environ.get("LABKIT_BROWSER_LESSONS", "").split(",") if n]
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync", "--no-first-run"]
NO_GUESS = {"bn": "এখনো অনুমান লেখেননি", "en": "No guess yet"}


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory):
    """A JupyterLab of our own on a copy of the notebooks; gives its address with the token."""
    home = tmp_path_factory.mktemp("jupyter")
    for edition in ("bn", "en"):
        shutil.copytree(NOTEBOOKS / edition, home / "notebooks" / edition)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folders = {f"JUPYTER{name}": str(home / name) for name in ("_CONFIG_DIR", "_DATA_DIR", "LAB_SETTINGS_DIR",
                                                               "LAB_WORKSPACES_DIR")}  # fmt: skip
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}",
               "--ServerApp.ip=127.0.0.1", "--IdentityProvider.token=learner",
               f"--ServerApp.root_dir={home / 'notebooks'}", "--LabApp.news_url=None",
               "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]  # fmt: skip
    with (home / "log").open("w") as log, subprocess.Popen(
        command, env=os.environ | folders, stdout=log, stderr=subprocess.STDOUT
    ) as server:  # fmt: skip
        address = f"http://127.0.0.1:{port}"
        for _ in range(240):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/api?token=learner", timeout=2).close()
                break
            time.sleep(0.25)
        yield address
        server.terminate()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    where = next(path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name)))
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=where, args=CHROMIUM)
        yield chromium
        chromium.close()


@contextlib.contextmanager
def opened(browser, address, notebook):
    """The notebook's page, its kernel started; errors of the page's own scripts are collected in ``page.faults``."""
    page = browser.new_page(viewport={"width": 1200, "height": 1300})
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.goto(f"{address}/lab/tree/{notebook}?token=learner&reset")
    page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell", timeout=90_000)
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status='idle']", timeout=90_000)
    try:
        yield page
    finally:
        picture(page, notebook)
        page.close()


def picture(page, notebook):
    """Keep a picture for people to look at."""
    if folder := os.environ.get("LABKIT_PICTURES"):
        page.screenshot(path=str(Path(folder) / f"{notebook.replace('/', '-')}.png"))


def menu(page, name, entry):
    page.get_by_role("menuitem", name=name, exact=True).click()
    page.get_by_role("menuitem", name=entry, exact=True).click()


def wait_until_idle(page, timeout_s):
    """Until no cell waits or runs: JupyterLab shows ``[*]`` beside those."""
    page.wait_for_timeout(1500)
    page.wait_for_function(
        "() => ![...document.querySelectorAll('.jp-InputPrompt')].some(x => x.textContent.includes('*'))"
        " && document.querySelector('.jp-Notebook-ExecutionIndicator').dataset.status === 'idle'",
        timeout=1000 * timeout_s,
    )


@pytest.mark.parametrize("language", ["bn", "en"])
def test_a_learner_is_answered_in_the_editions_language(jupyter, browser, language):
    with opened(browser, jupyter, f"{language}/02_roofline.ipynb") as page:
        cells = page.locator(".jp-CodeCell .cm-content")
        cells.first.click()  # the menu acts on the notebook only when it has the focus
        menu(page, "Edit", "Clear Outputs of All Cells")
        page.wait_for_function("() => !document.querySelector('.jp-OutputArea-output')", timeout=20_000)
        page.locator(".jp-CodeCell", has_text='lab.predict("02-b"').first.click()
        menu(page, "Run", "Run All Above Selected Cell")
        answer = page.locator(".jp-OutputArea-output", has_text=NO_GUESS[language]).first
        answer.wait_for(state="attached", timeout=180_000)
        wait_until_idle(page, 180)
        assert not page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count()
        assert not page.faults


if WHOLE:

    @pytest.mark.parametrize("language", ["bn", "en"])
    @pytest.mark.parametrize("number", WHOLE)
    def test_a_whole_lesson_runs(jupyter, browser, number, language):
        [notebook] = (NOTEBOOKS / language).glob(f"{number}_*.ipynb")
        with opened(browser, jupyter, f"{language}/{notebook.name}") as page:
            menu(page, "Run", "Run All Cells")
            wait_until_idle(page, 400)
            assert not page.locator("[data-mime-type='application/vnd.jupyter.error']").count()
            assert not page.faults
