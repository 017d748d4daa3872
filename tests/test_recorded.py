"""Runs recorded elsewhere, beside the reader's own: every text comes from a card, and no file can break a lab."""

import copy
import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from labkit import _recorded, comparison, datasets, timing, use_language
from labkit._fusion_lab import Fusion, FusionLab
from labkit._lab import Choice, Lab, Number, Table
from labkit._lab_result import LabResult
from labkit._statistics import Ratio
from labkit.units import ratio

pytestmark = pytest.mark.usefixtures("english")
REAL = Path(__file__).parent.parent / "data/measurements"
OWN = {"n": 4, "way": "fast", "budget_s": 2.0}


class SwapLab(Lab):
    """A lab with a comparison, whose value is that comparison."""

    def title(self):
        return "SwapLab"

    def controls(self):
        here = {"fast": "quick (slow here)", "slow": "calm"}
        return [Choice("n", "How many", (2, 4), show="{:,} pieces".format),
                Choice("way", "Way", ("fast", "slow"), show=here.get, elsewhere=str),
                Number("budget_s", "Seconds", 2.0, 0.1, 9.0)]  # fmt: skip

    def measured(self, value):
        return value.ratio("swap")

    def table(self, value):
        return Table(["ratio"], [[ratio(value.ratio("swap").value)]])

    def verdict(self, value):
        return value.verdict("swap")

    def named(self, name):
        return {"swap": "the swap"}.get(name, name)


def measured(name, median_s):
    return timing.Measurement(name=name, times_s=(median_s,) * 10, first_s=0.1, device="cpu", threads=2, calls=1,
                              cache="warm", stopped="settled", inputs=(), utc="2026-01-01T00:00:00+00:00")  # fmt: skip


def compared():
    times = {"eager": measured("eager", 0.5), "swap": measured("swap", 0.125)}
    return comparison.Comparison(times, {"swap": Ratio(4.0, 3.9, 4.1)}, "eager", 0.03, 1.0, True)


def card(machine, device, ratios, verdicts):
    """A comparison inside a lab's card, as `Fusion.card()` and others write it."""
    return {"kind": "swap lab", "way": "fast",
            "comparison": {"kind": "comparison", "baseline": "eager", "ratios": ratios, "verdicts": verdicts,
                           "measurements": {"eager": {"device": device}}, "machine": machine}}  # fmt: skip


CPU = {"cpu": "Old CPU <2>", "cpus": 2, "torch": "2.9.0+cpu", "triton": None, "mxnet": "1.9.1", "device": "cpu",
       "utc": "2026-03-04T05:06:07Z"}  # fmt: skip
GPU = {"cpu": "Big CPU", "cpus": 16, "torch": "2.11.0+cu128", "triton": "3.5.1", "mxnet": None, "device": "cuda",
       "gpus": ["NVIDIA T9"], "utc": "2027-01-31T23:59:00Z"}  # fmt: skip


def cpu_file():
    """As notebooks/findings.py writes it."""
    found = card(CPU, "cpu", {"swap": [1.5, 1.4, 1.6]}, {"swap": "faster"})
    return {"machine": CPU, "runs": {"SwapLab": dict(OWN)}, "cards": {"SwapLab": found}}


