"""Lesson 10: the networks of several sizes, the encoder and its loading, fine-tuning, its exercises and its lab."""

import copy
import importlib.util
import itertools
import json
import math
import re
import sys
import types

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import labkit as lab
from labkit import datasets
from labkit.lessons import finetuning, l10, pretrained, scaling, word_guessing
from labkit.lessons.encoder import Classifier, Encoder, Sizes
from tests.bench import scale
from tests.throwaway import ROOT, build

from builder import editions, execute  # isort: skip

pytestmark = pytest.mark.usefixtures("english")
SEEDS = range(8)
LESSON = "10_scale_and_finetune"
needs_encoder = pytest.mark.skipif(not pretrained.is_installed(), reason="the extra finetune is not installed")


# --- networks of several sizes --------------------------------------------------------------------------------------


def test_the_parameters_are_those_of_a_torch_network():
    for task in (l10.digits(), l10.names()):
        net = nn.Sequential(nn.Linear(task.x.shape[1], 24), nn.ReLU(), nn.Linear(24, task.classes))
        assert task.parameters(24) == sum(p.numel() for p in net.parameters())


def test_seeds_side_by_side_compute_what_each_would_alone():
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 5, 7), (3, 1, 7), (3, 7, 4), (3, 1, 4))
    weights = [torch.randn(shape, generator=generator) for shape in shapes]
    x = torch.randn(3, 6, 5, generator=generator)
    together = scaling._scores(x, weights)
    for k in range(3):
        hidden, hidden_bias, out, out_bias = (w[k] for w in weights)
        alone = F.linear(F.linear(x[k], hidden.T, hidden_bias[0]).relu(), out.T, out_bias[0])
        assert torch.allclose(together[k], alone, atol=1e-5)


def test_a_run_repeats_and_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    first, again = (l10.run(l10.digits(), width=8, examples=40, seeds=3, steps=30) for _ in range(2))
    assert first == again
    assert torch.equal(torch.get_rng_state(), before)
    assert l10.run(l10.digits(), width=8, examples=40, seeds=3, steps=30, first_seed=1) != first
    assert (len(first.errors), first.examples, first.parameters) == (3, 40, 8 * 65 + 10 * 9)
    low, high = first.spread
    assert first.error - low == min(first.errors)
    assert first.error + high == pytest.approx(max(first.errors))
    json.dumps(first.card())


def test_learning_helps_and_too_many_examples_are_refused():
    task = l10.digits()
    untrained, trained = (l10.run(task, width=32, seeds=2, steps=steps).error for steps in (1, 200))
    assert untrained > 0.5
    assert trained < 0.1
    with pytest.raises(ValueError, match="1198 examples"):
        l10.run(task, examples=1199)


def test_no_name_is_learned_from_and_judged_by():
    parts = datasets.split(datasets.places(*scaling.LEVELS), val=0, test=0.25, key=lambda place: place.bn)
    assert not {place.bn for place in parts.train} & {place.bn for place in parts.test}
    task = l10.names()
    assert (len(task.y), len(task.y_test)) == (len(parts.train), len(parts.test))
    assert task.x.shape[1] == scaling.GRAMS
    assert set(task.x.unique().tolist()) == {0.0, 1.0}


def runs_on_a_law(scale=2.0, exponent=0.5, spread=0.0, counts=(10, 40, 160)):
    def one(n):
        error = scale * n**-exponent
        errors = tuple(error * math.exp(spread * k) for k in (-1, 0, 1))
        return scaling.Run("made up", 8, 100, n, errors, errors)

    return [one(n) for n in counts]


def test_the_law_is_the_line_of_least_squares():
    exact = l10.fit(runs_on_a_law())
    assert exact.exponents == pytest.approx((0.5, 0.5, 0.5))
    assert exact.at(1000) == pytest.approx([2.0 / 1000**0.5] * 3)
    scattered = runs_on_a_law(spread=0.4)
    found = l10.fit(scattered)
    slope, cut = np.polyfit(np.log([10, 40, 160]), np.log([one.error for one in scattered]), 1)
    assert (found.scale, found.exponent) == pytest.approx((math.exp(cut), -slope))
    value, low, high = found.at(1000)
    assert low < value < high
    assert found.at(160)[2] - found.at(160)[1] < high / value * found.at(160)[0]


