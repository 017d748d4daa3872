"""The project's report card and its verifier: what honest work earns, and each way to cheat that we could think of."""

import contextlib
import csv
import json
import random
import re
import sys
import textwrap
import time
from pathlib import Path

import nbformat
import pytest
import torch

from labkit import _card_check, _card_marks, _card_runs, _card_verify, _handed_in, _project_host, report_card
from labkit import _classroom_board as boards
from labkit import _project_trials as trials
from labkit import _statistics as statistics
from labkit import transliteration as tl
from labkit._project_trials import NAIVE, PROJECT, Candidate, Setting, TrainingFailedError
from labkit.language import speaking

linux = pytest.mark.skipif(sys.platform != "linux", reason="walls are Linux's")


@pytest.fixture(autouse=True)
def english():
    with speaking("en"):
        yield


# a learner's function as text

LIMIT, KIND, WEIGHTS = 0.5, torch.float32, torch.zeros(3)


def shorter(value):
    return value if value < LIMIT else shorter(value / 2)


class Wider(tl.Transliterator):
    """Comments and texts stay."""

    def extra(self):
        return shorter(2.0)


def train(names, seed):
    torch.manual_seed(seed)
    return Wider().to(KIND)


def with_weights(names, seed):
    return WEIGHTS


def nested(names, seed):
    def inner():
        return WEIGHTS.sum()

    return inner()


def test_a_function_takes_along_what_it_uses_and_no_more():
    text = _handed_in.text_of(train)
    again = _handed_in.load(text, "train")
    assert again is not train
    model = again(None, 1)
    assert type(model).__name__ == "Wider"
    assert model.extra() == 0.25
    assert "Comments and texts stay." in text
    assert "pytest" not in text
    assert "WEIGHTS" not in text


@pytest.mark.parametrize("function", [with_weights, nested])
def test_objects_made_before_are_refused_by_name(function):
    with pytest.raises(_handed_in.HandInError, match="uses WEIGHTS, a Tensor"):
        _handed_in.text_of(function)


@pytest.mark.parametrize(("thing", "words"), [
    (3, "Hand in a function"), (torch.nn.Linear, "Hand in a function"), (lambda names, seed: None, "cannot be found"),
])  # fmt: skip
def test_what_is_no_function_with_a_text_is_refused(thing, words):
    with pytest.raises(_handed_in.HandInError, match=words):
        _handed_in.text_of(thing)


def in_a_cell(source: str, name: str = "train"):
    """``name`` as it would be in a notebook: its cell is known to linecache, its module is __main__."""
    import linecache

    file = f"<cell {abs(hash(source))}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space = {"__name__": "__main__"}
    exec(compile("".join("\n" if line.startswith("%") else line for line in source.splitlines(keepends=True)), file,
                 "exec"), space)  # fmt: skip
    return space[name]


def test_a_cell_with_magics_gives_its_functions():
    train = in_a_cell("%matplotlib inline\nSTEPS = [1, 2]\ndef train(names, seed):\n    return STEPS\n")
    assert _handed_in.load(_handed_in.text_of(train), "train")(None, 0) == [1, 2]


def test_variables_of_the_function_are_not_those_of_the_notebook():
    source = ("import torch\nmodel = torch.zeros(3)\nloss = object()\n"
              "def train(names, seed, *, rate: float = 0.1):\n    model = torch.ones(2)\n"
              "    for loss in names:\n        model = model + loss\n    return [model for model in (model,)][0]\n")
    text = _handed_in.text_of(in_a_cell(source))
    assert "zeros" not in text
    assert _handed_in.load(text, "train")([1, 2], 0).tolist() == [4, 4]


def test_weights_written_into_the_text_find_no_room():
    source = f"def train(names, seed):\n    return {'0' * _handed_in.LONGEST_BYTES!r}\n"
    with pytest.raises(_handed_in.HandInError, match="Data and trained weights"):
        _handed_in.text_of(in_a_cell(source))
    import lzma

    names = sorted(bn for part in tl.names() for bn, _ in part)
    packed = lzma.compress(bytes(b for name in names for b in [0, *map(tl.BENGALI.index, name)]), preset=9)
    assert 1.25 * len(packed) > 1.2 * _handed_in.LONGEST_BYTES  # in base 85, and without a line of code


