"""Place names in English letters: the data's split, the score against its definition, the model's promises."""

import doctest
import functools
import random
import re
import unicodedata

import pytest
import torch

from labkit import _letter_table, datasets
from labkit import transliteration as tl
from labkit.language import speaking

# data


def test_names_are_clean_words_in_nfc():
    pairs = [pair for part in tl.names() for pair in part]
    assert len(pairs) == len(set(pairs)) > 3500
    for bn, en in pairs:
        assert bn == unicodedata.normalize("NFC", bn)
        assert set(bn) <= set(tl.BENGALI), bn
        assert re.fullmatch("[a-z]+", en), en
        assert len(en) < tl.LONGEST


def test_letters_have_one_number_each():
    assert len(set(tl.BENGALI)) == len(tl.BENGALI)
    assert tl.letters_in([tl.BENGALI]).tolist() == [list(range(1, len(tl.BENGALI) + 1))]
    assert tl.letters_out(["az", "b"]).tolist() == [[1, 2, 27, 1], [1, 3, 1, 0]]


def said(name: str) -> str:
    """The consonants and vowels that are heard, written apart from the module's own table."""
    for written, heard in (("ী", "ি"), ("ূ", "ু"), ("ণ", "ন"), ("শ", "স"), ("ষ", "স"), ("ঙ", "ং"), ("য", "জ")):
        name = name.replace(written, heard)
    return name.replace("ঁ", "").replace("\u09bc", "")


@pytest.mark.parametrize("seed", [0, 1, 2026])
def test_no_name_and_none_that_sounds_like_it_is_in_two_parts(seed):
    parts = [{said(bn) for bn, _ in part} for part in tl.names(seed=seed)]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]


def test_a_split_by_row_would_leak():
    """The trap is real: one Bengali name has several spellings, and others only sound alike."""
    pairs = [pair for part in tl.names() for pair in part]
    train, _, test = datasets.split(pairs)
    assert len({bn for bn, _ in train} & {bn for bn, _ in test}) > 10
    assert {said("বাড়ী")} == {said("বাড়ি")}


def test_everybody_gets_the_same_parts_and_other_seeds_other_ones():
    one, again, other = tl.names(), tl.names(), tl.names(seed=1)
    assert one == again
    assert [len(part) for part in one] == [len(part) for part in other]
    assert len(set(one.test) & set(other.test)) < len(one.test) // 2


def test_fewer_names_for_a_quick_look_leave_the_other_parts_alone():
    few, all_of_them = tl.names(train=100), tl.names()
    assert len(few.train) == 100
    assert set(few.train) < set(all_of_them.train)
    assert few[1:] == all_of_them[1:]


# score


