"""The files under data/: what they hold, that a torn one is noticed, and that everybody cuts them alike."""

import collections
import csv
import doctest
import hashlib
import io
import itertools
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from labkit import datasets
from labkit.language import speaking

ROOT = Path(__file__).parent.parent
DATA = ROOT / "data"


def readme_rows() -> dict[str, list[str]]:
    """File name -> the cells of its row in data/README.md."""
    lines = (DATA / "README.md").read_text(encoding="utf-8").splitlines()
    cells = (line.strip("|").split("|") for line in lines if line.startswith("| `"))
    return {row[0].strip(" `"): [cell.strip(" `") for cell in row] for row in cells}


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of data/ that labkit reads instead of the real one, and that a test may damage."""
    folder = tmp_path / "data"
    shutil.copytree(DATA, folder)
    monkeypatch.setattr(datasets, "_folder", lambda: folder)
    datasets._all_places.cache_clear()
    yield folder
    datasets._all_places.cache_clear()


def test_places_are_those_of_the_source():
    counts = {level: len(datasets.places(level)) for level in datasets.LEVELS}
    # Bangladesh's own numbers for the upper levels; the source's, less the rows left out, below.
    assert counts == {"division": 8, "district": 64, "upazila": 494, "union": 4538, "post office": 1022}
    assert len(datasets.places()) == sum(counts.values())
    assert len(datasets.places("division", "district")) == 72
    dhaka = next(p for p in datasets.places("district") if p.en == "Dhaka")
    assert dhaka == ("district", "Dhaka", "ঢাকা", "Dhaka", "Dhaka", "")


def test_every_place_has_two_clean_names_and_its_parents():
    divisions = {p.en for p in datasets.places("division")}
    districts = {p.en: p.division for p in datasets.places("district")}
    for place in datasets.places():
        assert re.fullmatch(r"[A-Za-z][A-Za-z .'()\-]*", place.en), place
        assert re.fullmatch(r"[\u0980-\u09ff][\u0980-\u09ff\u200d .,'()\-]*", place.bn), place
        assert place.bn == unicodedata.normalize("NFC", place.bn)
        assert place.division in divisions
        if place.level != "division":
            assert districts[place.district] == place.division
        assert bool(re.fullmatch(r"\d{4}", place.postcode)) == (place.level == "post office"), place


def test_an_unknown_level_is_named_with_the_known_ones():
    with speaking("en"), pytest.raises(ValueError, match="'village'.*post office"):
        datasets.places("village")


def test_digits_are_scikit_learns():
    source = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed").load_digits()
    images, labels = datasets.digits()
    assert images.shape == (1797, 8, 8)
    assert images.dtype == labels.dtype == np.uint8
    np.testing.assert_array_equal(images, source.images)
    np.testing.assert_array_equal(labels, source.target)


def test_the_messages_are_balanced_and_no_two_alike():
    messages = datasets.messages()
    counts = collections.Counter((message.part, message.label) for message in messages)
    labels = {label for _part, label in counts}
    assert len(labels) == 6
    assert counts == {(part, label): n for part, n in (("train", 36), ("val", 10), ("test", 20)) for label in labels}
    words = [tuple(re.findall(r"[a-z0-9]+", message.text.lower())) for message in messages]
    assert len(set(words)) == len(messages)
    assert max(map(len, words)) < 30
    beginnings = collections.Counter(line[:3] for line in words)
    assert max(beginnings.values()) <= 7  # no template: hardly two begin with the same three words
    for one, other in itertools.combinations(map(set, words), 2):
        assert len(one & other) < 0.5 * len(one | other)


def test_each_call_gives_digits_of_its_own():
    datasets.digits().images[:] = 0
    assert datasets.digits().images.max() == 16


def test_the_voice_detector_is_the_one_its_makers_ship():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    detector = datasets.voice_detector()
    assert not detector.training
    assert sum(weight.numel() for weight in detector.parameters()) == 462_594
    silence = torch.zeros(3, 512)
    first = detector(silence, 16000)
    assert first.shape == (3, 1)
    assert (first < 0.1).all()
    with pytest.raises(Exception, match="chunk is too short"):  # a check inside the file
        detector(torch.zeros(1, 500), 16000)


def test_a_damaged_model_is_not_opened(copy):
    tampered(copy / "silero_vad.jit")
    with speaking("en"), pytest.raises(datasets.DataError, match=r"silero_vad\.jit is not as labkit knows it"):
        datasets.voice_detector()


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def tampered(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def other_line_ends(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


@pytest.mark.parametrize("damage", [torn, tampered, other_line_ends])
@pytest.mark.parametrize(("language", "words"), [("en", "checksum differs"), ("bn", "চেকসাম মিলছে না")])
def test_a_damaged_file_is_refused_with_the_command_that_mends_it(copy, damage, language, words):
    damage(copy / "places.tsv")
    with speaking(language), pytest.raises(datasets.DataError, match=words) as caught:
        datasets.places()
    assert "pip install --force-reinstall --no-deps" in str(caught.value)
    (copy.parent / ".git").mkdir()
    with pytest.raises(datasets.DataError, match="git checkout -- data/places.tsv"):
        datasets.places()


@pytest.mark.parametrize("name", ["digits.npz", "SHA256SUMS"])
def test_a_missing_file_is_named(copy, name):
    (copy / name).unlink()
    with speaking("en"), pytest.raises(datasets.DataError, match=f"{name} is not there"):
        datasets.digits()


def test_an_unknown_file_is_refused_even_if_it_is_there(copy):
    (copy / "mine.tsv").write_text("x")
    with speaking("en"), pytest.raises(ValueError, match=r"mine\.tsv.*places\.tsv"):
        datasets.read("mine.tsv")
    with pytest.raises(ValueError, match="passwd"):
        datasets.read("../../etc/passwd")


def test_a_pickle_in_the_place_of_an_array_is_not_opened(copy):
    out = io.BytesIO()
    np.savez(out, images=np.array([{"a": 1}], dtype=object), labels=np.zeros(1))
    (copy / "digits.npz").write_bytes(out.getvalue())
    sums = (copy / "SHA256SUMS").read_text()
    old = hashlib.sha256((DATA / "digits.npz").read_bytes()).hexdigest()
    (copy / "SHA256SUMS").write_text(sums.replace(old, hashlib.sha256(out.getvalue()).hexdigest()))
    with pytest.raises(ValueError, match="allow_pickle"):
        datasets.digits()


def test_the_files_are_found_beside_the_package_and_inside_it(tmp_path, monkeypatch):
    assert datasets._folder().samefile(DATA)
    installed = tmp_path / "site" / "labkit"
    shutil.copytree(DATA, installed / "data")
    monkeypatch.setattr(datasets, "__file__", str(installed / "datasets.py"))
    assert datasets._folder() == installed / "data"
    assert datasets.path("digits.npz") == installed / "data" / "digits.npz"


def test_data_is_read_without_torch():
    code = "import sys; from labkit import datasets as d; d.places(); d.split(9); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"


def test_each_data_file_has_its_row_and_its_script():
    sums = dict(reversed(line.split()) for line in (DATA / "SHA256SUMS").read_text().splitlines())
    kept = {p.name for p in DATA.iterdir() if p.suffix in (".tsv", ".csv", ".npz", ".jit")}
    rows = readme_rows()
    assert kept == set(sums) == set(rows)
    for name, row in rows.items():
        content = (DATA / name).read_bytes()
        assert sums[name] == row[-1] == hashlib.sha256(content).hexdigest(), name
        assert row[2] == str(len(content)), name
        assert row[5] == "by hand" or (DATA / row[5]).is_file(), name


def test_the_row_of_a_file_names_the_lessons_that_read_it():
    rows = readme_rows()
    for source in (ROOT / "notebooks" / "src").glob("[0-9][0-9]_*.md"):
        text = source.read_text(encoding="utf-8")
        calls = {"places(": "places.tsv", "digits(": "digits.npz", "voice_detector(": "silero_vad.jit",
                 "messages(": "messages.tsv"}
        for call, name in calls.items():
            listed = source.name[:2] in rows[name][6]
            used = f"datasets.{call}" in text
            assert listed or not used, f"{source.name} reads {name}: add it to its row in data/README.md"


def test_a_spreadsheet_program_reads_the_places():
    rows = list(csv.DictReader((DATA / "places.tsv").open(encoding="utf-8", newline=""), delimiter="\t"))
    assert [tuple(row.values()) for row in rows] == [tuple(place) for place in datasets.places()]


def test_a_split_is_the_same_everywhere():
    parts = datasets.split(12, val=0.25, test=0.25)
    order = sorted(range(12), key=lambda row: hashlib.sha256(f"0:{row}".encode()).hexdigest())
    assert parts == (sorted(order[6:]), sorted(order[3:6]), sorted(order[:3]))
    assert datasets.split(12, val=0.25, test=0.25, seed=1) != parts
    names = [place.en for place in datasets.places("union")]
    digest = hashlib.sha256("\n".join(datasets.split(names).test).encode()).hexdigest()
    assert digest[:16] == "4839d68cf040d5e7"  # another digest is another test set: results would not compare


def test_a_split_loses_nothing_and_shares_nothing():
    unions = datasets.places("union")
    train, val, test = datasets.split(unions, key=lambda place: place.en)
    assert sorted([*train, *val, *test]) == sorted(unions)
    assert len(val) == len(test) == round(0.1 * len(unions))
    names = [{place.en for place in part} for part in (train, val, test)]
    assert sum(map(len, names)) == len(set.union(*names))
    # Without the key the same English name does land on both sides: that is what the key is for.
    plain = datasets.split(unions)
    assert {place.en for place in plain.train} & {place.en for place in plain.test}


def test_the_order_of_the_rows_does_not_move_them():
    unions = datasets.places("union")
    before = datasets.split(unions, key=lambda place: place.en)
    after = datasets.split(unions[::-1], key=lambda place: place.en)
    assert sorted(before.test) == sorted(after.test)


@pytest.mark.parametrize("shares", [{"val": -0.1}, {"test": 1.0}, {"val": 0.5, "test": 0.5}])
def test_impossible_shares_are_refused(shares):
    with speaking("en"), pytest.raises(ValueError, match="shares"):
        datasets.split(10, **shares)


def test_rows_without_a_stable_value_need_a_key():
    rows = [np.zeros(3), np.ones(3)]
    with speaking("en"), pytest.raises(TypeError, match=r"ndarray.*split\(len\(rows\)\)"):
        datasets.split(rows)
    with pytest.raises(TypeError):
        datasets.split([(1, object())])
    assert sum(map(len, datasets.split(rows, key=lambda row: float(row.sum())))) == 2


def test_examples_in_the_docstrings_hold():
    assert doctest.testmod(datasets).failed == 0
