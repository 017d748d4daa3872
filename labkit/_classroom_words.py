"""Texts that an instructor and a learner read, each in their own language."""

from __future__ import annotations

from collections.abc import Callable

from labkit.language import LANGUAGES, current_language, speaking


def in_both(make: Callable[[], str]) -> dict[str, str]:
    """Language -> what ``make()`` says in it."""
    said = {}
    for language in LANGUAGES:
        with speaking(language):
            said[language] = make()
    return said


def here(said: dict[str, str]) -> str:
    """The text in the current language; empty where nothing was said."""
    return said.get(current_language(), "")
