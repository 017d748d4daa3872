"""Take a Markdown text apart: what two languages must share, and the prose that is left."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator

FENCED = re.compile(r"^[ \t]*(```+|~~~+)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.M | re.S)
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
FORMULA = re.compile(r"\$\$.+?\$\$|(?<![\\$])\$(?![\s$])[^$\n]*?(?<![\s\\])\$(?![0-9])", re.S)
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(<?([^()\s<>]*(?:\([^()\s]*\)[^()\s]*)*)>?(?:\s+\"[^\"]*\")?\)")
ADDRESS = re.compile(r"<?https?://[^\s<>)\]]+>?")
TAG = re.compile(r"</?([A-Za-z][A-Za-z0-9]*)\b[^>]*>")
COMMENT = re.compile(r"<!--.*?-->", re.S)
HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]", re.M)
NUMBER = re.compile(r"(?<![A-Za-z0-9_.])[0-9]+(?:[.,][0-9]+)*")
DIGITS = str.maketrans("০১২৩৪৫৬৭৮৯", "0123456789")
BREAK = re.compile(r"(?<=[।?!])|\n[ \t]*\n|\n(?=[ \t]*(?:[-*+>|#]|[0-9]+[.)])[ \t])")
CODE_WORD = "X"  # stands for a code span or formula in prose: Latin, one letter


@dataclasses.dataclass(frozen=True)
class Parts:
    """``prose`` keeps the text's line breaks, so that a position in it still tells the line."""

    headings: list[int]
    code: Counter
    formulas: Counter
    links: Counter
    tags: Counter
    numbers: Counter
    prose: str


def parts(text: str) -> Parts:
    code, formulas, links, tags = Counter(), Counter(), Counter(), Counter()

    def take(pattern: re.Pattern, counter: Counter, group: int, stand_in: str, text: str) -> str:
        def taken(found: re.Match) -> str:
            counter[" ".join(found.group(group).split())] += 1
            return stand_in + "\n" * found.group(0).count("\n")

        return pattern.sub(taken, text)

    text = take(FENCED, code, 2, "", text)
    text = take(CODE, code, 2, CODE_WORD, text)
    text = take(COMMENT, Counter(), 0, "", text)
    text = take(FORMULA, formulas, 0, CODE_WORD, text)
    for link in LINK.finditer(text):
        links[link.group(2)] += 1
    text = LINK.sub(r"\1", text)
    text = take(ADDRESS, links, 0, "", text)
    text = take(TAG, tags, 1, "", text)
    return Parts(
        headings=[len(h.group(1)) for h in HEADING.finditer(text)], code=code, formulas=formulas,
        links=Counter({_edition_free(target): count for target, count in links.items()}), tags=tags,
        numbers=Counter(n.replace(",", "") for n in NUMBER.findall(text.translate(DIGITS))), prose=text,
    )


def sentences(prose: str) -> Iterator[tuple[int, str]]:
    """(line offset, sentence on one line) for each sentence, list item, table row or heading."""
    start = 0
    for stop in [*(b.start() if b.group(0) == "" else b.end() for b in BREAK.finditer(prose)), len(prose)]:
        raw = prose[start:stop]
        if raw.strip():
            lead = len(raw) - len(raw.lstrip())
            yield prose.count("\n", 0, start + lead), raw[lead:].rstrip("\n").replace("\n", " ")
        start = stop


def _edition_free(target: str) -> str:
    """``../bn/x.ipynb`` and ``../en/x.ipynb`` are the same link, each edition's own."""
    return re.sub(r"(^|/)(?:bn|en)/", r"\1*/", target)