def gpu_file():
    """As tests/gpu.py writes it, with runs of labs."""
    found = card(GPU, "cuda:0", {"swap": [0.25, 0.24, 0.26], "copy": [9.75, 9.5, 9.875]},
                 {"swap": "slower", "copy": "undecided"})  # fmt: skip
    return {"machine": GPU, "tests": {"ok": True}, "lessons": {}, "bench": {}, "runs": {"SwapLab": {"n": 4096}},
            "cards": {"SwapLab": found, "OtherLab": {"kind": "other"}}}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The measurements of a data folder that is empty at first."""
    monkeypatch.setattr(datasets, "_folder", lambda: tmp_path)
    (tmp_path / "measurements").mkdir()
    return tmp_path / "measurements"


def write(folder, **files):
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def result(lab=None):
    return LabResult(lab or SwapLab(), compared(), dict(OWN))


def cells(one):
    """The rows of the table's body, as a reader sees them; one table a result."""
    [table] = re.findall(r"<table.*?</table>", one.recorded.html())
    rows = re.findall(r"<tr.*?</tr>", table.partition("<tbody>")[2])
    return [[unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]


def test_where_nothing_was_recorded_nothing_is_shown(folder):
    plain = str(result())
    assert result().recorded is None
    write(folder, other={**cpu_file(), "cards": {"OtherLab": cpu_file()["cards"]["SwapLab"]}})
    assert str(result()) == plain
    assert "Recorded elsewhere" not in plain + result().numbers()
    folder.joinpath("other.json").unlink()
    folder.rmdir()
    assert result().recorded is None  # an old wheel has no such folder


def test_each_card_is_a_row_below_the_readers_own(folder):
    write(folder, b_cpu=cpu_file(), a_gpu=gpu_file())
    one = result()
    own, gpu, cpu = cells(one)
    assert own[0].startswith("this run: ")
    assert own[2] == one.utc[:10]
    assert own[3:] == ["How many: 4 pieces; Way: quick (slow here); Seconds: 2", "",
                       "baseline: eager; the swap 4.00 (3.90 – 4.10), faster"]  # fmt: skip
    assert cpu == ["Old CPU <2>; processors: 2", "PyTorch 2.9.0+cpu", "2026-03-04",
                   "How many: 4 pieces; Way: fast; Seconds: 2", "the same controls",
                   "baseline: eager; the swap 1.50 (1.40 – 1.60), faster"]  # fmt: skip
    assert gpu[:3] == ["NVIDIA T9; processors: 16", "PyTorch 2.11.0+cu128; Triton 3.5.1", "2027-01-31"]
    assert gpu[5] == "baseline: eager; the swap 0.250 (0.240 – 0.260), slower; copy 9.75 (9.50 – 9.88), undecided"


def test_another_experiment_is_called_one_and_what_is_not_known_is_not_guessed(folder):
    write(folder, gpu=gpu_file())
    [_own, gpu] = cells(result())
    # "n" is no size that this lab offers here; "way" stands on the card itself; the seconds stand nowhere
    assert gpu[3] == "How many: 4,096 pieces; Way: fast"
    assert gpu[4] == "not the same, other values of: How many; not on the card: Seconds"
    unknown = cpu_file()
    unknown["runs"]["SwapLab"]["depth"] = 3
    write(folder, gpu=unknown)
    [_own, other] = cells(result())
    assert other[3].endswith("; depth: 3")
    assert other[4] == "not the same, other values of: depth"


def test_what_ran_on_the_processor_of_a_machine_with_a_gpu_is_not_called_the_gpus(folder):
    file = gpu_file()
    file["cards"]["SwapLab"]["comparison"]["measurements"]["eager"]["device"] = "cpu"
    write(folder, gpu=file)
    assert cells(result())[1][0] == "Big CPU; processors: 16"
    file["cards"]["SwapLab"]["comparison"]["measurements"]["eager"]["device"] = "cuda"
    file["cards"]["SwapLab"]["comparison"]["machine"] = GPU | {"gpus": ["NVIDIA T9", "NVIDIA T9"]}
    write(folder, gpu=file)
    assert cells(result())[1][0] == "2 × NVIDIA T9; processors: 16"


def test_a_lab_names_the_packages_that_matter_to_it(folder):
    write(folder, cpu=cpu_file())
    lab = SwapLab()
    lab.packages = ("mxnet",)
    assert cells(result(lab))[1][1] == "MXNet 1.9.1"


def without(path, value=None):
    """``cpu_file()`` with one part taken out, or put in another's place."""
    content = copy.deepcopy(cpu_file())
    *way, last = path.split("/")
    part = content
    for name in way:
        part = part[name]
    if value is None:
        del part[last]
    else:
        part[last] = value
    return json.dumps(content)


INSIDE = "cards/SwapLab/comparison"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(cpu_file())[:-40], "", "\ufeff{}", "[" * 100_000, "[1, 2]", "null", '{"cards": [1]}',
        '{"cards": {"SwapLab": null}}', '{"cards": {"SwapLab": {"kind": "comparison"}}}',
        without(f"{INSIDE}/ratios"), without(f"{INSIDE}/ratios/swap", "1.5"), without(f"{INSIDE}/ratios/swap", [1, 2]),
        without(f"{INSIDE}/ratios/swap", [float("nan")] * 3), without(f"{INSIDE}/ratios/swap", [10**400] * 3),
        without(f"{INSIDE}/verdicts/swap", "best"), without(f"{INSIDE}/verdicts/swap"), without(f"{INSIDE}/baseline"),
        without(f"{INSIDE}/machine", {"cpu": "x"}), without(f"{INSIDE}/machine/utc", "yesterday"),
        without(f"{INSIDE}/machine/gpus", "T9"), without(f"{INSIDE}/machine/cpus", "2"),
    ],
)  # fmt: skip
def test_a_torn_or_foreign_file_is_skipped_and_the_next_one_is_shown(folder, text):
    folder.joinpath("a.json").write_text(text, encoding="utf-8")
    folder.joinpath("b.json").write_bytes(b"\xff\xfe\x00")
    folder.joinpath("c.json").mkdir()
    assert result().recorded is None
    write(folder, d=cpu_file())
    assert [row[0] for row in cells(result())][1:] == ["Old CPU <2>; processors: 2"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [4], {"a": 1}, 10**400])