def test_the_verdict_says_whether_the_law_holds():
    law = l10.fit(runs_on_a_law(spread=0.2))
    [holds] = runs_on_a_law(counts=(1000,))
    [broken] = runs_on_a_law(scale=6.0, counts=(1000,))
    assert "holds so far" in str(l10.verdict(law, holds))
    assert "no longer holds" in str(l10.verdict(law, broken))


def test_the_curve_is_drawn_from_the_runs():
    runs = runs_on_a_law(spread=0.2)
    figure = l10.growth(runs, "examples", l10.fit(runs[:2]))
    points = figure.axes[0].containers[0].lines[0]
    assert list(points.get_xdata()) == [10, 40, 160]
    assert list(points.get_ydata()) == pytest.approx([100 * one.error for one in runs])
    assert "160: " in figure.alt
    labels = [text.get_text() for text in l10.growth(runs, known=True).axes[0].get_legend().get_texts()]
    assert "the examples it was trained on" in labels


# --- the encoder and where it comes from ----------------------------------------------------------------------------


SMALL = Sizes(vocabulary=50, width=32, layers=2, heads=4, inner=64, positions=16)


def test_filling_changes_nothing():
    torch.manual_seed(0)
    encoder = Encoder(SMALL)
    ids = torch.randint(1, 50, (3, 7))
    assert torch.allclose(encoder(F.pad(ids, (0, 5))), encoder(ids), atol=1e-6)
    assert encoder(ids).shape == (3, 32)


@pytest.mark.slow
@needs_encoder
def test_the_encoder_computes_what_transformers_does():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = pretrained._folder(None)
    start = l10.load()
    ids = start.read(["Where is my parcel?", "I forgot my password and the mail does not come."])
    bert = transformers.BertModel.from_pretrained(folder).eval()
    with torch.no_grad():
        theirs = bert(input_ids=ids, attention_mask=(ids != 0).long()).last_hidden_state
        ours = start.encoder.to("cpu").tokens(ids)
        seen = (ids != 0).unsqueeze(2)
        assert torch.allclose(ours * seen, theirs * seen, atol=1e-4)
        assert torch.allclose(start.encoder(ids), (theirs * seen).sum(1) / seen.sum(1), atol=1e-4)


@needs_encoder
def test_the_pretrained_encoder_knows_words_of_like_meaning():
    start = l10.load()
    assert start.is_real
    # BERT's pooler (384 x 385) and its two sentence vectors (2 x 384; the first is added in) are no parameters here.
    assert sum(p.numel() for p in start.encoder.parameters()) == 22_713_216 - 2 * 384 - 384 * 385
    assert "6 layers, width 384" in repr(start)
    texts = ["my parcel is late", "the package has not arrived", "i forgot my password"]
    with torch.no_grad():
        parcel, package, password = F.normalize(start.encoder(start.read(texts).to(lab.device())), dim=1)
    assert parcel @ package > parcel @ password + 0.2
    mine = start.copy()
    mine.words.weight.data.zero_()
    assert start.encoder.words.weight.any()
    assert start.blank().sizes == start.encoder.sizes
    assert not torch.equal(start.blank().words.weight, start.encoder.words.weight)


@needs_encoder
@pytest.mark.slow
def test_no_other_rate_and_no_more_epochs_save_learning_from_scratch():
    """The lesson gives "from scratch" the rate of "all weights"; it says that no other one would help."""
    start = l10.load()
    task = l10.messages(start.read)
    few = task.train.few(12, 0)

    def accuracy(encoder, rate, epochs):
        torch.manual_seed(0)
        model = Classifier(encoder, 6)
        return l10.train("", model, few, task.test, epochs=epochs, rate=rate).accuracy

    full = accuracy(start.copy(), 1e-4, 3)
    for rate, epochs in ((1e-4, 6), (3e-4, 6), (1e-3, 3)):
        assert accuracy(start.blank(), rate, epochs) < full - 0.2, (rate, epochs)


@needs_encoder
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 8111])
def test_on_18_messages_all_weights_changed_gently_are_not_clearly_ahead_of_the_head(seed):
    """The lesson asks its readers to try this. With about ten thousand times the numbers: at most 10 points."""
    start = l10.load()
    task = l10.messages(start.read)
    names = {"torch": torch, "nn": nn, "l10": l10, "start": start, "task": task, "head": nn.Linear(384, 6),
             "unseen": l10.vectors(start.encoder, task.test)}  # fmt: skip
    [cell] = [cell for cell in scale.cells() if "def on_18" in cell]
    exec(cell.partition("\n\n\n")[0], names)
    alone, gently = names["on_18"](seed), names["on_18"](seed, rate=1e-4)
    assert (alone.known, gently.known) == (1, 1)
    assert gently.accuracy < alone.accuracy + 0.1
    assert gently.trainable > 9000 * alone.trainable


