"""Lesson 11: its checks know right from wrong, every way trains the same model, a killed training loses nothing."""

from __future__ import annotations

import dataclasses
import itertools
import math
import signal
import subprocess
import sys
import textwrap
import time
import types
import unicodedata

import pytest
import torch
import torch.nn.functional as F

import labkit as lab
from labkit import datasets
from labkit._model_parts import gelu, gelu_by_sigmoid
from labkit.lessons import capstone_view, climbing, l11, ladder, name_batches, name_gpt

pytestmark = pytest.mark.usefixtures("english")
TINY = l11.Size(16, 2, 2, batch=16, rate=3e-3)
SEEDS = range(5)


# --- names and batches --------------------------------------------------------------------------------------------


def test_names_are_split_without_overlap_and_come_back():
    names = l11.names()
    parts = [set(names.train), set(names.val), set(names.test)]
    assert set.union(*parts) == {place.bn for place in datasets.places()}
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert all(names.decode(names.encode(name)) == name for name in names.val)
    assert names.vocabulary == len(set("".join(set.union(*parts)))) + 1
    assert names.length == 1 + max(map(len, set.union(*parts)))


def test_one_name_of_the_dataset_by_hand():
    names = l11.names()
    tokens, targets = l11.NameDataset(["কখ"], names)[0]
    ka, kha = names.encode("কখ")
    assert tokens[:4].tolist() == [0, ka, kha, 0]
    assert targets[:4].tolist() == [ka, kha, 0, name_gpt.IGNORED]
    assert set(targets[3:].tolist()) == {name_gpt.IGNORED}


def test_every_way_gets_the_same_names_in_the_same_order():
    loaded = name_batches.loaded(16, seed=3)
    planned = l11.plan(16, seed=3)
    per_epoch = len(l11.names().train) // 16
    for _ in range(per_epoch + 2):  # past the end of an epoch
        one, numbers = next(loaded), next(planned)
        other = l11.padded(numbers)
        assert torch.equal(one.tokens, other.tokens)
        assert torch.equal(one.targets, other.targets)


def test_a_plan_may_begin_anywhere():
    whole = list(itertools.islice(l11.plan(64, seed=1), 150))
    for start in (0, 1, 58, 59, 60, 130):
        assert next(l11.plan(64, seed=1, start=start)) == whole[start]
    assert list(l11.steps(start=140, until=150, seed=1)) == whole[140:150]
    assert list(l11.steps(start=9, until=9)) == []
    epochs = [sum(whole[first : first + 59], []) for first in (0, 59)]
    assert all(len(set(epoch)) == len(epoch) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert next(l11.plan(64, seed=2)) != whole[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_hold_everything_and_never_overflow(seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 28, (64,), generator=generator).tolist()
    rows = l11.rows_of(lengths, 32)
    filled = [0] * (max(rows) + 1)
    for length, row in zip(lengths, rows, strict=True):
        filled[row] += length
    assert max(filled) <= 32
    assert len(filled) <= 11 / 9 * math.ceil(sum(lengths) / 32) + 1  # the bound of first fit decreasing, loosely


@pytest.mark.parametrize("seed", SEEDS)
def test_packed_names_have_the_loss_and_the_gradient_of_padded_ones(seed):
    model = l11.network(TINY, seed=seed).double()
    numbers = next(l11.plan(48, seed=seed))
    gradients, losses = [], []
    for batch in (l11.padded(numbers), l11.packed(numbers), l11.packed(numbers[::-1])):
        model.zero_grad()
        loss = model(*batch)
        loss.backward()
        losses.append(loss.item())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-12)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-12)
    assert torch.allclose(gradients[0], gradients[2], atol=1e-12)


