"""The language in which labkit speaks: Bengali (the default) or English.

Messages are written in English in the code, as one literal each: ``t("{name} is slow", name=name)``. The Bengali text
stands in ``locale/bn.po``. ``tests/test_language.py`` holds the code and the catalogue equal.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import unicodedata
from pathlib import Path

LANGUAGES = ("bn", "en")
_CATALOGUE = Path(__file__).with_name("locale") / "bn.po"
_state = {"language": None}
# For one with-block, in one thread: a lab's worker must not change the language of the cell beside it.
_for_now: contextvars.ContextVar[str | None] = contextvars.ContextVar("labkit_language", default=None)


def use_language(code: str) -> None:
    """Speak ``"bn"`` or ``"en"`` from now on, and register the notebook magics where a notebook runs.

    Raises ValueError for any other code.
    """
    _state["language"] = _checked(code)
    _prepare()


def _checked(code: str) -> str:
    if code not in LANGUAGES:
        raise ValueError(t("labkit speaks 'bn' (Bengali) and 'en' (English), not {code!r}.", code=code))
    return code


@contextlib.contextmanager
def speaking(code: str):
    """Speak ``code`` inside a with-block, in this thread only.

    >>> with speaking("en"):
    ...     current_language()
    'en'
    """
    token = _for_now.set(_checked(code))
    try:
        yield
    finally:
        _for_now.reset(token)


def current_language() -> str:
    """The language in use: that of ``speaking()``, the last ``use_language()``, ``LABKIT_LANG``, else ``"bn"``."""
    code = _for_now.get() or _state["language"] or os.environ.get("LABKIT_LANG", "bn")
    return code if code in LANGUAGES else "bn"


def t(message: str, **values) -> str:
    """Translate one literal English message, then fill its ``{fields}`` with ``values``.

    >>> use_language("en")
    >>> t("{count} runs", count=3)
    '3 runs'
    """
    text = message
    if current_language() == "bn":
        text = _bengali().get(message) or message
    return text.format(**values) if values else text


def nfc(text: str) -> str:
    """Unicode NFC: keyboards write য় and র‍্য in more than one form; compare texts only after this."""
    return unicodedata.normalize("NFC", text)


def bengali_digits(text: str) -> str:
    """Latin digits to Bengali ones, for running prose only; measured numbers stay Latin.

    >>> bengali_digits("3.2")
    '৩.২'
    """
    return str(text).translate(str.maketrans("0123456789", "০১২৩৪৫৬৭৮৯"))


@functools.cache
def _bengali() -> dict[str, str]:
    """English message -> Bengali text, from the gettext catalogue."""
    from babel.messages.pofile import read_po

    with _CATALOGUE.open("rb") as file:
        catalogue = read_po(file, locale="bn")
    return {m.id: nfc(m.string) for m in catalogue if m.id and isinstance(m.string, str) and m.string}


def _prepare() -> None:
    """What the set-up cell is for, besides: caches that have a home, ``%%torchrun`` and ``%%mxnet_ps``, one advice.

    Plain Python has no shell and needs no magics.
    """
    import sys

    from labkit import _folders, _missing_name

    _folders.make_do()
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None:
        return
    _missing_name.register(shell)
    try:
        from labkit import launch
    except ImportError:
        return
    launch.register_magics(shell)
