"""Bengali that nobody speaks: smells of translationese, wrong spellings, long runs of Latin letters.

``labkit``'s own messages (``locale/bn.po``) pass through here too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from .markdown import parts, sentences

LETTER = re.compile(r"[\u0980-\u09FF]")
LATIN = re.compile(r"[A-Za-z]")
# Five words in a row: menu names and titles of libraries are shorter; a placeholder for code is one letter.
LATIN_RUN = re.compile(r"[A-Za-z][A-Za-z0-9'’.+-]+(?:[ ,;:]+[A-Za-z][A-Za-z0-9'’.+-]+){4,}")
LINK_TEXT = re.compile(r"\[[^\]]*\]")
# \b and \w break at Bengali vowel signs and \d matches Bengali digits, hence the explicit classes.
SMELLS = [
    (r"গুরুত্বপূর্ণ যে|মনে রাখা (প্রয়োজন|দরকার)", "delete it and start with the point"),
    (r"র মাধ্যমে|দ্বারা", "say it with দিয়ে or -লে"),
    (r"(প্রদান|সম্পাদন|সম্পন্ন|সাধন|গ্রহণ|প্রেরণ) [কস]|ব্যয় [কহ]", "use the plain verb"),
    (r"সক্ষম|অনুমতি দেয়", "say পারে"),
    (r"(করে|হয়ে) থাকে", "say করে or হয়"),
    (r"উদাহরণস্বরূপ|ফলস্বরূপ|সুতরাং", "say যেমন or তাই"),
    (r"(সকল|সব|[০-৯]টি) \S+(গুলো|সমূহ)", "mark the plural once"),
    (r"(গুলি|সমূহ|কৃত)(?![ঀ-৺])", "say গুলো, or করা"),
    (r"(দ্রুত|ধীর|ক্ষুদ্র|বৃহৎ)তর", "compare with -এর চেয়ে"),
    (r"একটি[^।]*একটি[^।]*একটি", "drop the English \"a\""),
    (r"যখন[^।]*তখন|শুধু(মাত্র)?[^।]*নয়,? বরং", "recast the sentence"),
    (r"চলুন|ডুব দি|অত্যন্ত|অবিশ্বাস্য|শক্তিশালী|উল্লেখযোগ্যভাবে", "delete it"),
    (r"স্মৃতি|বালতি|কোলাহল|প্রহরী|হিমায়িত|নতিমাত্রা|ভবিষ্যদ্বাণী", "take the word of glossary.csv"),
    (r"তুমি|তোমার|অনুগ্রহ|(?<![ঀ-৺])করো(?![ঀ-৺])|তাহা", "say আপনি, in spoken forms"),
    (r"[A-Za-z] (এর|এ|তে|টা|টি|কে)(?![ঀ-৺])", "join the ending with a hyphen"),
    (r"[A-Za-z]['’]?[ঁ-৺]", "join the ending with a hyphen"),
    (r"[ঀ-৺]\.(\s|$)|\s।|—", "end the sentence with । and no space; no dash; number a heading as ১: or ১)"),
    (r"[0-9][০-৯]|[০-৯][0-9x]|[0-9]টি", "write a number in one script"),
    (r"[\u09dc\u09dd\u09df\u200c]|(?<![ঀ-৺])র্যা", "write র‍্যা with a zero-width joiner"),
]
WRONG_SPELLINGS = {
    "কমপাইল": "কম্পাইল", "ব্যান্ডউইথ": "ব্যান্ডউইডথ", "প্যারালালিজম": "প্যারালেলিজম", "মেমরি": "মেমোরি", "ডাটা": "ডেটা",
    "অপটিমাইজার": "অপ্টিমাইজার", "গ্র্যাডিয়েন্ট": "গ্রেডিয়েন্ট", "এক্টিভেশন": "অ্যাক্টিভেশন", "একুরেসি": "অ্যাকুরেসি",
    "কনভলিউশন": "কনভোলিউশন", "র্যাঙ্ক": "র‍্যাঙ্ক", "র‍্যাংক": "র‍্যাঙ্ক", "সিডিউলার": "শিডিউলার", "থ্রোপুট": "থ্রুপুট",
    "লেটেন্সি": "ল্যাটেন্সি", "কার্ণেল": "কার্নেল", "টেন্সর": "টেনসর", "চেকপয়েণ্ট": "চেকপয়েন্ট", "এপক": "ইপক", "সিংক": "সিঙ্ক",
    "ব্যাকেন্ড": "ব্যাকএন্ড", "কনটেক্স্ট": "কনটেক্সট", "হার্ডওয়ার": "হার্ডওয়্যার", "ওয়ার্মআপ": "ওয়ার্ম-আপ", "লক্ষ্য কর": "লক্ষ কর",
    "ধরণ": "ধরন", "তৈরী": "তৈরি", "শ্রেণী": "শ্রেণি",
}


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


# This file is read by people and editors that may write য় in either form; the texts compared are always NFC.
_SMELLS = [(re.compile(nfc(pattern) if "\\u" not in pattern else pattern), fix) for pattern, fix in SMELLS]
_SPELLINGS = [(re.compile(re.escape(nfc(wrong))), nfc(right)) for wrong, right in WRONG_SPELLINGS.items()]


def smells(text: str) -> Iterator[tuple[int, str, str]]:
    """(line offset, what, fix) for each smell, wrong spelling and Latin run in a Bengali Markdown text (NFC)."""
    prose = parts(text).prose
    for line, sentence in sentences(prose):
        for pattern, fix in _SMELLS:
            if found := pattern.search(sentence):
                yield line, f"«{_around(sentence, found)}» is not how a teacher speaks.", f"{fix}."
        for pattern, right in _SPELLINGS:
            if found := pattern.search(sentence):
                yield line, f"spelling: {found.group(0)}.", f"write {right}."
        if found := LATIN_RUN.search(LINK_TEXT.sub(" ", sentence)):
            fix = "say it in Bengali, or mark it as code or as a link."
            yield line, f"a long run of Latin words: {found.group(0)!r}.", fix
    latin = len(LATIN.findall(prose))
    if latin > 40 and len(LETTER.findall(prose)) < latin:
        yield 0, "more Latin than Bengali letters.", "say it in Bengali, or mark names as code."


def _around(sentence: str, found: re.Match) -> str:
    """The finding with a few letters of what stands around it, never cut inside a long sentence's middle."""
    shown = sentence[max(0, found.start() - 12) : found.end() + 12].strip()
    return shown if len(shown) <= 80 else shown[:38] + " … " + shown[-38:]