def test_packed_names_do_not_see_each_other():
    numbers = next(l11.plan(16, seed=0))
    batch = l11.packed(numbers)
    model = l11.network(TINY)
    with torch.no_grad():
        before = model(batch.tokens, None, batch.places, batch.allowed)
        row = 0
        second = int((batch.places[row] == 0).nonzero()[1])  # where the row's second name begins
        changed = batch.tokens.clone()
        changed[row, 1] = changed[row, 1] % 60 + 1  # a letter of the first name
        after = model(changed, None, batch.places, batch.allowed)
    end = int(batch.allowed[row, 0, second:].any(1).sum()) + second
    assert torch.equal(before[row, second:end], after[row, second:end])
    assert not torch.equal(before[row, 1:second], after[row, 1:second])
    open_mask = torch.ones_like(batch.allowed).tril()
    with torch.no_grad():
        spoiled = model(batch.tokens, None, batch.places, open_mask)
    assert not torch.allclose(spoiled[row, second:end], before[row, second:end])


def test_tokens_in_counts_letters_and_ends():
    numbers = next(l11.plan(32, seed=5))
    assert l11.tokens_in(numbers) == sum(len(l11.names().train[number]) + 1 for number in numbers)
    assert l11.tokens_in(numbers) == int((l11.packed(numbers).targets >= 0).sum())


# --- the ladder ---------------------------------------------------------------------------------------------------


WAYS = {
    "naive": l11.NAIVE, "tensors": l11.Way("tensors", waits=False), "packed": l11.PACKED,
    "sdpa": l11.PACKED.but(attention="sdpa"), "gelu": l11.PACKED.but(fused_gelu=True),
    "recompute": l11.PACKED.but(recompute=True),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in WAYS if name != "naive"])
def test_every_way_has_the_same_losses(name):
    expected = l11.train(l11.NAIVE, TINY, steps=12, every=4)
    found = l11.train(WAYS[name], TINY, steps=12, every=4)
    assert [step for step, _, _ in found.history] == [4, 8, 12]
    losses = [[loss for _, _, loss in run.history] for run in (expected, found)]
    assert losses[1] == pytest.approx(losses[0], abs=2e-4)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.slow
def test_the_compiled_way_has_the_same_losses_and_one_graph():
    expected = l11.train(l11.NAIVE, TINY, steps=12, every=6)
    with lab.graphs.watching() as seen:
        found = l11.train(l11.PACKED.but(compiled=True), TINY, steps=12, every=6)
    assert seen.compiles == 1
    assert found.loss == pytest.approx(expected.loss, abs=1e-3)


def test_bf16_learns_nearly_the_same():
    expected = l11.train(l11.PACKED, TINY, steps=12, every=12)
    found = l11.train(l11.PACKED.but(bf16=True), TINY, steps=12, every=12)
    assert found.loss == pytest.approx(expected.loss, rel=0.02)
    assert found.loss != expected.loss


def test_training_stops_at_the_target_or_when_time_is_over():
    whole = l11.train(l11.PACKED, TINY, steps=40, every=5)
    goal = whole.history[3][2]
    found = l11.train(l11.PACKED, TINY, steps=40, every=5, target=goal)
    assert found.history[-1][0] == 20
    assert found.seconds_to(goal) == found.total_s
    assert found.seconds_to(0.0) == math.inf
    assert l11.train(l11.PACKED, TINY, most_s=0.0).history[-1][0] == 1


