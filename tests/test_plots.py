"""Figures: Bengali as HarfBuzz shapes it, small and unchanging SVG, alt text, no pyplot."""

import base64
import importlib.util
import io
import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib import ft2font
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.transforms import Affine2D
from PIL import Image

from labkit import _figure, _svg, plots
from labkit.language import speaking, t

ROOT = Path(__file__).parent.parent
SVG = "{http://www.w3.org/2000/svg}"
SHAPES = hasattr(ft2font, "__libraqm_version__")
needs_shaping = pytest.mark.skipif(not SHAPES, reason="this matplotlib does not shape text")
needs_harfbuzz = pytest.mark.skipif(
    importlib.util.find_spec("uharfbuzz") is None, reason="uharfbuzz is not installed"
)
# Reordered signs, conjuncts, reph, ya-phala with its joiner, two-part vowels, and Latin between them.
WORDS = ["কার্নেল ফিউশন", "র‍্যাঙ্ক", "ক্ষুদ্র", "ব্যান্ডউইডথ", "স্ট্রিং", "মেমোরি 44 GB/s", "কৌশল", "ট্রান্সফরমার"]


def face(name: str = "NotoSansBengali-Regular.ttf"):
    import uharfbuzz as hb

    return hb.Font(hb.Face(hb.Blob.from_file_path(str(_figure.FONTS / name))))


def shaped(text: str, features=None) -> list[tuple[int, float, float]]:
    """(glyph, x, y) of each glyph, in font units, by HarfBuzz itself."""
    import uharfbuzz as hb

    font, buffer = face(), hb.Buffer()
    buffer.add_str(text)
    buffer.guess_segment_properties()
    hb.shape(font, buffer, features)
    x, found = 0, []
    for info, position in zip(buffer.glyph_infos, buffer.glyph_positions, strict=True):
        found.append((info.codepoint, x + position.x_offset, position.y_offset))
        x += position.x_advance
    return found


def unshaped(text: str) -> list[tuple[int, float, float]]:
    """Letter after letter, as a program without shaping sets them."""
    font, x, found = face(), 0, []
    for letter in text:
        glyph = font.get_nominal_glyph(ord(letter)) or 0
        found.append((glyph, x, 0))
        x += font.get_glyph_h_advance(glyph)
    return found


def only(text: str, language: str = "bn", **options) -> plots.LabFigure:
    """A figure with one line of text and nothing else."""
    with speaking(language):
        return plots.LabFigure(lambda figure: figure.text(0.02, 0.3, text, fontsize=40), figsize=(6, 1.2), **options)


def drawn_glyphs(figure: plots.LabFigure) -> list[tuple[int, float, float]]:
    """(glyph, x, y) of each glyph in an SVG, in font units: matplotlib names outlines by their glyph's number."""
    root, units_per_em = ET.fromstring(figure.svg()), face().face.upem
    found = []
    for use in root.iter(f"{SVG}use"):
        name = use.get("{http://www.w3.org/1999/xlink}href", "")
        if match := re.fullmatch(r"#f\d+-([0-9a-f]+)", name):
            place = re.search(r"translate\(([-\d.]+) ([-\d.]+)\)", use.get("transform", ""))
            x, y = map(float, place.groups()) if place else (0.0, 0.0)
            found.append((int(match.group(1), 16), x * units_per_em / 100, y * units_per_em / 100))
    return found


def close(one, other, units: float = 8) -> bool:
    """The same glyphs, at the same places to within 0.8 % of an em (matplotlib rounds to its hinting grid)."""
    if [glyph for glyph, _, _ in one] != [glyph for glyph, _, _ in other]:
        return False
    pairs = zip(one, other, strict=True)
    return all(abs(left[1] - right[1]) <= units and abs(left[2] - right[2]) <= units for left, right in pairs)