def test_another_name_for_a_function_is_refused():
    source = "def first(x):\n    return x\nother = first\ndef train(names, seed):\n    return other(1)\n"
    with pytest.raises(_handed_in.HandInError, match="other was defined as first"):
        _handed_in.text_of(in_a_cell(source))


def test_the_notebook_must_hold_what_was_measured(tmp_path):
    text = "def helper():\n    return 1\n\ndef train(names, seed):\n    return helper()\n"
    cells = ["# another layout\ndef helper():\n\n    return 1", "def train(names, seed):\n    return helper()  # mine"]
    path = tmp_path / "11.ipynb"
    for source, missing in ((cells, []), (cells[:1], ["train"]), ([*cells, "def helper():\n    return 2"], ["helper"])):
        nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in source]), path)
        assert _handed_in.missing_in(text, path) == missing


# a world without training: what each candidate takes and how well it writes is said by the test


class World:
    """``seconds`` and ``cer`` by candidate, with a little noise; ``operators`` by candidate."""

    def __init__(self, seconds=(3.0, 1.0), cer=(0.10, 0.10), operators=(6000, 2000), counted_cer=0.0):
        self.counted_cer = counted_cer  # how much worse the function writes where operators are counted
        self.of = {NAIVE: (seconds[0], cer[0], operators[0]), PROJECT: (seconds[1], cer[1], operators[1])}
        self.noise = random.Random(0)
        torch.manual_seed(0)
        self.model = tl.Transliterator().eval()

    def train(self, one, run, setting, names, seed, *, count=False):
        assert not (set(names.train) | set(names.val)) & set(names.test)
        seconds, cer, operators = self.of[one.label]
        cer += self.counted_cer if count and one.label == PROJECT else 0
        return {"seconds": seconds * self.noise.uniform(0.99, 1.01), "cer": cer + self.noise.uniform(-0.005, 0.005),
                "operators": operators if count else None, "model": self.model}  # fmt: skip


@pytest.fixture
def world(monkeypatch):
    def use(**how) -> World:
        one = World(**how)
        monkeypatch.setattr(trials, "train", one.train)
        return one

    use()
    return use


@pytest.fixture(scope="module")
def card():
    """An honest card, made once in the world without training."""
    with pytest.MonkeyPatch.context() as patch, speaking("en"):
        patch.setattr(trials, "train", World().train)
        return report_card.make(train, say=None)


def verified(card, **options):
    return _card_verify.verify(card, run=None, **options)


def test_an_honest_card_fits_together_and_comes_back_from_its_file(card, tmp_path):
    assert _card_check.faults(card.content) == []
    assert card.verdict == "faster"
    assert card.ratio[0] == pytest.approx(3, rel=0.05)
    path = card.save(tmp_path / "report_card.json")
    assert report_card.read(path).content == json.loads(json.dumps(card.content))
    assert path.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
    assert card.content["machine"]["torch"] == torch.__version__.split("+")[0] or card.content["machine"]["torch"]
    assert card.content["seeds"] == list(range(6))


@pytest.mark.parametrize("language", ["bn", "en"])
def test_a_card_is_shown_in_words_table_and_picture(card, language):
    with speaking(language):
        text, page, figure = str(card), card._repr_html_(), card.figure()
        assert len(text.splitlines()) == 3
        assert page.count("<tr>") == 4
        assert figure.alt == " ".join(text.splitlines())
        assert len(figure.png()) > 5000
        assert ("ক্যারেক্টার" in text) is (language == "bn")


def test_a_quick_card_says_so_and_is_not_accepted(world, tmp_path):
    quick = report_card.make(train, quick=True, say=None)
    assert quick.content["names"]["train"] == report_card.QUICK_PAIRS
    assert "quick card" in str(quick)
    with pytest.raises(report_card.CardError, match="proves nothing"):
        report_card.verify(quick, walls=False)


def test_two_rounds_are_too_few(world):
    with pytest.raises(ValueError, match="3 rounds"):
        report_card.make(train, rounds=2, say=None)


# tampering that shows without running anything


def change(content, path, value):
    *way, last = path
    for key in way:
        content = content[key]
    content[last] = value(content[last]) if callable(value) else value


