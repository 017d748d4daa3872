"""Technical terms are said in one way: ``notebooks/src/glossary.csv``.

Three rules, each with few false alarms, for a term's whole word in English prose and the Bengali of the same pair:

1. ``X (bucket)``: a term in brackets stands behind its own Bengali word.
2. A word that the term's note forbids (``never ওজন``) does not stand in for it.
3. A transliterated or Latin term is there: in Bengali, in Latin letters, as code, or as a form that its note gives.
   Terms whose note begins a ``sense:`` also have everyday meanings; they are exempt from this rule.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from .bengali import nfc
from .markdown import parts

WORDS = r"[\u0980-\u09FF\u200d-]+(?: [\u0980-\u09FF\u200d-]+)*"
FORBIDDEN = re.compile(rf"\b(?:never|not) «?({WORDS})(?:»)?(?:(?:,| or|, or) ({WORDS}))?")
VERB = re.compile(r" (?:করা|করে|দেওয়া|যাওয়া|রাখা|হওয়া)$".replace("য়", nfc("য়")))
LETTER_BEFORE = re.compile(r"[\u0980-\u09FF]\W*$")
BRACKET = re.compile(r"([^()\n]{0,60}?)\s*\(([A-Za-z][A-Za-z -]*)\)")


@dataclasses.dataclass(frozen=True)
class Term:
    en: str
    bn: str
    required: bool
    others: tuple[str, ...]
    forbidden: tuple[str, ...]

    def pattern(self) -> re.Pattern:
        """The term as a whole word, singular or plural, in British or American spelling."""
        word = re.sub(r"i[sz](?=ation|er|e\b)", "i[sz]", re.escape(self.en))
        word = word[:-1] + "(?:y|ies)" if word.endswith("y") else word + "(?:s|es)?"
        return re.compile(rf"(?<![A-Za-z]){word}(?![A-Za-z])", re.I)

    def said_in(self, text: str) -> bool:
        """Whether every word of the Bengali term is there; endings make ``মেমোরির ব্যান্ডউইডথ`` of two words."""
        return all(word in text for word in self.bn.split())


@functools.cache
def glossary(path: Path) -> tuple[Term, ...]:
    """Terms, longest English first, so that ``kernel fusion`` is found before ``kernel``."""
    terms = []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            row = {key: nfc(value or "").strip() for key, value in row.items()}
            forbidden = [word for found in FORBIDDEN.findall(row["note"]) for word in found if word]
            allowed = FORBIDDEN.sub(" ", row["note"])
            others = [VERB.sub("", phrase) for phrase in re.findall(WORDS, allowed)]
            others = [phrase for phrase in others if len(phrase) > 3]  # a lone করা or মোড says nothing
            required = row["class"] in ("transliterate", "latin") and "sense:" not in row["note"]
            terms.append(Term(row["en"], row["bn"], required, tuple(others), tuple(forbidden)))
    return tuple(sorted(terms, key=lambda term: -len(term.en)))


def strays(bn: str, en: str, terms: tuple[Term, ...], free: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(what, fix) for each glossary term that a pair's Bengali says in another way."""
    prose = parts(bn).prose
    known = {term.en: term for term in terms}
    for before, word in BRACKET.findall(prose):
        term = known.get(word.lower().strip())
        if term and term.en not in free and LETTER_BEFORE.search(before) and not term.said_in(before):
            yield f"«{before.strip()[-30:]} ({word})»: the glossary says {term.bn}.", f"write {term.bn} ({word})."
    rest = parts(en).prose
    for term in terms:
        pattern = term.pattern()
        if not pattern.search(rest):
            continue
        rest = pattern.sub(" ", rest)
        if term.en in free or term.said_in(prose):
            continue
        wrong = [word for word in term.forbidden if word in prose]
        if wrong:
            yield f"{term.en!r} is {term.bn}, never {wrong[0]}.", f"write {term.bn}."
        elif term.required and not pattern.search(bn) and not any(other in prose for other in term.others):
            yield f"the English says {term.en!r}, the Bengali does not say {term.bn}.", (
                f'write {term.bn}; where another wording is right: +++ {{"lang": "bn", "free": ["{term.en}"]}}.'
            )
