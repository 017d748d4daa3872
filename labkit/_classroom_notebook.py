"""Read a learner's notebook of any size without its outputs, and say kindly why a file is none."""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Callable
from pathlib import Path

from labkit.language import t

LIMIT_BYTES = 20_000_000  # of a notebook without its outputs; the lessons have some 40 kB
# Strings, so that a bracket inside one is not taken for structure, and the brackets.  Possessive: no backtracking.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_OPEN = (b"[", b"{")
# Depth and key of what is dropped unread: a cell's outputs and attachments, the saved state of widgets.
_DROPPED = {(3, b'"outputs"'): b"[", (3, b'"attachments"'): b"{", (2, b'"widgets"'): b"{"}


class UnreadableError(ValueError):
    """The file is no notebook; ``reason()`` says in the current language what it is instead."""

    def __init__(self, reason: Callable[[], str]):
        super().__init__(reason())
        self.reason = reason


def read(path: Path):
    """The notebook at ``path`` as nbformat 4, code cells without outputs. Raises UnreadableError.

    The file is mapped, not read: 300 MB of outputs cost no more memory than the cells do.
    """
    import nbformat

    try:
        raw = json.loads(without_outputs(path).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UnreadableError(lambda: t("It is not text in UTF-8.")) from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise UnreadableError(lambda: _what_it_is(path)) from error
    if not isinstance(raw, dict) or not ("cells" in raw or "worksheets" in raw):
        raise UnreadableError(lambda: t("It is JSON, but not a notebook: it has no cells."))
    try:
        for cell in raw.get("cells", []):
            if cell.get("cell_type") == "code":
                cell["outputs"], cell["execution_count"] = [], None
        notebook = nbformat.reads(json.dumps(raw), as_version=4)
        for cell in notebook.cells:
            cell.source = cell.source if isinstance(cell.source, str) else "".join(cell.source)
    except Exception as error:  # nbformat raises what its parts raise on damaged structure
        first = f"{type(error).__name__}: {error}".splitlines()[0][:120]
        raise UnreadableError(lambda: t("Its cells are damaged: {error}", error=first)) from error
    return notebook


def without_outputs(path: Path) -> bytes:
    """The file's bytes with outputs, attachments and widget state left empty."""
    size = path.stat().st_size
    if size == 0:
        raise UnreadableError(lambda: t("The file is empty."))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        pieces = list(_kept(text, size))
    if sum(map(len, pieces)) > LIMIT_BYTES:
        raise UnreadableError(lambda: t("Even without outputs it is larger than any lesson."))
    return b"".join(pieces)


def _kept(text, size: int):
    depth, start, skipping, wanted, total = 0, 0, None, None, 0
    for token in _TOKEN.finditer(text):
        word = token[0] if token.end() - token.start() < 20 else b'"'
        if word[:1] == b'"':
            wanted = None if skipping else _DROPPED.get((depth, word))
            continue
        if word in _OPEN:
            if word == wanted:
                yield text[start:token.start()]
                skipping = depth
            depth += 1
        else:
            depth -= 1
            if skipping is not None and depth == skipping:
                yield b"[]" if word == b"]" else b"{}"
                start, skipping = token.end(), None
        wanted = None
        total = token.start() if skipping is None else total
        if skipping is None and total - start > LIMIT_BYTES:
            raise UnreadableError(lambda: t("Even without outputs it is larger than any lesson."))
    if skipping is None:
        yield text[start:min(size, start + LIMIT_BYTES + 1)]


def _what_it_is(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(2000).lstrip().lower()
    if head.startswith((b"<!doctype", b"<html")):
        return t("It is a web page, not a notebook: the page was saved instead of the file.")
    if head.startswith(b"pk"):
        return t("It is a zip file with another ending.")
    if head.startswith(b"%pdf"):
        return t("It is a PDF.")
    return t("It is damaged or cut off: not readable as JSON.")