@pytest.mark.parametrize(("path", "value", "words"), [
    (("ratios", PROJECT), lambda r: [2 * x for x in r], "ratio .* does not follow"),
    (("ratios", PROJECT, 0), 9.9, "ratio 9.9 does not follow"),
    (("verdicts", PROJECT), "same", "verdict same does not follow"),
    (("measurements", PROJECT, "result", "median_s"), 0.1, "median of project"),
    (("rounds_s", PROJECT, 0), [0.01, 0.01], "ratio .* does not follow"),
    (("rounds_s", PROJECT, 0, 0), -1.0, "above 0"),
    (("rounds_s", PROJECT, 0, 0), float("nan"), "above 0"),
    (("rounds_s", NAIVE), lambda rounds: rounds[:2], "3 whole rounds"),
    (("naive_first",), lambda first: [not one for one in first[:2]], "3 whole rounds"),
    (("cer", PROJECT), [0.01], "one character error rate for each"),
    (("cer", PROJECT, 0), float("nan"), "one character error rate for each"),
    (("cer", "table"), [0.9], "The rule has"),
    (("machine", "cpu"), "", "says cpu"),
    (("machine", "threads"), None, "says threads"),
    (("function", "text"), "def other(): pass", "does not define train"),
    (("function", "text"), "def train(:", "not Python"),
    (("function", "text"), lambda text: text + "# " + "1" * 30_000, "longer than"),
    (("function", "text"), "x = " + "1" * 9000, "not Python"),
    (("function", "text"), "x = " + "(" * 5000, "not Python"),
    (("facts", PROJECT, "operators"), 0.5, "operators"),
    (("kind",), 3, "kind is missing or of another kind"),
    (("cer", "table"), "x", "does not hold what it should"),
    (("facts",), {}, "does not hold what it should"),
])  # fmt: skip
def test_numbers_that_do_not_fit_together_are_named(card, tmp_path, path, value, words):
    content = json.loads(json.dumps(card.content))
    change(content, path, value)
    file = tmp_path / "card.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(report_card.CardError, match=words):
        report_card.read(file)


@pytest.mark.parametrize("name", list(_card_check._FIELDS))
def test_a_missing_field_is_named(card, name):
    content = json.loads(json.dumps(card.content))
    del content[name]
    assert any(name in fault for fault in _card_check.faults(content))


@pytest.mark.parametrize("text", ["", "[1, 2]", "{}", "\x00\x01", "[" * 100_000])
def test_a_file_that_is_no_card_is_refused_kindly(tmp_path, text):
    file = tmp_path / "card.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(report_card.CardError, match="report card"):
        report_card.read(file)


# claims that only running again can refute


def retold(card, **numbers):
    """A card whose numbers fit together and are not what was measured: times, rates and counts made up as a whole."""
    content = json.loads(json.dumps(card.content))
    rounds = content["rounds_s"]
    rounds[PROJECT] = [tuple(one / numbers.get("times_faster", 1) for one in pair) for pair in rounds[PROJECT]]
    for label in (NAIVE, PROJECT):
        content["cer"][label] = [rate + numbers.get(f"cer_{label}", 0) for rate in content["cer"][label]]
    content["facts"][PROJECT]["operators"] //= numbers.get("fewer", 1)
    ratio = statistics.ratio_interval(rounds[NAIVE], rounds[PROJECT], content["naive_first"])
    content["ratios"][PROJECT] = [ratio.value, ratio.low, ratio.high]
    content["verdicts"][PROJECT] = statistics.verdict(ratio, trials.MARGIN)
    times = [one for pair in rounds[PROJECT] for one in pair]
    median = statistics.median_and_iqr(times)[0]
    content["measurements"][PROJECT]["result"]["median_s"] = median
    assert _card_check.faults(content) == []
    return report_card.ReportCard(content)


def test_an_honest_card_is_accepted_with_full_marks(world, card):
    done = verified(card)
    assert done.refusals == []
    assert done.points == _card_marks.MOST == sum(most for _, most, _ in done.marks)
    assert "Accepted" in str(done)
    assert done.notes == []


@pytest.mark.parametrize(("numbers", "words"), [
    ({"times_faster": 2.0}, "ratio could not be repeated"),
    ({"times_faster": 1.3}, "ratio could not be repeated"),
    ({"cer_project": -0.06}, "error rate .* could not be repeated"),
    ({"cer_naive": 0.2}, "naive training's character error rate"),
    ({"cer_naive": 0.04}, "error rate .* could not be repeated"),  # makes the gap look better
    ({"fewer": 2}, "calls 1,000 operators"),
])  # fmt: skip
def test_a_card_that_was_rewritten_as_a_whole_is_refused(world, card, numbers, words):
    done = verified(retold(card, **numbers))
    assert not done.accepted
    assert done.points == 0
    assert any(re.search(words, refusal) for refusal in done.refusals), done.refusals