@pytest.fixture
def small_bert(tmp_path):
    """A folder like the hub's, of a very small BERT whose names begin with "bert."."""
    safetensors = pytest.importorskip("safetensors.torch", reason="the extra finetune is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="the extra finetune is not installed")
    torch.manual_seed(0)
    encoder, weights = Encoder(SMALL), {}
    state = encoder.state_dict()
    weights["bert.embeddings.word_embeddings.weight"] = state["words.weight"]
    weights["bert.embeddings.token_type_embeddings.weight"] = torch.ones(2, 32)
    weights["bert.embeddings.position_embeddings.weight"] = state["places.weight"] - 1
    for kind in ("weight", "bias"):
        weights[f"bert.embeddings.LayerNorm.{kind}"] = state[f"norm.{kind}"]
        for k in range(2):
            for theirs, ours in pretrained._LAYER.items():
                weights[f"bert.encoder.layer.{k}.{theirs}.{kind}"] = state[f"layers.{k}.{ours}.{kind}"]
    safetensors.save_file({name: w.clone() for name, w in weights.items()}, tmp_path / "model.safetensors")
    config = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
              "intermediate_size": 64, "max_position_embeddings": 16}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = {"[PAD]": 0, "[UNK]": 1, "parcel": 2, "late": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path, encoder


def test_a_folder_is_loaded(small_bert):
    folder, encoder = small_bert
    start = l10.load(folder)
    ids = start.read(["parcel late", "late"])
    assert ids.tolist() == [[2, 3], [3, 0]]
    assert torch.allclose(start.encoder(ids.to(lab.device())).cpu(), encoder(ids), atol=1e-5)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"there is no config\.json"):
        l10.load(folder)


def test_a_hub_name_is_fetched(small_bert, monkeypatch):
    """No hub can be reached here: one function stands in for it and keeps what it was asked."""
    folder, encoder = small_bert
    asked = []
    hub = types.ModuleType("huggingface_hub")
    hub.__spec__ = importlib.util.spec_from_loader("huggingface_hub", None)
    hub.snapshot_download = lambda name, allow_patterns: asked.append((name, allow_patterns)) or str(folder)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    start = l10.load("someone/small-bert")
    assert asked == [("someone/small-bert", list(pretrained.FILES))]
    assert start.name == "someone/small-bert"
    assert torch.equal(start.encoder.words.weight.cpu(), encoder.words.weight)


def test_without_the_hubs_package_the_command_is_told(monkeypatch):
    monkeypatch.setattr(pretrained.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"someone/small-bert.*pip install.*huggingface_hub"):
        l10.load("someone/small-bert")


def test_without_the_extra_a_small_encoder_is_made_here(monkeypatch):
    monkeypatch.setattr(pretrained, "is_installed", lambda: False)
    monkeypatch.setattr(word_guessing, "EPOCHS", 1)
    monkeypatch.setattr(word_guessing.pretrain, "__defaults__", (1, 0))
    before = torch.get_rng_state()
    start, again = l10.load(), l10.load(l10.MADE_HERE)
    assert torch.equal(torch.get_rng_state(), before)
    assert not start.is_real
    assert torch.equal(start.encoder.words.weight, again.encoder.words.weight)
    ids = start.read(["Where is my parcel?", "xyzzy"])
    assert ids[1, :2].tolist() == [word_guessing.UNKNOWN, 0]
    assert start.encoder(ids.to(lab.device())).shape == (2, start.encoder.sizes.width)


def test_guessing_hidden_words_is_learned():
    encoder, _read = word_guessing.pretrain(epochs=2)
    longer, read = word_guessing.pretrain(epochs=8)
    ids = read([message.text for message in datasets.messages() if message.part == "test"])
    torch.manual_seed(0)
    early = word_guessing.guessing_loss(encoder, ids).item()
    torch.manual_seed(0)
    assert word_guessing.guessing_loss(longer, ids).item() < early  # on messages that it never read


def test_the_list_of_words_knows_the_training_messages_only():
    task = l10.messages(l10.word_list())
    train = [m.text for m in datasets.messages() if m.part == "train"]
    known = {word for text in train for word in word_guessing.words(text)}
    assert task.train.ids.shape == (216, len(known))
    assert torch.allclose(task.train.ids.norm(dim=1), torch.tensor(10.0))


