"""Bengali in English letters by rule: what one would write before training anything."""

from __future__ import annotations

from labkit.language import nfc


def _read(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


_CONSONANTS = _read(
    "ক=k খ=kh গ=g ঘ=gh ঙ=ng চ=ch ছ=chh জ=j ঝ=jh ঞ=n ট=t ঠ=th ড=d ঢ=dh ণ=n ত=t থ=th দ=d ধ=dh ন=n "
    "প=p ফ=f ব=b ভ=bh ম=m য=j র=r ল=l শ=sh ষ=sh স=s হ=h"
)
_OTHERS = _read(
    "অ=a আ=a ই=i ঈ=i উ=u ঊ=u ঋ=ri এ=e ঐ=oi ও=o ঔ=ou া=a ি=i ী=i ু=u ূ=u ৃ=ri ে=e ৈ=oi ো=o ৌ=ou ং=ng ঃ= ঁ= ৎ=t"
)
_SIGNS = "ািীুূৃেৈোৌ"  # vowels that a consonant carries
_NUKTA, _HASANTA = "়", "্"
_DOTTED = {"ড": "r", "ঢ": "rh", "য": "y"}


def by_table(name: str) -> str:
    """One Bengali letter after the other, by a fixed table, and the inherent "a" inside a word but not at its end.

    >>> by_table("ঢাকা"), by_table("রংপুর"), by_table("গাজীপুর সদর")
    ('dhaka', 'rangpur', 'gajipur sadar')
    """
    return " ".join(map(_word, nfc(name).split()))


def _word(word: str) -> str:
    out, k = "", 0
    while k < len(word):
        letter, k = word[k], k + 1
        if letter not in _CONSONANTS:
            out += _OTHERS.get(letter, "")
            continue
        out += _CONSONANTS[letter]
        if word[k : k + 1] == _NUKTA:
            out, k = out.removesuffix(_CONSONANTS[letter]) + _DOTTED.get(letter, _CONSONANTS[letter]), k + 1
        follows = word[k : k + 1]
        if follows == _HASANTA:
            k += 1
        elif follows and follows not in _SIGNS:
            out += "a"
    return out
