"""Every lab in real JupyterLab, in both languages: guess, Run, read, change, run again, Stop; seen and heard.

Controls are found by the names that a screen reader gets. One notebook, so one kernel, serves all labs of a language.
"""

import importlib.util
import itertools
import re
import time

import nbformat
import pytest

from labkit.language import speaking, t
from tests.jupyterlab import chromium, menu, opened, picture, run, server

pytestmark = pytest.mark.browser
LANGUAGES = ("bn", "en")
BROKEN = """
from labkit._lab import Choice, Table

class BrokenLab(lab.widgets.Lab):
    def title(self):
        return "BrokenLab"

    def controls(self):
        return [Choice("kind", "kind", ["raises", "memory", "never", "fine"])]

    @staticmethod
    def measure(*, kind):
        if kind == "raises":
            raise RuntimeError("seventeen is not prime enough")
        if kind == "memory":
            raise MemoryError
        while kind == "never":
            pass
        return 17

    def table(self, value):
        return Table(["n"], [[str(value)]])

    def figure(self, value, guess):
        return lab.plots.lines([1, 2], {"n": [value, value]}, xlabel="x", ylabel="y")

    def verdict(self, value):
        return f"It is {value}."

BrokenLab(limit_s=1.0)
"""
# Lab -> the call that shows it, quick enough for a test, and the change before the second run (label, choice).
LABS = {
    "TimingLab": ("TimingLab(budget_s=0.5)", ("Work", "sort 20,000 numbers")),
    "RooflineLab": ("RooflineLab(budget_s=0.3)", ("Operation", "softmax")),
    "FusionLab": ("FusionLab(n=2**20, budget_s=0.5)", ("Operations in the chain", "2")),
    "CompileLab": ('CompileLab(family="conv_stack", way="TorchScript", budget_s=0.5)', ("Share of the batch", "50%")),
    "DecisionLab": ("DecisionLab(budget_s=3)", ("Task", "training step")),
    "CostLab": ("CostLab()", None),
    "DataParallelLab": ("DataParallelLab(width=64, batch=64, rounds=3)", ("Batch size of each rank", "16")),
    "PipelineLab": ("PipelineLab()", ("How many ranks", "8")),
    "MemoryLab": ("MemoryLab()", ("Stage of ZeRO", "1")),
    "ScaleLab": ("ScaleLab(seeds=2, steps=50)", ("What grows", "parameters")),
    "MXNetLab": ("MXNetLab(pairs=20, side=4, budget_s=0.5)", ("Side of the square tensor", "64")),
}
if importlib.util.find_spec("mxnet") is None:
    del LABS["MXNetLab"]  # tests/test_setup.py says where there is a package for it
# Where a run can be made long enough to be stopped: the number field that does it.
LONG = {"TimingLab": "Time for lab.compare (seconds)", "RooflineLab": "Time for measuring (seconds)",
        "FusionLab": "Time for measuring (seconds)", "CompileLab": "Time for measuring (seconds)",
        "DataParallelLab": "Rounds of measuring", "MXNetLab": "Time for measuring (seconds)"}  # fmt: skip

OUT_OF_MEMORY = (
    "The memory ran out, so nothing was measured. Choose a smaller size, close other programs, and press Run again."
)


def said(language, message):
    """One of the labs' texts in ``language``; the catalogue has it, so it is no new message."""
    with speaking(language):
        return t(message)  # catalogue: already there


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory):
    """A JupyterLab of our own with one notebook a language; gives its address."""
    home = tmp_path_factory.mktemp("labs")
    for language in LANGUAGES:
        cells = [f'import labkit as lab\n\nlab.use_language("{language}")']
        cells += [f"lab.widgets.{call}" for call, _change in LABS.values()]
        cells += [BROKEN.strip(), "import time\n\ntime.sleep(6)"]
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        (home / "notebooks").mkdir(exist_ok=True)
        nbformat.write(notebook, home / "notebooks" / f"{language}.ipynb")
    with server(home) as address:
        yield address


@pytest.fixture(scope="module", params=LANGUAGES)
def page(request, browser, jupyter):
    """The language's notebook, all its cells run."""
    with opened(browser, jupyter, f"{request.param}.ipynb") as opened_page:
        opened_page.language = request.param
        opened_page.locator(".jp-CodeCell .cm-content").first.click()  # the menu acts on what has the focus
        run(opened_page)
        panels = "n => document.querySelectorAll('.jp-CodeCell [role=status]').length === n"
        opened_page.wait_for_function(panels, arg=len(LABS) + 1, timeout=30_000)
        opened_page.logged.clear()  # what JupyterLab itself has to say while it starts
        yield opened_page


