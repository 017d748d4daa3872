"""Two languages: what is said, that both say it, and that the code and the catalogue are equal."""

import ast
import doctest
import string
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from babel.messages.pofile import read_po

from labkit import language
from labkit.language import current_language, nfc, speaking, t, use_language

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "labkit"


def catalogue() -> dict[str, str]:
    with (PACKAGE / "locale" / "bn.po").open("rb") as file:
        return {m.id: m.string for m in read_po(file, locale="bn") if m.id}


def fields(text: str) -> set[str]:
    """Names of the ``{fields}`` of a format string, attributes and indices cut off."""
    return {name.split(".")[0].split("[")[0] for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def faults(source: str) -> list[str]:
    """What is wrong with the t() calls of one file: the rule that extraction and run time must agree on."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "t"):
            continue
        where = f"line {node.lineno}"
        if len(node.args) != 1:
            found.append(f"{where}: one message and nothing else by position")
        elif not (isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)):
            found.append(f"{where}: the message is not one literal")
        elif any(keyword.arg is None for keyword in node.keywords):
            continue  # **values: which they are is known only at run time
        else:
            given = {keyword.arg for keyword in node.keywords}
            wanted = fields(node.args[0].value) if given else set()
            if wanted != given:
                found.append(f"{where}: fields {sorted(wanted)}, values {sorted(given)}")
    return found


def test_the_last_language_asked_for_is_spoken():
    use_language("en")
    assert (current_language(), t("runs fully")) == ("en", "runs fully")
    use_language("bn")
    assert current_language() == "bn"
    assert t("runs fully") == nfc("পুরোটাই চলবে")


def test_bengali_is_the_default_and_the_environment_can_say_otherwise(monkeypatch):
    monkeypatch.setitem(language._state, "language", None)
    assert current_language() == "bn"
    monkeypatch.setenv("LABKIT_LANG", "en")
    assert current_language() == "en"
    monkeypatch.setenv("LABKIT_LANG", "fr")
    assert current_language() == "bn"


def test_a_message_without_bengali_is_said_in_english():
    use_language("bn")
    assert language.t("no such message in the catalogue {n}", n=3) == "no such message in the catalogue 3"


@pytest.mark.parametrize(("code", "words"), [("en", "labkit speaks"), ("bn", "labkit দুটি ভাষা জানে")])
def test_an_unknown_language_is_refused_in_the_known_one(code, words):
    use_language(code)
    with pytest.raises(ValueError, match=words):
        use_language("fr")
    assert current_language() == code


def test_speaking_ends_with_its_block_also_after_an_error():
    use_language("bn")
    with speaking("en"):
        with speaking("bn"):
            assert current_language() == "bn"
        assert current_language() == "en"
    assert current_language() == "bn"
    with pytest.raises(KeyError), speaking("en"):
        raise KeyError(current_language())
    assert current_language() == "bn"


def test_speaking_in_one_thread_leaves_the_others_alone():
    use_language("bn")
    heard = []
    with speaking("en"):
        worker = threading.Thread(target=lambda: heard.append(current_language()))
        worker.start()
        worker.join()
    assert heard == ["bn"]


def test_both_keyboard_forms_of_a_letter_are_one_text():
    assert nfc("\u09df") == nfc("\u09af\u09bc")  # য়
    assert "\u09df" != "\u09af\u09bc"


def test_examples_in_the_docstrings_hold():
    assert doctest.testmod(language).failed == 0


def test_every_message_is_one_literal_with_the_values_it_names():
    found = {p.relative_to(ROOT): faults(p.read_text(encoding="utf-8")) for p in PACKAGE.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "call",
    ['t(f"{n} runs")', "t(message)", 't("a" if ok else "b")', 't("a" + b)', 't("{n} runs", m=3)', 't("a", 3)', "t()"],
)
def test_the_rule_about_messages_catches(call):
    assert len(faults(call)) == 1


@pytest.mark.parametrize("call", ['t("a" "b")', 't("{n:g}", n=3)', 't("a set: {1, 2}")', 't("{n}", **values)'])
def test_the_rule_about_messages_allows(call):
    assert faults(call) == []


def test_code_and_catalogue_are_equal_and_complete():
    run = [sys.executable, "notebooks/catalogue.py", "--check"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


def test_translations_keep_the_fields_of_their_message():
    wrong = {
        message: text
        for message, text in catalogue().items()
        if text and "{" in message and fields(message) != fields(text)
    }
    assert wrong == {}
