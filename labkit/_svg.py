"""matplotlib's SVG made small: a committed notebook carries its pictures as text."""

from __future__ import annotations

import html
import re

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_GLYPH = re.compile(r' d="([^"]*)" transform="scale\(0\.015625\)"')
_GLYPH_STEP = 8  # matplotlib's glyphs lie on 6,400 units an em; 800 are more than a screen shows


def smaller(svg: str, *, alt: str, fonts: dict[str, str]) -> str:
    """``svg`` without what nobody sees, with a title for readers who do not see the picture.

    ``fonts`` maps a font list to the one to write in its place.
    """
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*\n\s*", " ", svg).replace("> <", "><").replace(' "', '"')
    svg = _GLYPH.sub(_glyph, svg)
    faces = dict.fromkeys(re.findall(r'xlink:href="#([A-Za-z]+(?:-[A-Za-z]+)?-)[0-9a-f]+"', svg))
    for number, face in enumerate(faces):
        svg = svg.replace(f'"{face}', f'"f{number}-').replace(f'"#{face}', f'"#f{number}-')
    svg = re.sub(r' d="[^"]*"| [xy]="[^"]*"|translate\([^)]*\)', _rounded, svg)
    for old, new in fonts.items():
        svg = svg.replace(old, new)
    label = html.escape(alt)
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).replace(">", f"><title>{label}</title>", 1)


def _rounded(match: re.Match) -> str:
    """Paths and places with two decimals: a hundredth of a point is less than any screen shows."""
    text = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number.group()):.2f}".rstrip("0").rstrip("."), match.group())
    return re.sub(r"\s*([A-Za-z])\s*(?=[-\d])", r"\1", text) if text.startswith(' d="') else text


def _glyph(match: re.Match) -> str:
    """An outline in whole steps, each from the point before: half as long as matplotlib's absolute coordinates."""
    start, here, parts = (0, 0), (0, 0), []
    for command, numbers in re.findall(r"([A-Za-z])([^A-Za-z]*)", match.group(1)):
        values = [round(float(number) / _GLYPH_STEP) for number in _NUMBER.findall(numbers)]
        points = list(zip(values[::2], values[1::2], strict=True))
        steps = [value - origin for point in points for value, origin in zip(point, here, strict=True)]
        parts.append(command.lower() + " ".join(map(str, steps)).replace(" -", "-"))
        here = points[-1] if points else start  # closing an outline leads back to where it began
        start = here if command == "M" else start
    return f' d="{"".join(parts)}" transform="scale({0.015625 * _GLYPH_STEP})"'
