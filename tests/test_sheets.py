"""The printable sheet of a lesson: what it says comes from the source, and it fits on one page."""

from __future__ import annotations

import re

import pytest

from tests.jupyterlab import chromium
from tests.throwaway import ROOT, build

from builder import sheets, source  # isort: skip

SHEETS = sorted((ROOT / "notebooks/sheets").glob("*/*.html"))
WORDS = ROOT / "notebooks/src/glossary.csv"


@pytest.fixture(scope="module")
def fusion():
    return source.read(ROOT / "notebooks/src/03_kernel_fusion.md")


@pytest.mark.parametrize("language", source.LANGUAGES)
def test_a_sheet_holds_title_steps_claims_words_and_last_lines(fusion, language):
    page = sheets.sheet(fusion, language, WORDS)
    assert f'<html lang="{language}">' in page
    assert fusion.title[language] in page
    text = "\n\n".join(cell.text[language] for cell in fusion.cells if cell.code is None)
    steps = re.findall(r"^## (?:[0-9০-৯]+[.।] )?(.*)$", text, re.M)
    for step in steps[:-1][: sheets.MOST_STEPS]:
        assert sheets._inline(step) in page
    assert f"<h2>{sheets.LABELS[language]['end']}</h2>" in page
    assert "<dt>কার্নেল ফিউশন</dt><dd>kernel fusion</dd>" in page
    claims = [line for cell in fusion.cells if cell.code for line in cell.code.splitlines() if "lab.claim(" in line]
    assert page.count("lab.claim(") == len(claims) > 0


def test_a_sheet_escapes_what_is_code(fusion):
    fusion = sheets.Lesson(**{**vars(fusion), "title": {"bn": "a < b", "en": "a < b & c"}})
    assert "<h1>3 · a &lt; b &amp; c</h1>" in sheets.sheet(fusion, "en", WORDS)


def test_exercises_and_answers_are_not_on_it(fusion):
    solutions = [cell.code for cell in fusion.cells if "BEGIN SOLUTION" in (cell.code or "")]
    page = sheets.sheet(fusion, "en", WORDS)
    assert solutions
    assert "lab.check(" not in page
    assert not any(line.strip() in page for code in solutions for line in code.splitlines()[2:-1] if len(line) > 20)


def test_every_built_lesson_has_its_sheets():
    built = {path.stem for path in (ROOT / "notebooks/en").glob("*.ipynb")}
    wanted = {(language, stem) for language in source.LANGUAGES for stem in built}
    assert {(path.parent.name, path.stem) for path in SHEETS} == wanted
    assert build.ROOT == ROOT


@pytest.mark.browser
def test_each_prints_on_one_page():
    with chromium() as browser:
        page, pages = browser.new_page(), {}
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        for path in SHEETS:
            page.goto(path.as_uri())
            printed = page.pdf(prefer_css_page_size=True)
            pages[f"{path.parent.name}/{path.stem}"] = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert pages == dict.fromkeys(pages, 1)
    assert all(url.startswith("file:") for url in asked)
