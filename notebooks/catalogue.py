"""Keep ``labkit/locale/bn.po`` equal to the ``t("…")`` literals in ``labkit/``.

    python notebooks/catalogue.py                 update: new messages get an empty text, unused ones go
    python notebooks/catalogue.py --add FILE.po   update, then take the Bengali texts of FILE.po
    python notebooks/catalogue.py --check         change nothing; exit 1 when code and catalogue differ

Prints every message that still has no Bengali text, and exits 1 when there is one. Only one run changes the file at a
time.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import unicodedata
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "labkit"
CATALOGUE = PACKAGE / "locale" / "bn.po"
HEADER = "# Bengali messages of labkit. Update with: python notebooks/catalogue.py\n"


def messages_in_code(package: Path = PACKAGE) -> dict[str, list[str]]:
    """English message -> the files that use it, in reading order."""
    found: dict[str, list[str]] = {}
    rows = extract_from_dir(str(package), method_map=[("**.py", "python")], keywords={"t": None})
    for name, _line, message, _comments, _context in sorted(rows, key=lambda row: (row[0], row[1])):
        files = found.setdefault(message if isinstance(message, str) else message[0], [])
        if name not in files:
            files.append(name)
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
        found = messages_in_code()
        known = texts(CATALOGUE) | (texts(options.add) if options.add else {})
        new = rendered(found, known)
        same = CATALOGUE.exists() and CATALOGUE.read_bytes() == new
        if not options.check and not same:
            CATALOGUE.parent.mkdir(parents=True, exist_ok=True)
            CATALOGUE.write_bytes(new)
    if options.check and not same:
        print("labkit/locale/bn.po is out of date: run python notebooks/catalogue.py")
    missing = [f"{', '.join(files)}: {message}" for message, files in found.items() if not known.get(message)]
    for line in missing:
        print("no Bengali text:", line)
    return 1 if missing or (options.check and not same) else 0


if __name__ == "__main__":
    sys.exit(main())
