"""A Bengali text and its English must share headings, code spans, links, formulas, HTML and numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .markdown import Parts


def differences(bn: Parts, en: Parts) -> Iterator[tuple[str, str]]:
    """(what differs, how to mend it), for one pair."""
    if bn.headings != en.headings:
        shown = [", ".join("#" * level for level in p.headings) or "none" for p in (bn, en)]
        yield f"headings differ: bn has {shown[0]}, en has {shown[1]}.", "give both the same, in the same order."
    # How often a name is repeated is a matter of grammar; which names appear is not.
    yield from _shown("code spans", Counter(set(bn.code)), Counter(set(en.code)), "`{}`")
    yield from _shown("formulas", bn.formulas, en.formulas, "{}")
    yield from _shown("links", bn.links, en.links, "{}")
    yield from _shown("HTML tags", bn.tags, en.tags, "<{}>")
    yield from _shown("numbers", bn.numbers, en.numbers, "{}")


def _shown(what: str, bn: Counter, en: Counter, form: str) -> Iterator[tuple[str, str]]:
    if bn == en:
        return
    only = [", ".join(form.format(item) for item in sorted((a - b).elements())) for a, b in ((bn, en), (en, bn))]
    sides = [f"{side} alone has {items}" for side, items in zip(("bn", "en"), only, strict=True) if items]
    words = "write small counts as words in both, others as digits in both."
    yield f"{what} differ: {'; '.join(sides)}.", words if what == "numbers" else "write the same in both."