# --- fine-tuning ----------------------------------------------------------------------------------------------------


@pytest.fixture
def task():
    numbers = word_guessing.vocabulary([message.text for message in datasets.messages()])
    return l10.messages(word_guessing.reader(numbers))


def test_few_are_balanced_and_from_their_part(task):
    few = task.train.few(5, seed=3)
    assert few.y.bincount().tolist() == [5] * 6
    rows = {tuple(row) for row in task.train.ids.tolist()}
    assert all(tuple(row) in rows for row in few.ids.tolist())
    assert torch.equal(few.ids, task.train.few(5, seed=3).ids)
    assert not torch.equal(few.ids, task.train.few(5, seed=4).ids)
    assert (len(task.train), len(task.val), len(task.test)) == (216, 60, 120)


def test_batches_of_like_length_give_each_row_its_own_answer(task):
    torch.manual_seed(0)
    encoder = Encoder(Sizes(2000, 16, 1, 2, 32, word_guessing.LONGEST)).to(task.test.ids.device)
    with torch.no_grad():
        plain = encoder(task.test.ids)
    assert torch.allclose(l10.in_batches(encoder, task.test.ids, batch=7), plain, atol=1e-5)
    kept = l10.vectors(encoder, task.test)
    assert torch.allclose(kept.ids, plain, atol=1e-5)
    assert torch.equal(kept.y, task.test.y)


def test_an_epoch_is_every_row_once_with_like_lengths_together(task):
    few = task.train.few(12)
    generator = torch.Generator().manual_seed(0)
    batches, others = finetuning.shuffled(few.ids, generator), finetuning.shuffled(few.ids, generator)
    assert sorted(torch.cat(batches).tolist()) == list(range(72))
    assert {len(rows) for rows in batches} == {14, 15}
    assert [rows.tolist() for rows in batches] != [rows.tolist() for rows in others]
    shortest_first = sorted(batches, key=lambda rows: finetuning.lengths(few.ids[rows]).max())
    ranges = [finetuning.lengths(few.ids[rows]) for rows in shortest_first]
    assert all(one.max() <= following.min() for one, following in itertools.pairwise(ranges))
    filled = sum(finetuning.short(few.ids[rows]).numel() for rows in batches)
    assert filled < 0.8 * sum(finetuning.short(few.ids[rows]).numel() for rows in torch.arange(72).split(16))
    vectors = torch.randn(18, 5)
    assert sorted(torch.cat(finetuning.shuffled(vectors, generator)).tolist()) == list(range(18))


def test_the_bytes_are_what_adamw_keeps():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).requires_grad_(False))
    optimizer = l10.optimizer_for(model, 1e-3)
    assert l10.optimizer_bytes(optimizer) == 0
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert l10.trainable(model) == 16
    assert l10.optimizer_bytes(optimizer) == 2 * 4 * 16


def test_training_learns_and_a_timed_step_changes_nothing(task):
    torch.manual_seed(0)
    model = Classifier(Encoder(Sizes(2000, 16, 1, 2, 32, word_guessing.LONGEST)), 6)
    few = task.train.few(4)
    before = copy.deepcopy(model.state_dict())
    step = l10.training_step(model, few)
    first, second = step(), step()
    assert torch.equal(first, second)
    assert all(torch.equal(value.cpu(), before[name]) for name, value in model.state_dict().items())
    outcome = l10.train("small", model, few, task.test, epochs=40, rate=1e-2)
    assert outcome.known > 0.9
    assert outcome.trainable == l10.trainable(model) == outcome.optimizer_bytes // 8
    assert outcome.loss > 0
    assert l10.accuracy(model, task.test) == outcome.accuracy
    assert "small" in str(l10.Outcomes([outcome]))
    assert finetuning.right(torch.eye(3), torch.tensor([0, 1, 0])) == pytest.approx(2 / 3)


def lora_cell():
    """LoRA as the lesson writes it."""
    [cell] = [cell for cell in scale.cells() if "class LoRA" in cell]
    names = {"nn": nn, "torch": torch}
    exec(cell, names)
    return types.SimpleNamespace(**names)


