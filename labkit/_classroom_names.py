"""Whose file is this, and of which lesson? File names as students and learning platforms really write them."""

from __future__ import annotations

import dataclasses
import re

from labkit.language import nfc

# What browsers, Drive, Colab, Windows and Moodle add to a name.  Not a person's name, whatever the language.
_ADDED = re.compile(
    r"^(?:copy (?:\d+ )?of|কপি|(?:এর )?অনুলিপি|copie de)[ _]+|[ _-]*(?:-|–|_)?[ _]*(?:copy|কপি|অনুলিপি)[ ]*\d*$"
    r"|[ _]*\(\d+\)$|[-_ ]+checkpoint$|(?:_\d+)?_assignsubmission_file_?.*$"
    r"|[-_ ](?:final|latest|new|submission|ফাইনাল|নতুন)$",
    re.IGNORECASE,
)
_LAB = re.compile(r"(?<![^\W_])(?:lab|lesson|ল্যাব)[ _-]*([0-9০-৯]{1,2})(?![0-9০-৯])", re.IGNORECASE)
_EXTENSION = re.compile(r"(?:\.ipynb|\.json|\.txt|\.zip)+$", re.IGNORECASE)
_COPY_NUMBER = re.compile(r"\((\d+)\)\s*(?:\.\w+)*$")
_COPY_HERE = r"(?:[ _]*\(\d+\))?"
_NOBODY = re.compile(r"untitled *\d*|submitted|downloads?|con|prn|aux|nul|__macosx", re.IGNORECASE)
_SEPARATORS = " _-–—.,:;+#@"
_UNSAFE = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|+]')
_LATIN_DIGITS = str.maketrans("০১২৩৪৫৬৭৮৯", "0123456789")


@dataclasses.dataclass(frozen=True)
class Named:
    """What a file's name says: ``student`` and ``lesson`` are empty where it does not say."""

    student: str
    lesson: str
    copy: int  # the number that a browser puts on a second download


def understand(name: str, lessons: list[str], folder: str = "") -> Named:
    """Take a file name apart; ``folder`` is the folder it lay in, which platforms name after the student.

    >>> understand("Copy of 03_kernel_fusion-১৯০৪০১২ (2).ipynb", ["03_kernel_fusion"])
    Named(student='1904012', lesson='03_kernel_fusion', copy=2)
    """
    name = nfc(name.strip())
    copy = _COPY_NUMBER.search(name)
    rest = _peeled(_EXTENSION.sub("", name))
    lesson = next((known for known in lessons if re.search(_pattern(known), rest, re.IGNORECASE)), "")
    if lesson:
        rest = _peeled(re.sub(_pattern(lesson) + _COPY_HERE, " ", rest, flags=re.IGNORECASE))
    else:
        number = _LAB.search(rest) or re.match(r"([0-9০-৯]{2})(?![0-9০-৯])[ _-]", rest)
        found = number and [x for x in lessons if x[:2] == number[1].translate(_LATIN_DIGITS).zfill(2)]
        if found:
            lesson, rest = found[0], _peeled(rest[: number.start()] + " " + rest[number.end() :])
    student = identity(rest) or identity(_peeled(folder))
    return Named(student, lesson, int(copy[1]) if copy else 0)


def identity(text: str) -> str:
    """A name or roll number as one folder name: NFC, Latin digits, single spaces, nothing a path could hide in."""
    text = _UNSAFE.sub(" ", nfc(text)).translate(_LATIN_DIGITS)
    text = re.sub(r"[\s_]+", " ", text).strip(_SEPARATORS)
    return "" if _NOBODY.fullmatch(text) or not re.search(r"[^\W_]", text) else text[:80].strip()


def key(student: str) -> str:
    """Equal for spellings that mean the same student."""
    return identity(student).casefold()


def _pattern(lesson: str) -> str:
    """``03_kernel_fusion`` as people retype it: other separators."""
    return r"[ _-]*".join(re.escape(part) for part in lesson.split("_"))


def _peeled(text: str) -> str:
    """Take off what was added, layer by layer."""
    text = nfc(text).strip()
    while True:
        shorter = _ADDED.sub("", text).strip(_SEPARATORS)
        if shorter == text:
            return text
        text = shorter