def test_a_modest_card_is_accepted(world, card):
    """Claiming less than is found harms nobody: a busy laptop, a quiet grading machine."""
    assert verified(retold(card, times_faster=0.7, cer_project=0.02)).accepted


def test_on_another_machine_speed_is_verified_anew_and_both_are_shown(card, world):
    content = json.loads(json.dumps(card.content))
    content["machine"]["cpu"] = "Another Processor 3000"
    world(seconds=(3.0, 2.0))
    done = verified(report_card.ReportCard(content))
    assert done.accepted
    assert "another machine (cpu differ)" in done.notes[0]
    assert "3.0" in str(done)
    assert "1.5" in str(done)
    assert done.marks[3][0] == 2  # by what was found here, not by what was claimed
    world(seconds=(3.0, 2.0))
    assert not verified(card).accepted  # on the same machine that is a number that cannot be repeated


def test_a_model_that_does_not_learn_from_its_pairs_is_refused(card, world):
    world(cer=(0.10, 0.95))
    done = verified(card)
    assert "does not learn from the pairs" in done.refusals[0]


def test_doing_nothing_where_operators_are_counted_is_noticed(card, world):
    world(counted_cer=0.3)
    assert "Where operators were counted" in verified(card).refusals[0]


def test_work_that_the_counter_does_not_see_earns_nothing_for_counts(world):
    world(operators=(6000, 100))
    done = verified(report_card.make(train, say=None))
    assert done.accepted
    assert "Hardly any operators" in done.notes[0]
    assert done.marks[2][0] == 0


@pytest.mark.parametrize(("how", "points"), [
    ({}, (4, 6, 4, 6)),
    ({"cer": (0.10, 0.12)}, (4, 3, 4, 6)),
    ({"cer": (0.10, 0.20)}, (4, 0, 0, 0)),  # faster but worse is no gain
    ({"seconds": (3.0, 1.8)}, (4, 6, 4, 4)),
    ({"seconds": (3.0, 3.0)}, (4, 6, 4, 0)),
    ({"operators": (6000, 4000)}, (4, 6, 2, 6)),
    ({"operators": (6000, 6000)}, (4, 6, 0, 6)),
])  # fmt: skip
def test_marks_follow_from_what_was_found(world, how, points):
    world(**how)
    done = verified(report_card.make(train, say=None))
    assert done.accepted
    assert tuple(got for got, _, _ in done.marks) == points


def test_letters_are_exchanged_and_names_cut_anew():
    known, draws = tl.names(), [_card_verify.fresh(random.Random(seed)) for seed in (1, 2)]
    for names in draws:
        assert [len(part) for part in names] == [len(part) for part in known]
        assert sorted(len(p.bn) for part in names for p in part) == sorted(len(p.bn) for part in known for p in part)
        assert len({p for part in names for p in part}) == len({p for part in known for p in part})
        assert len(set(names.train) & set(known.train)) < 5
        assert not {p.bn for p in names.train} & {p.bn for p in names.test}
    assert len(set(draws[0].train) & set(draws[1].train)) < 5
    assert _card_verify.fresh(random.Random(1)) == draws[0]


# the class board and the command