def test_lora_starts_from_the_frozen_encoder_and_trains_only_thin_matrices():
    lesson = lora_cell()
    torch.manual_seed(0)
    encoder = Encoder(SMALL)
    ids = torch.randint(1, 50, (3, 7))
    expected = encoder(ids).detach()
    adapted = lesson.with_lora(encoder, rank=3)
    assert torch.equal(adapted(ids), expected)
    assert l10.trainable(adapted) == 2 * 2 * (3 * 32 + 32 * 3)
    adapted(ids).sum().backward()
    assert {name.rpartition(".")[2] for name, p in adapted.named_parameters() if p.grad is not None} == {"down", "up"}
    nn.init.normal_(adapted.layers[0].query.up)
    x = torch.randn(5, 32)
    assert torch.allclose(merged(adapted.layers[0].query)(x), adapted.layers[0].query(x), atol=1e-5)


def test_the_answers_hold_the_measured_numbers():
    runs = runs_on_a_law(counts=(10, 40, 160, 640))
    outcomes = {"LoRA": finetuning.Outcome("LoRA", 39_174, 1, 1.0, 0.725, 1.0, 1.0)}
    text = str(l10.Answers(runs, runs, runs, outcomes, (0.157, 0.2)))
    assert "LoRA 72.5%, 39,174" in text
    assert "with 10 examples 63.2% were wrong, with 640 7.91%" in text
    assert "20.0% of the letters wrong, 15.7% by a table" in text


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_lesson_runs_without_the_extra():
    """Every cell of the English edition, with an encoder that the lesson has to make itself."""
    [read] = build.lessons(ROOT, [LESSON])
    notebook = editions.edition(read, "en", editions.repository(ROOT), solved=False)
    first = next(k for k, cell in enumerate(notebook.cells) if "lab.use_language" in cell.source)
    notebook.cells[first].source += "\nfrom labkit.lessons import pretrained\npretrained.is_installed = lambda: False\n"
    execute.execute(notebook, ROOT / "notebooks" / "en", LESSON)  # raises where a cell does
    printed = "\n".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", []))
    assert "made here: 2 layers" in printed
    assert len(scale.SAID.findall(printed)) >= 10


# --- exercises ------------------------------------------------------------------------------------------------------


def needed(counts, errors, target, x=np.log, y=np.log, back=np.exp):
    slope, cut = np.polyfit(x(counts), y(errors), 1)
    return float(back((y(target) - cut) / slope))


def adam_bytes(model):
    return sum(2 * p.nbytes for p in model.parameters() if p.requires_grad)


def merged(lora, scale=None, bias=True, keep=True):
    one = copy.deepcopy(lora.linear)
    with torch.no_grad():
        one.weight *= keep
        one.weight += (lora.scale if scale is None else scale) * lora.up @ lora.down
        one.bias *= bias
    return one


@pytest.mark.parametrize("seed", SEEDS)
def test_right_answers_earn_full_marks_whatever_the_inputs(seed):
    assert lab.check("10-1", needed, seed=seed).points == 6
    assert lab.check("10-1", lambda *given: needed(*given, x=np.log10, y=np.log10, back=lambda v: 10**v),
                     seed=seed).points == 6  # fmt: skip
    assert lab.check("10-2", adam_bytes, seed=seed).points == 5
    assert lab.check("10-3", merged, seed=seed).points == 6


def test_stubs_earn_nothing():
    for exercise in ("10-1", "10-2", "10-3"):
        result = lab.check(exercise, lambda *arguments: None)
        assert (result.status, result.points) == ("todo", 0)


def plain(values):
    return np.asarray(values, dtype=float)


def last_two(counts, errors, target):
    return needed(counts[-2:], errors[-2:], target)


