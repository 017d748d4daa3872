"""Keep ``labkit/locale/bn.po`` equal to the ``t("…")`` literals in ``labkit/``.

    python notebooks/catalogue.py                 update: new messages get an empty text, unused ones go
    python notebooks/catalogue.py --add FILE.po   update, then take the Bengali texts of FILE.po
    python notebooks/catalogue.py --check         change nothing; exit 1 when code and catalogue differ

Prints what is wrong and exits 1 then: a message without Bengali text, a Bengali text with other ``{fields}``, a ``t()``
whose argument is not one literal or whose keywords are not its fields. Only one run changes the file at a time.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import os
import re
import string
import sys
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "labkit"
CATALOGUE = PACKAGE / "locale" / "bn.po"
HEADER = "# Bengali messages of labkit. Update with: python notebooks/catalogue.py\n"


class Call(NamedTuple):
    """One ``t(…)``: ``message`` is None where its first argument is not one literal; ``given`` are its keywords."""

    file: str
    line: int
    message: str | None
    given: frozenset[str] | None


def calls(package: Path) -> Iterator[Call]:
    """Every ``t(…)`` below ``package``, in reading order."""
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"), file)
        found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) == "t"]
        for node in sorted(found, key=lambda node: (node.lineno, node.col_offset)):
            values = [getattr(argument, "value", None) for argument in node.args]  # of an ast.Constant
            message = values[0] if len(values) == 1 and isinstance(values[0], str) else None
            starred = any(keyword.arg is None for keyword in node.keywords)
            given = None if starred else frozenset(keyword.arg for keyword in node.keywords)
            yield Call(file, node.lineno, message, given)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def fields(message: str) -> set[str]:
    """Names of the ``{fields}`` of a message."""
    return {re.split(r"[.\[]", name)[0] for _, name, _, _ in string.Formatter().parse(message) if name is not None}


def faults(package: Path) -> list[str]:
    """Calls that cannot be translated, or that would fail when the message is filled in."""
    found = []
    for call in calls(package):
        place = f"{call.file}:{call.line}"
        if call.message is None:
            found.append(f"{place}: t() takes one literal, and the values by keyword")
        elif call.given and fields(call.message) != call.given:
            found.append(f"{place}: fields and keywords differ: {call.message}")
    return found


def messages_in_code(package: Path) -> dict[str, list[str]]:
    """English message -> the files that use it, in reading order."""
    found: dict[str, list[str]] = {}
    for call in calls(package):
        files = found.setdefault(call.message, []) if call.message is not None else [call.file]
        if call.file not in files:
            files.append(call.file)
    return found


def texts(path: Path) -> dict[str, str]:
    """English message -> Bengali text, of one .po file."""
    if not path.exists():
        return {}
    with path.open("rb") as file:
        return {m.id: m.string for m in read_po(file, locale="bn") if m.id and m.string}


def rendered(found: dict[str, list[str]], known: dict[str, str]) -> bytes:
    catalogue = Catalog(locale="bn", header_comment=HEADER.rstrip(), fuzzy=False)
    for message, files in found.items():
        text = unicodedata.normalize("NFC", known.get(message, ""))
        catalogue.add(message, text, locations=[(name, None) for name in files])
    out = io.BytesIO()
    write_po(out, catalogue, width=120, omit_header=True, include_lineno=False)
    head = HEADER + 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=utf-8\\n"\n"Language: bn\\n"\n\n'
    return head.encode() + out.getvalue()


@contextlib.contextmanager
def locked():
    """One writer at a time (advisory, where the system has flock)."""
    path = Path(tempfile.gettempdir()) / f"labkit-catalogue-{os.getuid() if hasattr(os, 'getuid') else 0}.lock"
    with path.open("w") as handle:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--add", type=Path, metavar="FILE.po")
    options = parser.parse_args(arguments)
    with locked():
        found = messages_in_code(PACKAGE)
        known = texts(CATALOGUE) | (texts(options.add) if options.add else {})
        new = rendered(found, known)
        same = CATALOGUE.exists() and CATALOGUE.read_bytes() == new
        if not options.check and not same:
            CATALOGUE.parent.mkdir(parents=True, exist_ok=True)
            CATALOGUE.write_bytes(new)
    if options.check and not same:
        print("labkit/locale/bn.po is out of date: run python notebooks/catalogue.py")
    wrong = faults(PACKAGE)
    wrong += [f"no Bengali text: {', '.join(files)}: {m}" for m, files in found.items() if not known.get(m)]
    wrong += [f"fields differ: {m}: {known[m]}" for m in found if known.get(m) and fields(m) != fields(known[m])]
    for line in wrong:
        print(line)
    return 1 if wrong or (options.check and not same) else 0


if __name__ == "__main__":
    sys.exit(main())