class Panel:
    """One lab on the page, handled as a person does it."""

    def __init__(self, page, position):
        self.page, self.language = page, page.language
        self.cell = page.locator(".jp-CodeCell").nth(position)
        self.cell.scroll_into_view_if_needed()
        self.status = self.cell.get_by_role("status")

    def word(self, message):
        return said(self.language, message)

    def button(self, message):
        return self.cell.get_by_role("button", name=self.word(message), exact=True)

    def guess(self, text):
        self.cell.get_by_label(self.word("Your guess:")).fill(text)

    def choose(self, label, option):
        self.cell.get_by_label(self.word(label), exact=True).select_option(label=self.word(option))
        self.settle()

    def break_by(self, kind):
        """What the broken lab shall do; its words are in no catalogue."""
        self.cell.locator("select").select_option(label=kind)
        self.settle()

    def number(self, label, value):
        field = self.cell.get_by_label(self.word(label), exact=True)
        field.fill(str(value))
        field.press("Tab")
        self.settle()

    def settle(self):
        """A moment, as a person's hand needs it: ipywidgets may hold a new value back, but never a click."""
        self.page.wait_for_timeout(300)

    def wait_for(self, message, timeout_s=90):
        self.status.filter(has_text=self.word(message)).wait_for(timeout=1000 * timeout_s)

    def run(self, timeout_s=120):
        """Press Run and wait for its end; the table's text."""
        self.status.evaluate("element => { element.dataset.before = 1 }")  # each report is a new element
        self.button("Run").click()
        fresh = self.cell.locator("[role=status]:not([data-before])")
        fresh.filter(has_text=self.word("Done.")).wait_for(timeout=1000 * timeout_s)
        return self.table()

    def table(self):
        return self.cell.get_by_role("table").first.inner_text()


def quickest(action, enough_s, tries=4):
    """The least seconds that ``action()`` returned: a busy machine may be slow once, but not every time."""
    best_s = action()
    for _ in range(tries - 1):
        if best_s < enough_s:
            break
        best_s = min(best_s, action())
    return best_s


def panel(page, name):
    return Panel(page, 1 + [*LABS, "BrokenLab"].index(name))


@pytest.mark.parametrize("name", LABS)
def test_a_lab_is_guessed_run_changed_and_stopped(page, name):
    lab = panel(page, name)
    lab.guess("৩" if page.language == "bn" else "3")
    first = lab.run()
    picture_of = lab.cell.get_by_role("img").first
    assert picture_of.get_attribute("alt")
    assert picture_of.evaluate("x => x.naturalWidth") > 100
    assert lab.cell.get_by_text(lab.word("Why?")).count()
    assert lab.cell.get_by_text("✎").count()  # the guess beside the measurement
    change = LABS[name][1]
    if change:
        lab.choose(*change)
    else:
        lab.number("Rent for an hour", 99)
    second = lab.run()
    assert second != first
    picture(page, f"{page.language}-{name}")
    if name in LONG:
        lab.number(LONG[name], 10 if name == "RooflineLab" else 20)

        def stopped():
            lab.button("Run").click()
            lab.wait_for("Measuring …")
            page.wait_for_timeout(700)
            begin = time.monotonic()
            lab.button("Stop").click()
            lab.wait_for("Stopped.", 20)
            return time.monotonic() - begin

        assert quickest(stopped, 2.0) < 2.0
        assert lab.table() == second  # the result of the run before is still there
    assert not page.faults
    # A file that JupyterLab itself does not find is its own affair.
    assert not [line for line in page.logged if "Failed to load resource" not in line]


def test_a_training_step_is_compiled_too(page):
    lab = panel(page, "CompileLab")
    lab.number(LONG["CompileLab"], 0.5)
    lab.choose("Model", "mlp")
    inference = lab.run()
    lab.choose("Compiler and mode", "torch.compile")
    lab.choose("Task", "training step")
    training = lab.run(240)
    assert training != inference
    rows = [line.split("\t") for line in training.splitlines() if line.startswith(("eager", "torch.compile"))]
    assert [row[0] for row in rows] == ["eager", "torch.compile"]
    picture(page, f"{page.language}-CompileLab-training")