def by_definition(a: str, b: str) -> int:
    """Levenshtein's distance as its recursive definition says, without a table."""

    @functools.cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, distance(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return distance(len(a), len(b))


@pytest.mark.parametrize(("a", "b", "distance"), [
    ("kitten", "sitting", 3), ("flaw", "lawn", 2), ("intention", "execution", 5), ("", "dhaka", 5), ("dhaka", "", 5),
    ("dhaka", "dhaka", 0), ("rangpur", "rongpur", 1),
])  # fmt: skip
def test_edit_distance_of_known_words(a, b, distance):
    assert tl.edit_distance(a, b) == distance


def test_edit_distance_is_that_of_the_definition():
    draw = random.Random(7)
    for _ in range(300):
        a, b = ("".join(draw.choices("abc", k=draw.randint(0, 7))) for _ in range(2))
        assert tl.edit_distance(a, b) == by_definition(a, b) == tl.edit_distance(b, a)


def test_cer_is_wrong_letters_over_letters_of_all_references_together():
    assert tl.cer(["dhaka"], ["dhaka"]) == 0
    assert tl.cer(["kitten", "dhaka"], ["sitting", "dhaka"]) == 3 / 12
    assert tl.cer(["abc", "a"], ["abd", "x"]) == 2 / 4  # not the mean of 1/3 and 1/1
    assert tl.cer(["aaaaaa"], ["b"]) == 6  # it can exceed 1
    assert tl.cer(["rongpur"], [("rangpur", "rongpur")]) == 0
    assert tl.cer(["rongpor"], [("rangpur", "rongpurr")]) == 2 / 7  # the nearest spelling, and its length


def test_cer_wants_a_reference_for_each_name():
    for predicted, references in ((["a"], []), ([], [])):
        with speaking("en"), pytest.raises(ValueError, match="compares each name"):
            tl.cer(predicted, references)


# baseline


def test_the_rule_writes_what_a_person_would():
    assert doctest.testmod(_letter_table).failed == 0
    known = {"ফেনী": "feni", "চট্টগ্রাম": "chattagram", "নড়াইল": "narail", "বগুড়া": "bagura", "সিলেট": "silet"}
    assert {name: tl.by_table(name) for name in known} == known


def test_the_rule_is_an_honest_opponent():
    wanted = tl.spellings(tl.names().test)
    rule = tl.cer([tl.by_table(name) for name in wanted], list(wanted.values()))
    no_vowel = tl.cer([tl.by_table(name).replace("a", "") for name in wanted], list(wanted.values()))
    assert rule < 0.2 < no_vowel


# model


@pytest.fixture
def model():
    torch.manual_seed(0)
    return tl.Transliterator(width=16).eval()


NAMES = ["ঢাকা", "ব্রাহ্মণবাড়িয়া", "ফেনী"]


def test_what_is_written_does_not_depend_on_the_other_names_of_a_batch(model):
    together = tl.transliterate(model, NAMES)
    assert together == [tl.transliterate(model, [name])[0] for name in NAMES]
    bengali, english = tl.letters_in(NAMES), tl.letters_out(["dhaka", "brahmanbaria", "feni"])
    alone = model(tl.letters_in(NAMES[:1]), tl.letters_out(["dhaka"]))
    torch.testing.assert_close(model(bengali, english)[:1, : alone.shape[1]], alone)


def test_the_letters_in_one_go_or_one_by_one_are_the_same(model):
    """What learners may use: the decoder's GRU reads all letters of a word in one call."""
    bengali, english = tl.letters_in(NAMES), tl.letters_out(["dhaka", "brahmanbaria", "feni"])
    read, state = model.encode(bengali)
    here, _ = model.decoder(model.letters_out(english), state)
    score = (here @ read.transpose(1, 2)) / model.width**0.5
    weight = score.masked_fill((bengali == tl.PAD)[:, None], float("-inf")).softmax(-1)
    whole = model.head(torch.tanh(model.mix(torch.cat([here, weight @ read], dim=-1))))
    torch.testing.assert_close(model(bengali, english), whole)


def test_greedy_takes_the_likeliest_letter_after_its_own(model):
    """Against the slow way: the whole word again for each letter."""
    bengali, word = tl.letters_in(NAMES[:1]), [tl.EDGE]
    while len(word) <= tl.LONGEST:
        logits = model(bengali, torch.tensor([word]))[0, -1]
        word.append(int(logits[1:].argmax()) + 1)
        if word[-1] == tl.EDGE:
            break
    expected = "".join(tl.ENGLISH[number - 2] for number in word[1:] if number != tl.EDGE)
    assert tl.transliterate(model, NAMES[:1]) == [expected]


def test_keyboards_may_write_letters_in_one_code_or_two(model):
    one, two = "\u09ae\u09df\u09ae\u09a8", "\u09ae\u09af\u09bc\u09ae\u09a8"
    assert tl.transliterate(model, [one]) == tl.transliterate(model, [two])


def test_words_are_written_one_by_one(model):
    one, two = tl.transliterate(model, ["ফেনী", "ঢাকা"])
    assert tl.transliterate(model, ["ফেনী ঢাকা", ""]) == [f"{one} {two}", ""]
    assert tl.transliterate(model, []) == []


@pytest.mark.parametrize(("language", "words"), [("bn", "অঙ্ক আর বন্ধনী ছাড়া"), ("en", "without digits and brackets")])
def test_a_letter_without_a_number_is_named(model, language, words):
    with speaking(language), pytest.raises(ValueError, match=words):
        tl.transliterate(model, ["ঢাকা১"])


# training


def test_training_lowers_the_loss_repeats_and_leaves_the_held_out_names_alone():
    few, heard = tl.names(train=192), []
    few = few._replace(val=[], test=[])
    with speaking("en"):
        model = tl.train_naive(few, seed=3, epochs=3, width=32, say=heard.append)
    losses = [float(line.rsplit(" ", 1)[1]) for line in heard]
    assert len(losses) == 3
    assert losses[2] < losses[0]
    again = tl.train_naive(few, seed=3, epochs=3, width=32)
    other = tl.train_naive(few, seed=4, epochs=3, width=32)
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, again.state_dict()[name])
    assert any(not torch.equal(w, other.state_dict()[name]) for name, w in model.state_dict().items())
    assert not model.training


@pytest.mark.slow
def test_some_seconds_of_training_beat_the_rule_on_names_never_seen():
    pairs = tl.names(seed=11)  # not the seed that anything was tried on
    wanted = tl.spellings(pairs.test)
    rule = tl.cer([tl.by_table(name) for name in wanted], list(wanted.values()))
    model = tl.train_naive(pairs, seed=11)
    assert tl.evaluate(model, pairs.test) < 0.85 * rule
    assert tl.evaluate(tl.Transliterator(), pairs.test) > 0.9
