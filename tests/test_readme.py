"""README, CONTRIBUTING and the guides: links lead somewhere, pictures are small, findings are those measured."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest

from tests.throwaway import build  # noqa: F401  (puts notebooks/ on the path)

import findings  # isort: skip

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "data/README.md", *ROOT.glob("notebooks/guides/*/*.md")]
LARGEST_BYTES = 150_000


def links(text: str) -> list[str]:
    """Targets inside this project, of links and pictures."""
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [target for target in found if not target.startswith(("http:", "https:", "mailto:"))]


def anchors(text: str) -> set[str]:
    """How GitHub names the headings: lower case, spaces to hyphens, punctuation dropped."""
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\u0980-\u09ff\u200d -]", "", head.strip().lower()).replace(" ", "-") for head in heads}


def broken(path: Path, text: str) -> list[str]:
    return [target for target in links(text)
            if not (target[1:] in anchors(text) if target.startswith("#")
                    else (path.parent / target.partition("#")[0]).exists())]  # fmt: skip


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(path):
    assert broken(path, path.read_text(encoding="utf-8")) == []


def test_a_dead_link_would_be_noticed():
    text = "# ক খ\n[a](README.md) [b](#ক-খ) [c](#nowhere) [d](nothing.md) ![e](notebooks/pictures/none.png)"
    assert broken(ROOT / "README.md", text) == ["#nowhere", "nothing.md", "notebooks/pictures/none.png"]


def test_pictures_are_small_wide_enough_and_described():
    pictures = re.findall(r"!\[([^\]]*)\]\((notebooks/pictures/[^)]+)\)", (ROOT / "README.md").read_text("utf-8"))
    assert len(pictures) >= 2
    for said, name in pictures:
        content = (ROOT / name).read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        assert len(content) <= LARGEST_BYTES
        width, height = struct.unpack(">II", content[16:24])
        assert width >= 600
        assert height >= 300
        assert len(said) > 40
    assert any(re.search("[\u0980-\u09ff]", said) for said, _ in pictures)


def test_the_findings_are_those_of_the_recorded_run():
    assert findings.main(["--check"]) == 0


@pytest.mark.parametrize("language", ["bn", "en"])
def test_another_run_gives_other_findings(language):
    found = json.loads(findings.CARDS.read_text(encoding="utf-8"))
    before = findings.lines(found, language)
    assert before.count("\n- ") == 3
    card = found["cards"]["CompileLab"]
    way = card["way"]
    card["comparison"]["ratios"][way], card["comparison"]["verdicts"][way] = [0.5, 0.49, 0.51], "slower"
    after = findings.lines(found, language)
    assert before != after
    assert {"bn": "উল্টো ধীর", "en": "is slower"}[language] in after