def test_a_control_that_is_no_value_is_not_on_the_card(folder, value):
    file = cpu_file()
    file["runs"]["SwapLab"]["n"] = value
    write(folder, cpu=file)
    assert cells(result())[1][4] == "not on the card: How many"


def test_the_machine_of_the_file_stands_in_for_one_that_the_card_lacks(folder):
    folder.joinpath("cpu.json").write_text(without(f"{INSIDE}/machine"), encoding="utf-8")
    assert cells(result())[1][2] == "2026-03-04"


def test_plain_text_says_what_the_table_says(folder):
    write(folder, cpu=cpu_file(), gpu=gpu_file())
    one = result()
    text = str(one)
    assert text.index("ratio") < text.index("Recorded elsewhere") < text.index("this run: ") < text.index("Old CPU")
    for row in cells(one):
        assert all(cell in text for cell in row)
    assert max(map(len, text.splitlines())) < 120  # no column as wide as its longest cell


def test_the_table_can_be_heard(folder):
    write(folder, cpu=cpu_file())
    page = result().numbers()
    assert re.search(r"<caption[^>]*>Recorded elsewhere</caption>", page)
    table = page[page.index("<caption") :]
    assert len(re.findall(r'<th scope="col"', table)) == 6
    assert len(re.findall(r'<th scope="row"', table)) == 2
    assert "Old CPU &lt;2&gt;" in table


def test_the_language_is_that_of_the_moment(folder):
    write(folder, cpu=cpu_file())
    one = result()
    english = cells(one)[1]
    use_language("bn")
    bengali = cells(one)[1]
    assert "অন্য জায়গায় মেপে রাখা ফল" in str(one)
    assert "অন্য জায়গায় মেপে রাখা ফল" in one.numbers()
    assert bengali[5] == "বেসলাইন: eager; the swap 1.50 (1.40 – 1.60), দ্রুত"
    assert bengali[4] == "একই মানে মাপা"
    assert re.findall(r"[0-9.]+", " ".join(bengali)) == re.findall(r"[0-9.]+", " ".join(english))


def test_the_readers_own_card_is_made_once_and_only_where_it_is_needed(folder):
    asked = []
    lab = SwapLab()
    lab.card = lambda value: asked.append(1) or value.card()
    result(lab).numbers()
    assert not asked
    write(folder, cpu=cpu_file())
    one = result(lab)
    one.numbers(), str(one)
    assert asked == [1]


@pytest.mark.parametrize("name", ["FusionLab", "CompileLab", "DataParallelLab"])
def test_the_recorded_findings_are_found_as_they_stand_in_the_file(name):
    from labkit import widgets

    file = json.loads((REAL / "findings.json").read_text(encoding="utf-8"))
    lab = getattr(widgets, name)()
    found = _recorded.recordings(name, list(lab.defaults()))
    inside = next(part for part in file["cards"][name].values() if isinstance(part, dict) and "ratios" in part)
    assert inside["ratios"] in [one.ratios for one in found]
    assert all(one.controls.items() >= file["runs"][name].items() for one in found if one.ratios == inside["ratios"])
    assert all(lab.named(candidate) for candidate in inside["ratios"])


def test_fusion_lab_calls_its_kernels_by_their_names_and_no_number_type_emulated_elsewhere(folder, monkeypatch):
    from labkit import hardware

    monkeypatch.setattr(hardware, "bf16_native", lambda: False)
    times = {name: measured(name, 1.0) for name in ("eager", "by hand", "copy_")}
    ratios = {"by hand": Ratio(4.0, 3.9, 4.1), "copy_": Ratio(5.0, 4.9, 5.1)}
    value = Fusion(5, 1000, "bfloat16", comparison.Comparison(times, ratios, "eager", 0.03, 1.0, True),
                   dict.fromkeys(times, 8000), dict.fromkeys(times, 1), None, {})  # fmt: skip
    found = card(CPU, "cpu", {"by hand": [2.0, 1.9, 2.1]}, {"by hand": "faster"}) | {"dtype": "bfloat16"}
    write(folder, cpu={"machine": CPU, "runs": {"FusionLab": {"n": 2**27}}, "cards": {"FusionLab": found}})
    lab = FusionLab()
    own, other = cells(LabResult(lab, value, lab.defaults() | {"dtype": "bfloat16"}))
    assert "bfloat16 (emulated here)" in own[3]
    assert other[3] == "Numbers in the tensor: 134,217,728; Number type: bfloat16"
    assert other[5] == "baseline: eager; the kernel by hand 2.00 (1.90 – 2.10), faster"


def test_reading_cards_loads_nothing_heavy():
    code = """
import sys
from labkit import _recorded
assert _recorded.recordings("FusionLab", ["n"])
assert not {"torch", "numpy", "matplotlib", "ipywidgets"} & set(sys.modules), "heavy"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