def ink(figure: Figure) -> np.ndarray:
    """Which pixels are dark: (height, width) of bool."""
    out = io.BytesIO()
    with matplotlib.rc_context({"savefig.facecolor": "white", "text.hinting": "none"}):
        figure.savefig(out, format="png", dpi=100)
    return np.asarray(Image.open(out).convert("L")) < 128


def traced(glyphs, size_points: float = 40) -> np.ndarray:
    """The pixels of glyphs whose outlines HarfBuzz draws, at the place where ``only()`` puts its text."""
    import uharfbuzz as hb

    figure, font = Figure(figsize=(6, 1.2), layout="constrained"), face()
    scale = size_points / font.face.upem * 100 / 72
    for glyph, x, y in glyphs:
        vertices, codes = [], []
        pen = hb.DrawFuncs()

        def add(code, *points, vertices=vertices, codes=codes):
            pairs = list(zip(points[::2], points[1::2], strict=True))
            vertices.extend(pairs)
            codes.extend([code] * len(pairs))

        pen.set_move_to_func(lambda x, y, _, add=add: add(Outline.MOVETO, x, y))
        pen.set_line_to_func(lambda x, y, _, add=add: add(Outline.LINETO, x, y))
        pen.set_quadratic_to_func(lambda a, b, x, y, _, add=add: add(Outline.CURVE3, a, b, x, y))
        pen.set_cubic_to_func(lambda a, b, c, d, x, y, _, add=add: add(Outline.CURVE4, a, b, c, d, x, y))
        pen.set_close_path_func(lambda _, add=add: add(Outline.CLOSEPOLY, 0, 0))
        font.draw_glyph(glyph, pen)
        if codes:
            where = Affine2D().translate(x, y).scale(scale).translate(0.02 * 600, 0.3 * 120)
            figure.add_artist(PathPatch(Outline(vertices, codes), transform=where, facecolor="#1f2328", linewidth=0))
    return ink(figure)


def overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Shared ink as a part of all ink."""
    return (one & other).sum() / (one | other).sum()


# Bengali


@needs_shaping
@needs_harfbuzz
@pytest.mark.parametrize("word", WORDS)
def test_bengali_in_svg_has_the_glyphs_and_places_that_harfbuzz_gives(word):
    drawn = drawn_glyphs(only(word))
    assert close(drawn, shaped(word)), (drawn, shaped(word))
    assert not close(drawn, unshaped(word)), "this word cannot tell shaped text from unshaped"


@needs_shaping
@needs_harfbuzz
@pytest.mark.parametrize("word", WORDS[:4])
def test_bengali_in_pixels_is_what_harfbuzz_draws(word):
    picture = ink(only(word))
    assert overlap(picture, traced(shaped(word))) > 0.95
    assert overlap(picture, traced(unshaped(word))) < 0.6


@needs_harfbuzz
def test_the_comparison_would_notice_a_missing_conjunct():
    word = "ক্ষুদ্র"
    off = dict.fromkeys(("akhn", "blwf", "pstf", "cjct", "half", "blws", "pres", "abvs", "psts"), False)
    assert not close(shaped(word, off), shaped(word))


@needs_shaping
def test_the_bundled_font_is_used_and_carries_both_scripts():
    with _figure._drawing("bn"):
        found = matplotlib.font_manager.findfont(_figure._family())
    assert Path(found).parent == _figure.FONTS
    font = ft2font.FT2Font(str(_figure.FONTS / "NotoSansBengali-Bold.ttf"))
    assert all(ord(letter) in font.get_charmap() for letter in "কAz09৳\u200d%.")


def test_without_shaping_the_browser_gets_the_text(monkeypatch):
    monkeypatch.setattr(_figure, "bengali_text", lambda: "browser")
    svg = only("ক্ষুদ্র র‍্যাঙ্ক").svg()
    texts = [text.text for text in ET.fromstring(svg).iter(f"{SVG}text")]
    assert texts == ["ক্ষুদ্র র‍্যাঙ্ক"]
    assert "'Noto Sans Bengali', 'Nirmala UI'" in svg
    assert "labkit Bengali" not in svg


def test_without_shaping_a_png_is_drawn_in_english(monkeypatch):
    monkeypatch.setattr(_figure, "bengali_text", lambda: "browser")
    with speaking("bn"):
        figure = plots.LabFigure(lambda figure: figure.text(0.1, 0.5, t("Memory")))
        bengali = figure.png()
    with speaking("en"):
        english = plots.LabFigure(lambda figure: figure.text(0.1, 0.5, t("Memory"))).png()
    assert bengali == english
    with speaking("en"), pytest.raises(RuntimeError, match="cannot set Bengali"):
        only("ক্ষুদ্র").png()


def test_without_a_font_figures_are_in_english(monkeypatch):
    monkeypatch.setattr(_figure, "_family", lambda: None)
    assert plots.bengali_text() == "english"
    with speaking("bn"):
        figure = plots.LabFigure(lambda figure: figure.text(0.1, 0.5, t("Memory")))
    assert [text.get_text() for text in figure.texts] == ["Memory"]


def test_this_matplotlib_says_what_it_can():
    assert plots.bengali_text() == ("shaped" if SHAPES else "browser")


# SVG, PNG, alt text


def two_lines(**options) -> plots.LabFigure:
    series = {"eager": [1.0, 2.0, 4.0], "fused": [(0.5, 0.4, 0.6), (1.0, 0.9, 1.1), (2.0, 1.8, 2.2)]}
    return plots.lines([1, 2, 3], series, xlabel="n", ylabel="ms", **options)


def test_the_same_data_give_the_same_svg_in_every_process():
    code = "import tests.test_plots as t; print(t.two_lines().svg())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    figure = two_lines()
    assert done.stdout.strip() == figure.svg()
    assert figure.svg() == figure.svg()
    assert not re.search(r"20\d\d-\d\d-\d\d|0x[0-9a-f]{6,}|Matplotlib v", done.stdout)


def test_svg_is_small_and_names_what_it_shows():
    for figure in (two_lines(), plots.bars(comparison()), plots.samples(TIMES), plots.histogram(TIMES)):
        svg = figure.svg()
        root = ET.fromstring(svg)
        assert len(svg.encode()) < 48_000
        assert root.get("role") == "img"
        assert root.get("aria-label") == root.find(f"{SVG}title").text == figure.alt != ""


def test_shrinking_an_outline_keeps_its_shape():
    absolute = "M 800 0 \nL 1600 800 \nQ 1600 1600 800 1600 \nz\nM 80 80 \nL 160 81 \nz\n"
    svg = f'<svg><path id="A-1" d="{absolute}" transform="scale(0.015625)"/></svg>'
    small = _svg.smaller(svg, alt="", fonts={})
    assert 'd="m100 0l100 100q0 100-100 100zm-90 10l10 0z" transform="scale(0.125)"' in small


def test_text_with_markup_stays_text():
    with speaking("en"):
        figure = plots.lines([1, 2], {"<b>&": [1, 2], "$x^2$": [2, 3]}, xlabel='a "quote"', ylabel="<i>")
    root = ET.fromstring(figure.svg())
    assert "<b>&" in root.find(f"{SVG}title").text
    image = ET.fromstring(figure.html().replace("%\">", "%\"/>"))
    assert image.get("alt") == figure.alt
    assert base64.b64decode(image.get("src").partition("base64,")[2]).decode() == figure.svg()


def test_a_notebook_gets_one_picture_and_a_plain_text_without_an_address():
    bundle = two_lines()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/svg+xml"}
    assert "0x" not in bundle["text/plain"]
    assert repr(plots.LabFigure()) == str(plots.LabFigure()) == "LabFigure"


@needs_shaping
def test_a_picture_of_many_points_becomes_a_png():
    figure = plots.samples({"many": list(np.linspace(1e-3, 2e-3, 5000))})
    bundle = figure._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/png"}
    picture = base64.b64decode(bundle["image/png"])
    assert picture == figure.png()
    assert len(picture) < 40_000
    assert Image.open(io.BytesIO(picture)).size[0] > 600


def test_ipython_shows_the_picture_and_not_the_repr():
    formatters = pytest.importorskip("IPython.core.formatters")
    data, _ = formatters.DisplayFormatter().format(two_lines())
    assert set(data) == {"text/plain", "image/svg+xml"}


def test_pyplot_is_never_imported_and_the_style_stays_inside():
    code = (
        "import sys, matplotlib; before = dict(matplotlib.rcParams); import tests.test_plots as t; "
        "f = t.two_lines(); f.svg(); f.png(); t.plots.bars(t.comparison()).svg(); "
        "print('matplotlib.pyplot' in sys.modules, dict(matplotlib.rcParams) == before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_threads_may_draw_at_once_in_two_languages():
    found = {}

    def draw(language):
        with speaking(language):
            for _ in range(3):
                figure = plots.samples(TIMES)
                found.setdefault(language, set()).add((figure.svg(), figure.axes[0].get_xlabel()))

    threads = [threading.Thread(target=draw, args=(language,)) for language in ("bn", "en")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {language: {label for _, label in pairs} for language, pairs in found.items()} == {
        "bn": {"কততম বার"}, "en": {"run"}
    }
    assert all(len(pairs) == 1 for pairs in found.values())


def luminance(colour: str) -> float:
    """Relative luminance by WCAG 2."""
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in matplotlib.colors.to_rgb(colour)]
    return float(np.dot([0.2126, 0.7152, 0.0722], channels))


def test_text_and_marks_stand_out_from_the_card():
    card = luminance(_figure._STYLE["figure.facecolor"])
    for colour, least in [(_figure._STYLE["text.color"], 7.0), *((c, 2.3) for c in plots.COLOURS)]:
        assert (card + 0.05) / (luminance(colour) + 0.05) >= least, colour
    svg = two_lines().svg()
    assert 'style="fill: #ffffff"' in svg  # the card is opaque, so a dark theme does not shine through


# what each figure shows


TIMES = {"eager": [2e-3, 2.1e-3, 2.2e-3, 5e-3], "fused": [1e-3, 1.1e-3, 1.05e-3]}


def comparison():
    ratios = {
        "compiled": (2.31, 2.2, 2.44),
        "traced": (0.8, 0.77, 0.83),
        "frozen": (1.0, 0.99, 1.01),
        "other": (1.1, 0.9, 1.3),
    }
    verdicts = dict(zip(ratios, ["faster", "slower", "same", "undecided"], strict=True))
    return SimpleNamespace(
        baseline="eager",
        names=["eager", *ratios],
        ratio=lambda name: SimpleNamespace(**dict(zip(("value", "low", "high"), ratios[name], strict=True))),
        verdict=verdicts.get,
    )


def test_bars_show_ratios_intervals_and_verdicts():
    with speaking("en"):
        figure = plots.bars(comparison())
    axes = figure.axes[0]
    assert [round(bar.get_width(), 2) for bar in axes.patches] == [2.31, 0.8, 1.0, 1.1]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["compiled", "traced", "frozen", "other"]
    assert len({bar.get_hatch() for bar in axes.patches}) == 4  # told apart without colour
    assert any(list(line.get_xdata()) == [1.0, 1.0] for line in axes.lines)
    assert "compiled: 2.31, faster (2.20 – 2.44)" in figure.alt
    assert "traced: 0.800, slower" in figure.alt
    low, high = axes.get_xlim()
    assert low == 0
    assert high > 2.44
    ends = [segment[:, 0] for lines in axes.collections for segment in lines.get_segments()]
    np.testing.assert_allclose(ends, [[2.2, 2.44], [0.77, 0.83], [0.99, 1.01], [0.9, 1.3]])


def test_bars_of_a_real_comparison():
    comparison_of = pytest.importorskip("labkit.comparison")
    found = comparison_of.compare({"eager": lambda: 1, "other": lambda: 1}, budget_s=0.05)
    with speaking("en"):
        assert plots.bars(found).alt.startswith("Bars: times as fast as eager. other: ")
        assert "eager: " in plots.samples(found).alt


def test_samples_keep_the_order_and_mark_the_median():
    with speaking("en"):
        figure = plots.samples(TIMES)
    axes = figure.axes[0]
    points = [line for line in axes.lines if len(line.get_xdata()) > 2 and line.get_linestyle() == "None"]
    np.testing.assert_allclose(points[0].get_ydata(), [2.0, 2.1, 2.2, 5.0])  # ms, in the order of the runs
    assert list(points[0].get_xdata()) == [1, 2, 3, 4]
    assert len({line.get_marker() for line in points}) == 2
    assert axes.get_ylabel() == "time (ms)"
    assert "fused: 3 runs, median 1.05 ms" in figure.alt


def test_samples_take_one_measurement_several_or_plain_times():
    one = SimpleNamespace(name="f", times_s=[1e-6, 2e-6, 3e-6])
    two = SimpleNamespace(name="g", times_s=[1e-6, 2e-6, 3e-6])
    with speaking("en"):
        for given, names in ((one, ["f"]), ([one, two], ["f", "g"]), ({"f": one.times_s}, ["f"])):
            figure = plots.samples(given)
            assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == names
            assert figure.axes[0].get_ylabel() == "time (us)"


def test_a_histogram_counts_every_run_once_in_shared_bins():
    with speaking("en"):
        figure = plots.histogram(TIMES, bins=10)
    outlines = [patch.get_xy() for patch in figure.axes[0].patches]
    counts = [np.histogram(np.array(times) * 1e3, bins=10, range=(1.0, 5.0))[0].max() for times in TIMES.values()]
    assert [outline[:, 1].max() for outline in outlines] == counts
    assert len({patch.get_linestyle() for patch in figure.axes[0].patches}) == 2


def test_lines_draw_intervals_where_they_are_given():
    figure = two_lines(log_y=True)
    axes = figure.axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [[1, 2, 4], [0.5, 1, 2]]
    assert len(axes.collections) == 1  # one band, for the series with intervals
    assert len({(line.get_marker(), str(line.get_linestyle())) for line in axes.lines}) == 2
    assert axes.get_yscale() == "log"
    assert plots.lines([2**20, 2**25], {"a": [1, 2]}, xlabel="n", ylabel="y", log_x=True, byte_x=True).axes[0] \
        .get_xticklabels()[1].get_text() == "33.6 MB"
    with pytest.raises(ValueError, match="x and y must have same first dimension"):
        plots.lines([1, 2, 3], {"a": [1, 2]}, xlabel="n", ylabel="y")


def test_intervals_stand_beside_their_reference():
    rows = {"a": (1.2, 1.1, 1.3), "b": SimpleNamespace(value=0.9, low=0.8, high=1.0)}
    with speaking("en"):
        figure = plots.intervals(rows, xlabel="ratio", reference=1.0, margin=0.03)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert "a: 1.20 (1.10 – 1.30); b: 0.900 (0.800 – 1.00)" in figure.alt
    band = axes.patches[0].get_window_extent().transformed(axes.transData.inverted())
    np.testing.assert_allclose([band.x0, band.x1], [0.97, 1.03])


def test_a_label_may_be_asked_again_in_another_language():
    with speaking("bn"):
        figure = plots.lines([1, 2], {"a": [1, 2]}, xlabel=lambda: t("Memory"), ylabel="ms")
    assert figure.axes[0].get_xlabel() == "মেমোরি"
    with speaking("en"):
        figure = plots.lines([1, 2], {"a": [1, 2]}, xlabel=lambda: t("Memory"), ylabel="ms")
    assert figure.axes[0].get_xlabel() == "Memory"
