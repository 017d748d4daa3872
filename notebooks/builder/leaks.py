"""What one machine shows and another does not: its paths, its addresses, its process numbers."""

from __future__ import annotations

import re

PATH = re.compile(
    r"(?<![\w.:~$}])/(?:home|root|tmp|opt|mnt|var|private|builds|workspace|Users|work|usr/lib/python[\w.]*)/[\w.+-]+"
    r"|(?<!\w)[A-Za-z]:\\\\?Users\\"
)
ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}|<ipython-input-|ipykernel_\d+")


def leak(text: str) -> str | None:
    """What leaks in ``text``, in words, or None."""
    for pattern, what in ((PATH, "a path of this machine"), (ADDRESS, "a memory address or process number")):
        if found := pattern.search(text):
            return f"{what}: {found.group(0)}"
    return None