def test_training_ends_with_a_loss_that_took_it_all_its_time(monkeypatch):
    losses = iter([3.0, 2.0, 2.0, 2.5, 1.9, 1.0])
    monkeypatch.setattr(ladder.Training, "validation_loss", lambda self: next(losses))
    slow = l11.train(l11.PACKED, TINY, steps=6, every=1, least_s=0.0)  # the first is the lowest so far
    assert [loss for _, _, loss in slow.history] == [3.0]
    ticks = itertools.count()  # the clock is read twice before the first step, and three times in each
    monkeypatch.setattr(ladder, "time", types.SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    losses = iter([3.0, 2.0, 2.0, 2.5, 1.9, 1.0])
    found = l11.train(l11.PACKED, TINY, steps=6, every=1, least_s=9.0)
    assert [loss for _, _, loss in found.history] == [3.0, 2.0, 2.0, 2.5, 1.9]
    assert found.seconds_to(found.loss) == found.total_s


def test_final_way_uses_bf16_only_where_the_machine_has_it(monkeypatch):
    for native in (True, False):
        monkeypatch.setattr(ladder.hardware, "bf16_native", lambda native=native: native)
        assert l11.final().bf16 is native
        assert l11.final().compiled


@pytest.mark.parametrize(("device", "attention"), [("cpu", "written out"), ("cuda", "sdpa")])
def test_final_way_leaves_short_rows_on_a_cpu_to_the_compiler(device, attention, monkeypatch):
    monkeypatch.setattr(ladder.hardware, "device", lambda: torch.device(device))
    assert l11.final().attention == attention


def fake(name, ratio):
    """A rung whose times on a perfect clock have this ratio."""
    step_s = {climbing.BEFORE: 1.0, name: 1.0 / ratio}
    results = [{
        "times": {key: [[s, s]] * 9 for key, s in step_s.items()}, "first_s": step_s,
        "calls": dict.fromkeys(step_s, 1), "orders": [list(step_s)] * 9, "device": "cpu", "threads": 1,
    }]  # fmt: skip
    return l11.turns_compared(results, baseline=climbing.BEFORE)


def test_a_ladder_keeps_what_wins_and_multiplies_only_that(monkeypatch):
    ratios = {"tensor batches": 1.5, "sdpa": 0.5, "fused optimizer": 1.0, "bf16": 1.0, "compiled": 2.0,
              "together": 1.2}
    monkeypatch.setattr(climbing.Ladder, "step", lambda self, way: way)
    monkeypatch.setattr(climbing, "peak_bytes", lambda step, device: 1000)
    monkeypatch.setattr(climbing, "timed", lambda step: 0.5)
    monkeypatch.setattr(climbing.Ladder, "_compare",
                        lambda self, steps, *_: fake(list(steps)[1], ratios[list(steps)[1]]))
    found = climbing.Ladder(TINY)
    rungs = [found.climb(name) for name in ratios]
    assert [rung.kept for rung in rungs] == [True, False, True, False, True, True]
    assert [rung.standing for rung in rungs] == pytest.approx([1.5, 1.5, 1.5, 1.5, 3.0, 3.6])
    assert rungs[1].reaches == pytest.approx(0.75)
    assert found.way == l11.Way("tensors", waits=False, fused=True, **l11.together())
    assert found.way_with("together") == found.way
    assert "Not kept" in str(rungs[1])
    assert "Kept" in str(rungs[4])
    picture = found.figure()
    assert "sdpa: 0.750, not kept" in picture.alt
    assert "3.00" in str(found)


def test_a_real_rung_measures_agreement_and_memory():
    found = climbing.Ladder(TINY, budget_s=0.3)
    rung = found.climb("packed names")
    assert rung.peaks[1] < rung.peaks[0]
    assert rung.found.checked


def test_a_way_that_learns_something_else_is_refused(monkeypatch):
    found = climbing.Ladder(TINY, budget_s=0.3)
    broken = ladder.Training.step
    monkeypatch.setattr(ladder.Training, "step",
                        lambda self, batch: broken(self, batch) + (1.0 if self.way.fused else 0.0))
    with pytest.raises(ValueError, match="fused optimizer"):
        found.climb("fused optimizer")


def test_the_whole_ladder_trains_what_was_kept_to_the_same_loss():
    found = climbing.Ladder(TINY)
    found.rungs = [climbing.Rung("packed names", fake("packed names", 2.0), l11.PACKED, (10, 5), 1.0),
                   climbing.Rung("recompute", fake("recompute", 0.8), l11.PACKED, (5, 3), 2.0)]  # fmt: skip
    runs = l11.whole(found, TINY, steps=20, every=5)
    assert list(runs) == ["naive", "packed names"]
    assert runs["packed names"].loss <= runs["naive"].loss
    assert "packed names" in l11.race(runs).alt


def test_gelu_as_the_compiler_gets_it_is_the_same_function():
    x = torch.linspace(-8, 8, 4001, dtype=torch.float64, requires_grad=True)
    forms = [form(x) for form in (gelu, gelu_by_sigmoid, lambda x: F.gelu(x, approximate="tanh"))]
    slopes = [torch.autograd.grad(form.sum(), x)[0] for form in forms]
    for other in (1, 2):
        torch.testing.assert_close(forms[other], forms[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(slopes[other], slopes[0], rtol=0, atol=1e-12)


# --- what is said -------------------------------------------------------------------------------------------------


def run_of(way, step_s, losses, start_s=0.0):
    history = [(50 * k, start_s + 50 * k * step_s, loss) for k, loss in enumerate(losses, 1)]
    return ladder.Run(way, None, [step_s] * len(losses), history)


def test_answers_say_what_was_measured():
    found = climbing.Ladder(TINY)
    found.rungs = [
        climbing.Rung("packed names", fake("packed names", 2.0), l11.PACKED, (10, 5), 1.0),
        climbing.Rung("recompute", fake("recompute", 0.8), l11.PACKED, (5, 3), 2.0),
        climbing.Rung("compiled", fake("compiled", 1.5), l11.PACKED.but(compiled=True), (5, 3), 2.0, 12.0),
    ]
    assert [rung.price_s for rung in found.rungs] == [0.0, 0.0, 12.0]
    assert found.price_s == 12.0
    assert str(found.rungs[2]).endswith("Its first step took 12.0 s.")
    assert "first step" not in str(found.rungs[0])
    total = l11.turns_compared([{
        "times": {"naive": [[3.0, 3.0]] * 9, "final": [[1.0, 1.0]] * 9}, "first_s": {"naive": 3.0, "final": 1.0},
        "calls": {"naive": 1, "final": 1}, "orders": [["naive", "final"]] * 9, "device": "cpu", "threads": 1,
    }], baseline="naive")  # fmt: skip
    ranked = l11.turns_compared([{
        "times": {"one process": [[1.0, 1.0]] * 9, "two ranks": [[0.8, 0.8]] * 9},
        "first_s": {"one process": 1.0, "two ranks": 1.0}, "calls": {"one process": 1, "two ranks": 1},
        "orders": [["one process", "two ranks"]] * 9, "device": "cpu", "threads": 1,
    }], baseline="one process")  # fmt: skip
    runs = run_of(l11.NAIVE, 0.3, [3.0, 2.5, 2.0]), run_of(l11.PACKED, 0.1, [3.0, 2.5, 2.0], 10.0)
    costs = [lab.rental(step_s, 36_000, rate_per_hour=100) for step_s in (0.3, 0.1)]
    text = str(l11.Answers(found, total, ranked, runs, costs))
    assert "3.00 times as fast" in text
    assert "Kept: packed names, compiled" in text
    assert "slower here: recompute" in text
    assert "1.50 times" in text
    assert "45.0 s to its last loss" in text
    assert "25.0 s to the same loss" in text
    assert "300.00 BDT the first way and 100.00 BDT the last: 200.00 BDT saved" in text
    assert "Data parallel on top: two ranks is 1.25 times" in text
    never = run_of(l11.PACKED, 0.1, [3.0, 2.9])
    assert "never to the same loss" in str(l11.Answers(found, total, ranked, (runs[0], never), costs))
    assert "not in this training" in str(l11.Answers(found, total, ranked, runs, costs[::-1]))
    found.rungs[2] = dataclasses.replace(found.rungs[2], found=fake("compiled", 0.95))
    assert found.rungs[2].price_s == found.price_s == 0.0  # dropped: nobody pays for it
    assert "no part in that: nothing showed that it makes a step faster (0.950 times)" in str(
        l11.Answers(found, total, ranked, runs, costs))  # fmt: skip
    team = climbing.Rung("together", fake("together", 1.2), l11.final(), (5, 3), 2.0, 9.0)
    found.rungs.append(team)
    assert found.price_s == 9.0
    assert "(0.950 times). Together with the changes that need it: 1.20 times" in str(
        l11.Answers(found, total, ranked, runs, costs))  # fmt: skip
    found.rungs[2] = dataclasses.replace(found.rungs[2], found=fake("compiled", 1.5))
    assert "own part of that: 1.50 times; with the changes that need it, another 1.20 times" in str(
        l11.Answers(found, total, ranked, runs, costs))  # fmt: skip
    assert "naive: 45.0 s" in capstone_view.race({"naive": runs[0], "final": runs[1]}).alt


# --- names made up ------------------------------------------------------------------------------------------------


def test_a_digest_sees_one_changed_bit():
    model = l11.network(TINY)
    before = l11.digest(model)
    assert before == l11.digest(l11.network(TINY))
    with torch.no_grad():
        model.head.bias[0] = torch.nextafter(model.head.bias[0], torch.tensor(9.0))
    assert before != l11.digest(model)


def test_invented_names_are_made_of_letters_and_follow_the_seed():
    model = l11.network(TINY)
    made = l11.invent(model, 20, seed=1)
    assert made == l11.invent(model, 20, seed=1)
    assert made != l11.invent(model, 20, seed=2)
    assert set("".join(made)) <= set(l11.names().letters)
    assert max(map(len, made)) < l11.names().length


def test_a_model_that_is_sure_says_the_name_it_learned():
    names = l11.names()
    model, word = l11.network(TINY), names.train[0]
    tokens, targets = (part[None] for part in l11.NameDataset([word], names)[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        model(tokens, targets).backward()
        optimizer.step()
    assert l11.invent(model, 3, temperature=0.1) == [word] * 3


def test_known_pairs_tell_names_from_shuffled_letters():
    names = list(l11.names().val)
    generator = torch.Generator().manual_seed(0)
    mixed = ["".join(name[i] for i in torch.randperm(len(name), generator=generator)) for name in names]
    assert l11.known_pairs(names) > 0.97
    assert l11.known_pairs(mixed) < 0.85
    assert l11.known_pairs([]) == 0.0


# --- a power cut --------------------------------------------------------------------------------------------------

PROGRAM = """
import sys, time
import torch
from labkit import launch
from labkit.lessons import l11
folder, slow = sys.argv[1], float(sys.argv[2])
torch.set_num_threads(1)
size = l11.Size(16, 2, 2, batch=16, rate=3e-3)
training = l11.Training(l11.PACKED, size, device="cpu")
newest = launch.latest_checkpoint(folder)
first = launch.load_checkpoint(newest, training.model, training.optimizer)["step"] if newest else 0
for done, numbers in enumerate(l11.steps(until=60, start=first, batch=16), first + 1):
    training.step(training.batch(numbers))
    if done % 5 == 0:
        launch.save_checkpoint(folder, done, training.model, training.optimizer)
        print("saved", done, flush=True)
    time.sleep(slow)
print("first", first, "loss", repr(training.validation_loss()), flush=True)
"""


def trained(folder, slow=0.0):
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder), str(slow)],
                            stdout=subprocess.PIPE, text=True)  # fmt: skip


@pytest.mark.slow
def test_a_training_that_was_killed_ends_with_the_loss_of_one_that_was_not(tmp_path):
    whole = trained(tmp_path / "whole").communicate()[0].splitlines()[-1]
    assert whole.startswith("first 0 loss ")
    killed = 0
    for cut_after in (3, 4):  # lines, so that each life gets a little further
        child = trained(tmp_path / "cut", slow=0.02)
        lines = [child.stdout.readline() for _ in range(cut_after)]
        assert lines[-1].startswith("saved")
        time.sleep(0.05)  # somewhere in the middle of a step or of a save
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        killed += 1
    last = trained(tmp_path / "cut").communicate()[0].splitlines()[-1]
    assert killed == 2
    assert last.split()[1] != "0"
    assert last.split("loss")[1] == whole.split("loss")[1]


# --- exercises ----------------------------------------------------------------------------------------------------


def right_pack(lengths, room):
    rows, free = [], []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        row = next((row for row, left in enumerate(free) if left >= lengths[index]), len(rows))
        if row == len(rows):
            rows.append([])
            free.append(room)
        rows[row].append(index)
        free[row] -= lengths[index]
    return rows


def best_fit(lengths, room):
    rows, free = [], []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        fits = [row for row, left in enumerate(free) if left >= lengths[index]]
        row = min(fits, key=lambda row: free[row], default=len(rows))
        if row == len(rows):
            rows.append([])
            free.append(room)
        rows[row].append(index)
        free[row] -= lengths[index]
    return rows


def one_each(lengths, room):
    return [[index] for index in range(len(lengths))]


def next_fit(lengths, room):
    rows, left = [[]], room
    for index, length in enumerate(lengths):
        if length > left:
            rows.append([])
            left = room
        rows[-1].append(index)
        left -= length
    return rows


def overfull(lengths, room):
    return [list(range(len(lengths)))]


def forgetful(lengths, room):
    return right_pack(lengths, room)[:-1]


def values(lengths, room):
    return [[lengths[index] for index in row] for row in right_pack(lengths, room)]


def doubled(lengths, room):
    return [*right_pack(lengths, room), [0]]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("answer", "points", "hint"), [
    (right_pack, 6, ""), (best_fit, 6, ""), (one_each, 3, "padding"), (next_fit, 3, "longest names first"),
    (overfull, 0, "room for"), (forgetful, 0, "stand in no row"), (values, 0, "rows hold lengths"),
    (doubled, 0, "two rows"), (lambda lengths, room: None, 0, ""),
])  # fmt: skip
def test_exercise_1(answer, points, hint, seed):
    result = lab.check("11-1", answer, seed=seed)
    assert result.points == points
    assert hint in result.hint


def right_times(naive, final):
    seconds, goal = naive[-1]
    return next((seconds / after for after, loss in final if loss <= goal), 0.0)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("answer", "points", "hint"), [
    (right_times, 5, ""),
    (lambda naive, final: naive[-1][0] / final[-1][0], 0, "stop its clock"),
    (lambda naive, final: 1 / right_times(naive, final) if right_times(naive, final) else 0.0, 2, "Upside down"),
    (lambda naive, final: right_times(naive, final) or 1.0, 3, "never reaches"),
    (lambda naive, final: 3.0, 0, "no higher"),
    (lambda naive, final: None, 0, ""),
])  # fmt: skip
def test_exercise_2(answer, points, hint, seed):
    result = lab.check("11-2", answer, seed=seed)
    assert result.points == points
    assert hint in result.hint


def right_new(made, training):
    def plain(name):
        return unicodedata.normalize("NFC", name).strip()

    seen = {plain(name) for name in training} | {""}
    return [name for name in dict.fromkeys(map(plain, made)) if name not in seen]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("answer", "points", "hint"), [
    (right_new, 4, ""),
    (lambda made, training: [n for n in dict.fromkeys(made) if n and n not in training], 2, "strip"),
    (lambda made, training: [n for n in dict.fromkeys(m.strip() for m in made) if n and n not in training], 2, "NFC"),
    (lambda made, training: list(made), 0, "a copy"),
    (lambda made, training: [n for n in made if n and n not in training], 0, "counts once"),
    (lambda made, training: sorted(right_new(made, training), key=len)[:1], 0, "should stay"),
    (lambda made, training: None, 0, ""),
])  # fmt: skip
def test_exercise_3(answer, points, hint, seed):
    result = lab.check("11-3", answer, seed=seed)
    assert result.points == points
    assert hint in result.hint
