"""notebooks/catalogue.py keeps the Bengali messages equal to the code; they are as well spoken as the lessons."""

from __future__ import annotations

import re

import pytest

from tests.throwaway import ROOT

import catalogue  # isort: skip
from builder import bengali  # isort: skip

FIELD = re.compile(r"\{[^{}]*\}")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of one file beside a catalogue of its own."""
    folder = tmp_path / "labkit"
    folder.mkdir()
    monkeypatch.setattr(catalogue, "PACKAGE", folder)
    monkeypatch.setattr(catalogue, "CATALOGUE", folder / "locale/bn.po")
    (folder / "a.py").write_text('t("one")\nt("two "\n  "parts {n}", n=2)\n', encoding="utf-8")
    return folder


def po(tmp_path, **texts):
    path = tmp_path / "add.po"
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=utf-8\\n"\n\n'
    path.write_text(head + "\n".join(f'msgid "{k}"\nmsgstr "{v}"\n' for k, v in texts.items()), encoding="utf-8")
    return str(path)


def test_missing_then_added(package, tmp_path, capsys):
    assert catalogue.main([]) == 1
    assert "no Bengali text: a.py: one" in capsys.readouterr().out
    assert catalogue.main(["--add", po(tmp_path, **{"one": "এক", "two parts {n}": "দুই {n}", "unused": "না"})]) == 0
    assert catalogue.main(["--check"]) == 0
    assert catalogue.texts(package / "locale/bn.po") == {"one": "এক", "two parts {n}": "দুই {n}"}


def test_check_finds_a_new_and_a_gone_message(package, tmp_path):
    catalogue.main(["--add", po(tmp_path, **{"one": "এক", "two parts {n}": "দুই {n}"})])
    before = (package / "locale/bn.po").read_bytes()
    (package / "b.py").write_text('t("three")\n', encoding="utf-8")
    assert catalogue.main(["--check"]) == 1
    (package / "b.py").unlink()
    (package / "a.py").write_text('t("one")\n', encoding="utf-8")
    assert catalogue.main(["--check"]) == 1
    assert (package / "locale/bn.po").read_bytes() == before, "--check changes nothing"


def test_fields_must_be_the_same(package, tmp_path, capsys):
    assert catalogue.main(["--add", po(tmp_path, **{"one": "এক", "two parts {n}": "দুই {m}"})]) == 1
    assert "fields differ: two parts {n}" in capsys.readouterr().out


def test_texts_are_stored_in_nfc(package, tmp_path):
    catalogue.main(["--add", po(tmp_path, **{"one": "সম\u09df", "two parts {n}": "{n}"})])
    assert catalogue.texts(package / "locale/bn.po")["one"] == "সম\u09af\u09bc"


def test_only_one_literal_can_be_translated(package, capsys):
    (package / "a.py").write_text('name = "x"\nt(name)\nt(f"{name}")\nt("a" if name else "b")\n', encoding="utf-8")
    assert catalogue.main([]) == 1
    said = capsys.readouterr().out
    assert [f"a.py:{line}" in said for line in (2, 3, 4)] == [True] * 3


@pytest.mark.parametrize(("call", "right"), [
    ('t("{a} and {b:.2f}", a=1, b=2)', True), ('t("{a[0]} {b.c}", a=1, b=2)', True), ('t("{a}", **values)', True),
    ('t("{a}")', True), ('language.t("{a}", a=1)', True),
    ('t("{a}", b=1)', False), ('t("none", a=1)', False), ('t("a", "b")', False), ("t()", False),
])  # fmt: skip
def test_keywords_are_the_fields(package, call, right):
    (package / "a.py").write_text(call, encoding="utf-8")
    assert (catalogue.faults(package) == []) is right


def spoken(text):
    """A message as prose: a field that stands alone is a Latin word, one with an ending joined to it is a number."""
    return FIELD.sub("X", re.sub(r"\{[^{}]*\}(?=[\u0980-\u09FF])", "", bengali.nfc(text)))


def test_messages_are_well_spoken():
    texts = catalogue.texts(ROOT / "labkit/locale/bn.po")
    assert len(texts) > 100
    found = [(text, what, fix) for text in texts.values() for _, what, fix in bengali.smells(spoken(text))]
    # Messages are not Markdown: what the learner is to type stands in them as it is.
    said = [f"{text}: {what} {fix}" for text, what, fix in found if not what.startswith("more Latin")]
    assert not said, "\n".join(said)


def test_a_smell_in_a_message_is_found():
    assert list(bengali.smells(spoken("{name} এর মাধ্যমে মেমরি মাপুন।")))
    assert not list(bengali.smells(spoken("{name}-এর {count}টি কাজ {low} থেকে {high}-এর মধ্যে।")))