@pytest.mark.parametrize(("answer", "points", "said"), [
    (lambda *given: needed(*given, back=lambda v: v), 0, "logarithm of the number of examples"),
    (lambda *given: needed(*given, x=plain, y=plain, back=lambda v: v), 0, "the numbers themselves"),
    (lambda *given: needed(*given, x=plain, back=lambda v: v), 0, "of `errors` only"),
    (lambda c, e, t: math.exp(np.polyval(np.polyfit(np.log(c), np.log(e), 1), math.log(t))), 0, "place of a count"),
    (lambda counts, errors, target: counts[-1], 0, "lie on a straight line"),
    (last_two, 4, "the last two points only"),
    (lambda c, e, t: math.exp(np.polyval(np.polyfit(np.log(e), np.log(c), 1), math.log(t))), 4, "least squares"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_10_1(answer, points, said, seed):
    result = lab.check("10-1", answer, seed=seed)
    assert said in result.hint
    assert result.points == points


@pytest.mark.parametrize(("answer", "points", "said"), [
    (lambda m: sum(2 * p.nbytes for p in m.parameters()), 0, "frozen parameters too"),
    (lambda m: sum(p.nbytes for p in m.parameters() if p.requires_grad), 0, "Exactly half"),
    (lambda m: sum(2 * p.numel() for p in m.parameters() if p.requires_grad), 0, "not bytes"),
    (lambda m: sum(4 * p.nbytes for p in m.parameters() if p.requires_grad), 0, "not the optimizer's"),
    (lambda m: 12345, 0, "two tensors of the same shape"),
    (lambda m: sum(8 * p.numel() for p in m.parameters() if p.requires_grad), 3, "bfloat16"),
    (lambda m: sum(2 * p.nbytes for layer in m for p in layer.parameters() if p.requires_grad), 3, "only once"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_10_2(answer, points, said, seed):
    result = lab.check("10-2", answer, seed=seed)
    assert said in result.hint
    assert result.points == points


def in_place(lora):
    with torch.no_grad():
        lora.linear.weight += lora.scale * lora.up @ lora.down
    return lora.linear


@pytest.mark.parametrize(("answer", "points", "said"), [
    (lambda lora: lora, 0, "the LoRA layer itself"),
    (lambda lora: nn.Sequential(lora), 0, "Return one"),
    (lambda lora: nn.Linear(lora.linear.out_features, lora.linear.in_features), 0, "shape of the frozen one"),
    (lambda lora: copy.deepcopy(lora.linear), 0, "the frozen layer alone"),
    (lambda lora: merged(lora, scale=1.0), 0, "`lora.scale` is missing"),
    (lambda lora: merged(lora, bias=False), 0, "bias got lost"),
    (lambda lora: merged(lora, keep=False), 0, "frozen weight got lost"),
    (lambda lora: merged(lora, scale=-3.0), 0, "The weight of the new layer is"),
    (in_place, 4, "itself was changed"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_10_3(answer, points, said, seed):
    result = lab.check("10-3", answer, seed=seed)
    assert said in result.hint
    assert result.points == points


# --- the lab --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("by", "sizes"), [("examples", [37, 75, 150, 300, 599, 1198]),
                                           ("parameters", [310, 610, 1210, 2410, 4810, 9610])])  # fmt: skip
def test_the_lab_trains_what_was_asked(by, sizes):
    explorer = lab.widgets.ScaleLab(steps=50)
    value = explorer.run(guess=20, by=by, seeds=2)
    assert [getattr(one, by) for one in value.runs] == sizes
    assert explorer.measured(value) == pytest.approx(100 * value.largest.error)
    assert "You guessed 20%" in str(explorer)
    assert value.law.exponent == pytest.approx(l10.fit(value.runs[:3], by).exponent)
    json.dumps(explorer.result.card())
    with pytest.raises(ValueError, match="`task` can be"):
        explorer.run(task="poems")


def test_the_lab_shows_what_was_measured():
    from labkit._lab import LabResult
    from labkit._scale_lab import Growth

    explorer = lab.widgets.ScaleLab()
    runs = tuple(runs_on_a_law(spread=0.1, counts=(10, 20, 40, 80)))
    value = Growth("examples", runs, l10.fit(runs[:3]))
    shown = LabResult(explorer, value, explorer.defaults())
    assert [row[0] for row in explorer.table(value).rows] == ["10", "20", "40", "80"]
    assert value.last_doubling == pytest.approx(2**0.5)
    assert "divided the mistakes by 1.41" in str(shown)
    assert "holds so far" in str(shown)
    points = shown.figure.axes[0].containers[0].lines[0]
    assert list(points.get_ydata()) == pytest.approx([100 * one.error for one in runs])
    flat = Growth("examples", (*runs[:3], runs[2]), l10.fit(runs[:3]))
    assert "one seed alone could not tell" in str(LabResult(explorer, flat, explorer.defaults()))


def test_every_statement_of_the_lesson_is_checked_with_fresh_seeds():
    """The bench reads the lesson's own cells; here only that it finds them, and that no seed is written in twice."""
    text = "\n".join(scale.cells())
    assert len(re.findall(r'print\("[^"]+:", [^)]', text)) >= 10
    assert text.count("SEED = 0") == 1
    assert not re.search(r"manual_seed\(\d|seed=\d", text)
