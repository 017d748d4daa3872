"""Real JupyterLab in a headless Chromium for the browser tests: a server, a browser, pages, and what people do there.

With ``LABKIT_PICTURES=folder`` pictures of the pages are kept there for people to look at.
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

from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

# Of a notebook's page: whether a cell waits or runs, or has run, as far as it is in sight, and what its kernel does.
WAITS = "[...document.querySelectorAll('.jp-InputPrompt')].some(x => x.textContent.includes('*'))"
RAN = "[...document.querySelectorAll('.jp-InputPrompt')].some(x => /[0-9]/.test(x.textContent))"
STATUS = "document.querySelector('.jp-Notebook-ExecutionIndicator').dataset.status"
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync", "--no-first-run"]


@contextlib.contextmanager
def server(home):
    """A JupyterLab of our own on ``home/notebooks``; gives its address."""
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
    ) as process:  # fmt: skip
        address = f"http://127.0.0.1:{port}"
        try:
            _wait_for(f"{address}/api?token=learner", process)
            yield address
        finally:
            process.terminate()


def _wait_for(address, process, limit_s=180):
    """Until the server answers; on a busy machine that takes a while."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(address, timeout=10).close()
            return
        time.sleep(0.25)
    raise AssertionError(f"JupyterLab did not answer (exit status {process.poll()})")


@contextlib.contextmanager
def chromium():
    """A headless Chromium of this machine."""
    from playwright.sync_api import sync_playwright

    where = next(path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=where, args=CHROMIUM)
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(browser, address, notebook):
    """The notebook's page, its kernel started.

    Errors of the page's own scripts are collected in ``page.faults``, error lines of its console in ``page.logged``.
    """
    page = browser.new_page(viewport={"width": 1200, "height": 1300})
    page.faults, page.logged = [], []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("console", lambda line: page.logged.append(line.text) if line.type == "error" else None)
    page.goto(f"{address}/lab/tree/{notebook}?token=learner&reset")
    page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell", timeout=90_000)
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status='idle']", timeout=90_000)
    try:
        yield page
    finally:
        picture(page, notebook)
        page.close()


def picture(page, name):
    """Keep a picture for people to look at."""
    if folder := os.environ.get("LABKIT_PICTURES"):
        page.screenshot(path=str(Path(folder) / f"{name.replace('/', '-')}.png"))


def menu(page, *names):
    """Choose from the menu bar: ``menu(page, "Run", "Run All Cells")``."""
    for name in names:
        page.get_by_role("menuitem", name=name, exact=True).click()


def run(page, what="Run All Cells", timeout_s=120):
    """Run cells by the menu and wait for their end.

    JupyterLab drops what comes while its kernel starts: at once, after it has shown ``[*]``, or after it has asked in a
    dialog. Then no cell gets a number, and it is done once more.
    """
    for _ in range(4):
        if page.locator(".jp-Dialog").count():
            page.keyboard.press("Escape")
        menu(page, "Run", what)
        try:
            page.wait_for_function(f"() => {WAITS} || {STATUS} === 'busy'", timeout=10_000, polling=20)
        except PlaywrightTimeoutError:
            continue
        wait_until_idle(page, timeout_s)
        if page.evaluate(f"() => {RAN}"):
            return
    raise AssertionError("no cell ran")


def wait_until_idle(page, timeout_s):
    """Until no cell waits or runs: JupyterLab shows ``[*]`` beside those."""
    page.wait_for_timeout(1500)
    page.wait_for_function(f"() => !{WAITS} && {STATUS} === 'idle'", timeout=1000 * timeout_s)