def test_cards_merge_into_the_class_board(card, tmp_path):
    for who in ("রহিমা", "karim"):
        (tmp_path / "cards" / who).mkdir(parents=True)
        card.save(tmp_path / "cards" / who / "report_card.json")
    plain = {key: value for key, value in card.content.items() if key != "cer"}  # lab.compare's card of another lesson
    (tmp_path / "cards" / "other.json").write_text(json.dumps(plain), encoding="utf-8")
    page, refused = boards.board(tmp_path / "cards", tmp_path)
    assert refused == []
    rows = list(csv.reader((tmp_path / "board.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert [row[0] for row in rows[1:]] == ["project / naive"] * 3
    assert len({row[7] for row in rows[1:]}) == 3  # three people, although two files have one name
    assert sorted(row[8] for row in rows[1:]) == ["", f"{card.cer(PROJECT):.3f}", f"{card.cer(PROJECT):.3f}"]
    assert "রহিমা" not in page.read_text(encoding="utf-8")


def test_the_command_goes_through_many_cards_and_writes_a_table(card, world, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_card_runs, "runner", lambda **_: contextlib.nullcontext())
    card.save(tmp_path / "good.json")
    retold(card, times_faster=3).save(tmp_path / "false.json")
    (tmp_path / "broken.json").write_text("{}")
    files = [str(tmp_path / f"{name}.json") for name in ("good", "false", "broken")]
    assert report_card.main(["verify", *files, "--csv", str(tmp_path / "marks.csv"), "--lang", "en"]) == 1
    rows = list(csv.reader((tmp_path / "marks.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert [row[:3] for row in rows[1:]] == [["good", "20", "20"], ["false", "0", "20"], ["broken", "0", "20"]]
    assert "could not be repeated" in rows[2][3]
    assert report_card.main(["verify", files[0], "--lang", "en"]) == 0
    assert "Accepted" in capsys.readouterr().out


def test_whoever_may_not_grade_is_told_how_to_verify_a_card_of_their_own(card, tmp_path, capsys, monkeypatch):
    import os

    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)  # as in Colab
    assert report_card.main(["verify", str(card.save(tmp_path / "card.json")), "--lang", "en"]) == 1
    assert "add --mine" in capsys.readouterr().err


# real processes


def handed_in(source: str) -> Candidate:
    return Candidate(PROJECT, textwrap.dedent(source).strip() + "\n", "train")


FEW = tl.names(train=64)
QUIET = Setting(rounds=3, epochs=1, threads=1, data=lambda k: FEW, seed=lambda k: k)
HONEST = """
    def train(names, seed):
        from labkit import transliteration
        print("hello", len(names.test))
        return transliteration.train_naive(names, seed=seed, epochs=1)
"""


@pytest.fixture(scope="module")
def host():
    with _project_host.Host() as one:
        yield one


@pytest.fixture(scope="module")
def closed_in():
    with _card_runs.runner(walls=True, limit_s=60, memory_gb=3, as_root=True) as run:
        yield run


def trained(source: str, run, names=FEW, **options):
    return trials.train(handed_in(source), run, QUIET, names, 1, **options)


def job_of(source: str) -> dict:
    return {"source": source, "name": "train", "train": [], "val": [], "seed": 0, "epochs": 1, "threads": 1}


@pytest.mark.slow
def test_a_training_in_its_own_process_is_the_training_here(host):
    torch.manual_seed(0)
    there = trained(HONEST, host.run)
    here = tl.train_naive(FEW, seed=1, epochs=1)
    for name, weight in there["model"].state_dict().items():
        torch.testing.assert_close(weight, here.state_dict()[name], rtol=1e-4, atol=1e-5)
    assert there["cer"] == pytest.approx(tl.evaluate(here, FEW.test), abs=0.02)
    naive = trials.train(Candidate(NAIVE), host.run, QUIET, FEW, 1, count=True)
    assert naive["operators"] == trained(HONEST, host.run, count=True)["operators"] > 1000


@pytest.mark.slow
@pytest.mark.parametrize(("source", "words"), [
    ("def train(names, seed): return None", "must return the model"),
    ("def train(names, seed): raise KeyError('batch')", "KeyError"),
    ("def train(names, seed):\n    import os\n    os._exit(0)", "without a model"),
    ("def train(names, seed):\n    import sys\n    sys.exit(3)", "SystemExit"),
    ("def train(names, seed):\n    import torch\n    return torch.nn.Linear(2, 2)", "not those of a Transliterator"),
    ("def train(names, seed):\n    from labkit import transliteration as tl\n    return tl.Transliterator(width=256)",
     "not those of a Transliterator"),
    ("def train(names, seed):\n    from labkit import transliteration as tl\n    model = tl.Transliterator()\n"
     "    model.head.bias.data.fill_(float('nan'))\n    return model", "not finite"),
])  # fmt: skip
def test_a_function_that_fails_says_why(host, source, words):
    with pytest.raises(TrainingFailedError, match=words):
        trained(source, host.run)


@pytest.mark.slow
def test_a_training_that_never_ends_is_ended_and_the_next_one_runs(host):
    assert host.run(job_of("def train(names, seed):\n    while True: pass\n"), 2.0) == {"timeout": 2.0}
    assert trained(HONEST, host.run)["cer"] > 0


CLOCK = """
    def train(names, seed):
        import time
        time.sleep(1.0)
        for name in ("perf_counter", "monotonic", "time", "perf_counter_ns", "monotonic_ns"):
            setattr(time, name, lambda: 0)
        from labkit import transliteration
        return transliteration.Transliterator()
"""
KEPT = """
    def train(names, seed):
        import os, tempfile, torch
        from labkit import transliteration
        file = os.path.join(tempfile.gettempdir(), "labkit-test-kept.pt")
        model = transliteration.Transliterator()
        if os.path.exists(file):
            model.load_state_dict(torch.load(file, weights_only=True))
            return model
        model = transliteration.train_naive(names, seed=seed, epochs=1)
        torch.save(model.state_dict(), file)
        return model
"""
PEEKS = """
    def train(names, seed):
        from labkit import transliteration
        everything = [pair for part in transliteration.names() for pair in part]
        return transliteration.train_naive(names._replace(train=everything[:64]), seed=seed, epochs=1)
"""
SABOTAGE = """
    def train(names, seed):
        import time
        from labkit import transliteration
        whole = transliteration.train_naive
        transliteration.train_naive = lambda *a, **k: time.sleep(9)
        return whole(names, seed=seed, epochs=1)
"""


@pytest.mark.slow
def test_clocks_that_the_function_stops_run_on(host):
    assert trained(CLOCK, host.run)["seconds"] >= 1.0


@pytest.mark.slow
def test_what_is_done_to_the_naive_training_stays_with_the_function(host):
    trained(SABOTAGE, host.run)
    assert trials.train(Candidate(NAIVE), host.run, QUIET, FEW, 1)["seconds"] < 9


@linux
@pytest.mark.slow
def test_behind_the_walls_clocks_run_on_and_nothing_is_kept(closed_in):
    assert trained(HONEST, closed_in)["cer"] > 0
    assert trained(CLOCK, closed_in)["seconds"] >= 1.0
    first, second = (trained(KEPT, closed_in, names=_card_verify.fresh(random.Random(k), 64)) for k in (1, 2))
    assert not torch.equal(first["model"].head.weight, second["model"].head.weight)  # trained, not taken from a file


def held(closed_in, what: str) -> bool:
    said = closed_in(job_of("def train(names, seed):\n    raise ValueError\n"), 30)
    return bool((said.get("contained") or {}).get(what))


@linux
@pytest.mark.slow
def test_behind_the_walls_the_names_cannot_be_read(closed_in):
    if not held(closed_in, "files"):
        pytest.skip("no Landlock: files are not held here")
    with pytest.raises(TrainingFailedError, match="DataError|PermissionError"):
        trained(PEEKS, closed_in)


@linux
@pytest.mark.slow
@pytest.mark.parametrize(("source", "words"), [
    ("def train(names, seed):\n    import os\n    os._exit(0)", "without a model"),
    ("def train(names, seed):\n    return bytearray(8 << 30)", "MemoryError"),
    ("def train(names, seed):\n    import urllib.request\n    urllib.request.urlopen('http://192.0.2.1', timeout=3)",
     "URLError"),
])  # fmt: skip
def test_behind_the_walls_a_function_gets_no_further(closed_in, source, words):
    with pytest.raises(TrainingFailedError, match=words):
        trained(source, closed_in)


@linux
@pytest.mark.slow
def test_what_the_function_leaves_running_ends_with_it(closed_in):
    if not held(closed_in, "processes"):
        pytest.skip("no namespaces: processes are not held here")
    source = """
        def train(names, seed):
            import os
            from labkit import transliteration
            if os.fork() == 0:
                os.setsid()
                os.execv("/bin/sleep", ["sleep", "119.77"])  # would burn processor time while the naive one is measured
            return transliteration.Transliterator()
    """
    assert not sleepers()
    trained(source, closed_in)
    until = time.monotonic() + 5
    while sleepers() and time.monotonic() < until:
        time.sleep(0.1)
    assert not sleepers()


def sleepers() -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [entry.parent.name] if b"119.77" in entry.read_bytes() else []
    return found


FORGES = """
    def train(names, seed):
        import json, os, sys, time
        from labkit import _project_run, transliteration
        frame = sys._getframe()
        while "token" not in frame.f_locals:
            frame = frame.f_back
        time.sleep(1.0)
        said = {"weights": _project_run.packed(transliteration.Transliterator()), "seconds": 0.001, "timeout": False,
                "operators": 7, "last": True}
        os.write(3, json.dumps([frame.f_locals["token"], said]).encode() + b"\\n")
        time.sleep(60)
"""


@linux
@pytest.mark.slow
def test_an_answer_forged_by_the_function_does_not_set_the_watch(closed_in):
    assert 1.0 <= trained(FORGES, closed_in)["seconds"] < 30


@linux
@pytest.mark.slow
def test_behind_the_walls_time_is_limited():
    with (_card_runs.runner(walls=True, limit_s=1, memory_gb=3, as_root=True, say=str) as run,
          pytest.raises(TrainingFailedError, match="Not finished after 6 seconds")):  # 5 for walls and copying
        trained("def train(names, seed):\n    while True: pass\n", run)


LEARNS_NOTHING = """
    def train(names, seed):
        from labkit import transliteration
        return transliteration.train_naive(transliteration.names(train=1200), seed=seed, epochs=4)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_model_that_saw_the_held_out_names_is_refused_by_running_it(host):
    """For real: it writes the known names well, and names in other letters not at all."""
    known = trained(LEARNS_NOTHING, host.run)["cer"]
    foreign = trained(LEARNS_NOTHING, host.run, names=_card_verify.fresh(random.Random(5), 64))["cer"]
    assert known < 0.4
    assert foreign > 0.8


IN_ONE_CALL = """
    import torch
    import torch.nn.functional as F
    from labkit import transliteration as tl

    class Whole(tl.Transliterator):
        def forward(self, bengali, english):
            read, state = self.encode(bengali)
            here, _ = self.decoder(self.dropout(self.letters_out(english)), state)
            score = here @ read.transpose(1, 2) / self.width**0.5
            weight = score.masked_fill((bengali == tl.PAD)[:, None], float("-inf")).softmax(-1)
            both = torch.cat([here, weight @ read], dim=-1)
            return self.head(self.dropout(torch.tanh(self.mix(both))))

    def train(names, seed):
        torch.manual_seed(seed)
        model = Whole()
        bn, en = zip(*names.train, strict=True)
        bengali, english = tl.letters_in(bn), tl.letters_out(en)
        optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, fused=True)
        batches = [rows for _ in range(4) for rows in torch.randperm(len(bn)).split(64)]
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=len(batches))
        for rows in batches:
            logits = model(bengali[rows], english[rows, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), english[rows, 1:].flatten(), ignore_index=tl.PAD)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        return model
"""


@linux
@pytest.mark.timing
@pytest.mark.timeout(900)
def test_the_whole_way_from_a_function_to_a_verified_card(tmp_path):
    """Quick sizes, real trainings, real walls: an honest card is accepted, the same card with better numbers is not."""
    card = report_card.make(in_a_cell(textwrap.dedent(IN_ONE_CALL)), quick=True, say=None)
    assert card.ratio[0] > 1.2
    assert card.content["facts"][PROJECT]["operators"] < card.content["facts"][NAIVE]["operators"] / 1.5
    quietly = {"quick": True, "as_root": True, "seed": 3, "say": lambda line: None}
    done = report_card.verify(card.save(tmp_path / "card.json"), **quietly)
    assert done.refusals == []
    assert done.points >= 4
    better = report_card.verify(retold(card, times_faster=50), **quietly)  # beyond any interval of so few rounds
    assert "ratio could not be repeated" in " ".join(better.refusals)
    assert better.points == 0


@pytest.mark.parametrize("language", ["bn", "en"])
def test_the_guides_marks_are_those_that_are_given(language):
    guide = Path(__file__).parent.parent / f"notebooks/guides/{language}/project.md"
    rows = re.findall(r"^\|[^|]*\|([^|]*)\| (\d+) \|$", guide.read_text(encoding="utf-8"), re.MULTILINE)
    told = [(re.findall(r"\d\.\d+", when), int(marks)) for when, marks in rows]
    marks = _card_marks
    given = [(marks.AS_GOOD, 6), (marks.ALMOST, 3), *marks.FEWER, *marks.FASTER]
    assert told[0] == ([], 4)
    assert [(float(number), points) for (number,), points in told[1:]] == given
    best = {"cer": {NAIVE: 0.1, PROJECT: 0.1}, "ratio": [9, 9, 9], "operators": {NAIVE: 9, PROJECT: 1}}
    assert sum(points for points, _, _ in marks.marks(best)) == marks.MOST
    assert str(_handed_in.LONGEST_BYTES) in guide.read_text(encoding="utf-8").translate(
        str.maketrans("০১২৩৪৫৬৭৮৯", "0123456789"))