def test_a_number_is_shown_within_a_second_of_the_click(page):
    lab = panel(page, "FusionLab")
    lab.number(LONG["FusionLab"], 0.3)

    def shown():
        begin = time.monotonic()
        lab.button("Run").click()
        lab.status.filter(has_text=re.compile(r"eager: [0-9.]+ [mun]?s")).wait_for(timeout=20_000)
        waited_s = time.monotonic() - begin
        lab.wait_for("Done.")
        return waited_s

    limit_s = 1.0 + 0.1  # the first look at eager is measured for 0.1 s
    assert quickest(shown, limit_s) < limit_s


def test_a_second_lab_waits_and_says_so(page):
    first, second = panel(page, "TimingLab"), panel(page, "FusionLab")
    first.number(LONG["TimingLab"], 3)
    first.button("Run").click()
    first.wait_for("Measuring …")
    second.button("Run").click()
    second.status.filter(has_text="TimingLab").wait_for(timeout=5000)
    second.wait_for("Done.")
    assert "TimingLab" not in second.status.inner_text()
    first.wait_for("Done.")


def test_run_and_stop_work_after_a_busy_cell_and_the_time_limit_during_one(page):
    lab, busy = panel(page, "BrokenLab"), page.locator(".jp-CodeCell").last
    lab.break_by("never")
    lab.button("Run").click()
    busy.locator(".cm-content").click()
    page.keyboard.press("Control+Enter")
    lab.wait_for("Time is up.", 4)  # the limit is one second; the cell still sleeps
    assert "*" in busy.locator(".jp-InputPrompt").first.inner_text()
    lab.button("Run").click()  # JupyterLab may hand one of the two to the kernel at once, the other after the cell
    lab.settle()
    lab.button("Stop").click()
    ended = "|".join(re.escape(lab.word(message)) for message in ("Stopped.", "Nothing is running."))
    lab.status.filter(has_text=re.compile(ended)).wait_for(timeout=20_000)
    lab.break_by("fine")
    assert "17" in lab.run(10)


def test_what_breaks_is_told_in_words_and_can_be_run_again(page):
    lab = panel(page, "BrokenLab")
    told = {"raises": "seventeen is not prime enough", "memory": OUT_OF_MEMORY, "never": "Time is up."}
    for kind, words in told.items():
        lab.break_by(kind)
        lab.button("Run").click()
        lab.wait_for(words, 10)
        lab.break_by("fine")
        assert "17" in lab.run(10)
    assert not page.faults


def test_the_keyboard_alone_is_enough(page):
    lab = panel(page, "CostLab")
    lab.run()
    lab.cell.get_by_label(lab.word("Rent for an hour"), exact=True).focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("77")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText").strip() == lab.word("Run"):
            break
    before = lab.table()
    page.keyboard.press("Space")
    end = time.monotonic() + 10
    while lab.table() == before and time.monotonic() < end:
        page.wait_for_timeout(100)
    assert lab.table() != before


CONTRAST = r"""element => {
  const light = colour => {
    const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(v => Number(v) / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let behind = element;
  while (/^rgba\(.*, 0\)$/.test(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
  const pair = [light(getComputedStyle(element).color), light(getComputedStyle(behind).backgroundColor)];
  return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
}"""


def test_labs_are_legible_in_light_in_dark_and_printed(page):
    lab = panel(page, "CostLab")
    lab.run()
    parts = itertools.chain([lab.status, lab.cell.get_by_role("table").first.locator("td").first],
                            lab.cell.locator(".widget-label:visible").all()[:3])  # fmt: skip
    parts = list(parts)
    ratios = {}
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        menu(page, "Settings")
        for label in ("Theme", theme):  # a submenu has no role
            page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{label}$")).click()
        page.wait_for_selector(f"body[data-jp-theme-name='{theme}']", state="attached")
        page.wait_for_timeout(300)
        ratios[theme] = [part.evaluate(CONTRAST) for part in parts]
        picture(page, f"{page.language}-{theme.replace(' ', '-')}")
    assert min(min(values) for values in ratios.values()) >= 4.5, ratios
    page.emulate_media(media="print")
    assert lab.cell.get_by_role("img").first.is_visible()
    assert lab.cell.get_by_role("table").first.is_visible()
    picture(page, f"{page.language}-print")
    page.emulate_media(media="screen")
