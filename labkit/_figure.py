"""A matplotlib figure that shows itself: small SVG or PNG, alt text, Bengali shaped right, never pyplot.

matplotlib 3.11 joins Bengali conjuncts itself. 3.10 sets letter after letter, which no reader accepts: there the SVG
carries text and the browser shapes it, and a PNG is drawn in English.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import html
import io
import re
import threading
from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib import font_manager, ft2font
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from labkit import _svg
from labkit.language import current_language, speaking, t

FONTS = Path(__file__).with_name("fonts")
# A name of our own: a system font called "Noto Sans Bengali" may have no Latin letters and would be found first.
_FAMILY = "labkit Bengali"
# What browsers find on Linux, Windows, macOS and Android, in that order.
_BROWSER = "'Noto Sans Bengali', 'Nirmala UI', 'Bangla Sangam MN', 'Bangla MN', Vrinda, 'DejaVu Sans', sans-serif"
_LARGEST_SVG_BYTES = 100_000
_PNG_DPI = 110
_BENGALI = re.compile("[\u0980-\u09ff]")
_INK, _CARD = "#1f2328", "#ffffff"
# Dark ink on an opaque white card reads well in JupyterLab's light and dark themes alike.
_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#6e7781",
    "axes.facecolor": _CARD,
    "axes.grid": True,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "figure.facecolor": _CARD,
    "font.size": 9.5,
    "grid.color": "#d8dee4",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.facecolor": _CARD,
    "svg.hashsalt": "labkit",
    "text.color": _INK,
    "text.hinting": "none",  # else Agg moves each letter to a whole pixel, and conjuncts drift apart
    "text.parse_math": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
# rcParams are one for the whole process; a lab's worker thread may draw while a cell does.
_lock = threading.RLock()


@functools.cache
def _family() -> str | None:
    """The name under which matplotlib finds the bundled font; None when the font files are gone."""
    fonts = font_manager.fontManager
    files = sorted(FONTS.glob("NotoSansBengali-*.ttf"))
    for file in files:
        before = len(fonts.ttflist)
        fonts.addfont(file)
        fonts.ttflist.append(dataclasses.replace(fonts.ttflist[before], name=_FAMILY))
    return _FAMILY if files else None


def bengali_text() -> str:
    """How Bengali gets into a figure here: ``"shaped"``, ``"browser"`` (SVG text) or ``"english"`` (not at all)."""
    if _family() is None:
        return "english"
    return "shaped" if hasattr(ft2font, "__libraqm_version__") else "browser"


@contextlib.contextmanager
def _drawing(language: str):
    """One thread at a time, in our style, in ``language``."""
    style = {
        **_STYLE,
        "font.family": [name for name in (_family(), "DejaVu Sans") if name],
        "svg.fonttype": "none" if language == "bn" and bengali_text() == "browser" else "path",
    }
    with _lock, speaking(language), matplotlib.rc_context(style):
        yield


class LabFigure(Figure):
    """A figure that a notebook shows by itself.

    ``draw(figure)`` adds the axes and may set ``figure.alt``, the sentence for readers who do not see the picture. It
    runs a second time, in English, where a PNG cannot hold Bengali: so it calls ``t()`` itself and takes no translated
    text from outside.
    """

    def __init__(self, draw: Callable[[LabFigure], None] | None = None, *, alt: str = "", **options):
        self.language = "en" if bengali_text() == "english" else current_language()
        self._draw, self._options = draw, {"figsize": (6.4, 3.2), "layout": "constrained", **options}
        with _drawing(self.language):
            super().__init__(**self._options)
            FigureCanvasAgg(self)
            self.alt = alt
            if draw is not None:
                draw(self)
                # Laying out again moves everything by a hair each time: do it once, so that every SVG is the same.
                self.draw_without_rendering()
                self.set_layout_engine("none")

    def svg(self) -> str:
        """The picture as SVG: the same text for the same data and matplotlib."""
        out = io.StringIO()
        with _drawing(self.language):
            self.savefig(out, format="svg", metadata={"Date": None})
        return _svg.smaller(out.getvalue(), alt=self.alt, fonts={f"'{_FAMILY}', 'DejaVu Sans'": _BROWSER})

    def png(self) -> bytes:
        """The picture as a PNG of few colours; in English where this matplotlib cannot shape Bengali.

        Raises RuntimeError there when the texts were given in Bengali.
        """
        if bengali_text() != "shaped" and self._holds_bengali():
            with speaking("en"):
                english = LabFigure(self._draw, alt=self.alt, **self._options)
            if self._draw is None or english._holds_bengali():
                raise RuntimeError(
                    t("This matplotlib cannot set Bengali in a PNG. Take `figure.svg()`, or give English labels.")
                )
            return english.png()
        from PIL import Image

        out, small = io.BytesIO(), io.BytesIO()
        with _drawing(self.language):
            self.savefig(out, format="png", dpi=_PNG_DPI)
        Image.open(out).convert("RGB").quantize(64).save(small, "PNG", optimize=True)
        return small.getvalue()

    def html(self) -> str:
        """An ``<img>`` with the picture inside and its alt text, for widgets and reports."""
        data = base64.b64encode(self.svg().encode()).decode()
        return f'<img alt="{html.escape(self.alt)}" src="data:image/svg+xml;base64,{data}" style="max-width:100%">'

    def _holds_bengali(self) -> bool:
        return any(_BENGALI.search(text.get_text()) for text in self.findobj(Text))

    def _repr_mimebundle_(self, include=None, exclude=None):
        picture = {"image/svg+xml": self.svg()}
        if len(picture["image/svg+xml"]) > _LARGEST_SVG_BYTES and (bengali_text() == "shaped" or self.language == "en"):
            picture = {"image/png": base64.b64encode(self.png()).decode()}
        return {"text/plain": str(self), **picture}

    def __repr__(self) -> str:
        return self.alt or "LabFigure"

    __str__ = __repr__
