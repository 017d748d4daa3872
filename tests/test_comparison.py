"""compare() and claim(): order, interval and verdict on a fake clock and simulated noise; texts in both languages."""

from __future__ import annotations

import dataclasses
import json
import re
import time

import numpy as np
import pytest
import torch

import labkit as lab
from labkit import _statistics
from labkit._callables import BudgetTooSmallError, CallFailedError
from labkit._correctness import DevicesDifferError, ResultsDifferError
from labkit.comparison import Ratio
from tests.test_timing import FakeClock


@pytest.fixture
def clock():
    lab.use_language("en")
    return FakeClock()


def two(clock, a_s: float = 0.002, b_s: float = 0.001, **options):
    return lab.compare({"eager": clock.work(a_s), "fused": clock.work(b_s)}, clock=clock,
                       budget_s=options.pop("budget_s", 0.3), **options)


# Order and budget ----------------------------------------------------------------------------------------------------


def test_rounds_are_abba_or_baab_and_both_occur(clock):
    order = []

    def named(name, seconds):
        return lambda: order.append(name) or clock.spend(seconds)

    lab.compare({"A": named("A", 0.005), "B": named("B", 0.005)}, baseline="A", clock=clock, budget_s=1.0)
    timed = order[:-2]  # each is checked once more at the end
    rounds = ["".join(timed[end - 4:end]) for end in range(len(timed), len(timed) - 4 * 40, -4)]
    assert set(rounds) == {"ABBA", "BAAB"}


def test_three_candidates_run_forwards_then_backwards(clock):
    order = []
    functions = {name: (lambda name=name: order.append(name) or clock.spend(0.005)) for name in "ABC"}
    lab.compare(functions, baseline="A", clock=clock, budget_s=1.0)
    timed = order[:-3]
    rounds = ["".join(timed[end - 6:end]) for end in range(len(timed), len(timed) - 6 * 20, -6)]
    assert all(r[:3] == r[:2:-1] and set(r) == set("ABC") for r in rounds)
    assert len(set(rounds)) >= 4


def test_budget_is_for_all_candidates_together(clock):
    c = two(clock, 0.01, 0.01, budget_s=1.0)
    assert sum(sum(m.times_s) for m in c.measurements.values()) == pytest.approx(1.0, abs=0.05)


def test_a_short_budget_still_gets_three_rounds(clock):
    c = two(clock, 0.2, 0.2, budget_s=0.9)
    assert {m.n for m in c.measurements.values()} == {6}
    assert "only 6 runs" in str(c)


def test_a_budget_below_one_round_is_refused(clock):
    with pytest.raises(BudgetTooSmallError, match="budget_s=4.8"):
        two(clock, 0.2, 0.2, budget_s=0.7)


def test_a_machine_that_stood_still_during_the_warm_up_is_looked_at_longer(clock):
    held_up = [1.0] * 4  # the first call, the second, and the first two of the warm-up, which agree
    c = lab.compare({"eager": clock.work(*held_up, 0.02), "fused": clock.work(*held_up, 0.01)}, clock=clock,
                    budget_s=3.0)
    assert c.ratio("fused").value == pytest.approx(2.0)
    assert c.measurements["eager"].n > 50
    with pytest.raises(BudgetTooSmallError, match="budget_s=24"):
        two(clock, 1.0, 1.0, budget_s=3.0)


def test_near_equal_functions_get_equal_blocks(clock):
    c = two(clock, 1.0e-5, 1.1e-5, budget_s=0.1)
    assert {m.calls for m in c.measurements.values()} == {100}
    assert two(clock, 1.0e-5, 5.0e-5, budget_s=0.1).measurements["fused"].calls == 20


def test_first_calls_stay_apart(clock):
    c = lab.compare({"eager": clock.work(0.5, 0.002), "compiled": clock.work(20.0, 0.001)}, clock=clock, budget_s=0.3)
    assert c.measurements["compiled"].first_s == pytest.approx(20.0)
    assert c.ratio("compiled").value == pytest.approx(2.0)
    assert c.again().measurements["compiled"].first_s == pytest.approx(20.0)


def test_drift_hits_both_alike_but_fools_two_measurements(clock):
    """The machine slows down by the second; the functions are equal."""

    def drifting():
        clock.spend(0.001 * (1 + 0.2 * clock.ns / 1e9))

    c = lab.compare({"eager": drifting, "fused": drifting}, clock=clock, budget_s=2.0)
    assert c.verdict("fused") == "same"
    assert c.ratio("fused").value == pytest.approx(1.0, abs=1e-3)
    first, second = (lab.measure(drifting, clock=clock, budget_s=2.0).median_s for _ in range(2))
    assert second / first > 1.03


def test_running_second_is_no_advantage(clock):
    """Of every two calls the later one finds the cache warm; taken off, nothing of that is left in the interval."""
    calls = []

    def fn():
        calls.append(0)
        clock.spend(0.010 if len(calls) % 2 else 0.008)

    r = lab.compare({"eager": fn, "fused": fn}, clock=clock, budget_s=3.0).ratio("fused")
    assert (r.value, r.low, r.high) == pytest.approx((1, 1, 1), abs=1e-6)


# The interval --------------------------------------------------------------------------------------------------------


def simulated(rounds: int, true_ratio: float, noise, rng) -> Ratio:
    """An interval from times with multiplicative noise; ``noise(n)`` gives log-scale values, A and B in turn."""
    logs = noise(4 * rounds).reshape(rounds, 4)
    a, b = np.exp(logs[:, [0, 3]]) * true_ratio, np.exp(logs[:, [1, 2]])
    return _statistics.ratio_interval(a, b, seed=int(rng.integers(2**31)))


@pytest.mark.parametrize("kind", ["steady", "heavy tails", "neighbours alike"])
def test_interval_covers_the_truth_about_95_times_in_100(kind):
    rng = np.random.default_rng(1)

    def noise(n):
        if kind == "steady":
            return 0.05 * rng.normal(size=n)
        if kind == "heavy tails":
            return 0.02 * rng.normal(size=n) + (rng.random(n) < 0.2) * rng.exponential(0.8, size=n)
        wave = np.zeros(n)
        for i in range(1, n):
            wave[i] = 0.9 * wave[i - 1] + 0.05 * rng.normal()
        return wave

    intervals = [simulated(60, 1.25, noise, rng) for _ in range(100)]
    covered = np.mean([r.low <= 1.25 <= r.high for r in intervals])
    assert 0.90 <= covered <= 1.0
    assert np.median([r.value for r in intervals]) == pytest.approx(1.25, rel=0.01)


def test_equal_functions_on_a_very_noisy_machine_get_almost_no_winner():
    """At 95 % one in twenty would get one: 10 of these 200."""
    rng = np.random.default_rng(6)
    noise = lambda n: 0.1 * rng.normal(size=n) + (rng.random(n) < 0.3) * rng.exponential(1.0, size=n)  # noqa: E731
    verdicts = [_statistics.verdict(simulated(30, 1.0, noise, rng), 0.01) for _ in range(200)]
    assert verdicts.count("faster") + verdicts.count("slower") <= 2


def test_bootstrap_agrees_with_scipys():
    """With no more rounds than stretches, ours is the plain percentile bootstrap of the median."""
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(3)
    logs = rng.normal(0.1, 0.05, size=19)
    ours = _statistics._block_bootstrap(np.stack([logs, logs], axis=1), 0)
    theirs = stats.bootstrap((logs,), np.median, method="percentile", n_resamples=20_000, random_state=rng)
    assert ours == pytest.approx(list(theirs.confidence_interval), abs=0.008)


def test_sign_test_and_students_t_agree_with_scipys():
    stats = pytest.importorskip("scipy.stats")
    for n in (6, 12, 24, 100, 1000):
        values = np.random.default_rng(n).normal(size=n)
        assert _statistics._sign_interval(values) == tuple(stats.quantile_test(values, q=0).confidence_interval(0.95))
    for rounds in (4, 6, 12, 20):
        for z in (1.96, 3.29):
            exact = stats.t.ppf(stats.norm.cdf(z), rounds - 1)
            assert _statistics._student(z, rounds) == pytest.approx(exact, rel=0.01 if rounds > 6 else 0.15)


@pytest.mark.parametrize("rounds", [3, 6, 12])
def test_few_rounds_are_not_too_sure_of_themselves(rounds):
    """The plain bootstrap of three rounds covers the truth 75 times in 100."""
    rng = np.random.default_rng(7)
    intervals = [simulated(rounds, 1.0, lambda n: 0.1 * rng.normal(size=n), rng) for _ in range(200)]
    assert np.mean([r.low <= 1 <= r.high for r in intervals]) >= 0.93
    assert sum(_statistics.verdict(r, 0.01) in ("faster", "slower") for r in intervals) <= 2


def test_all_four_pairs_of_a_round_know_more_than_two(monkeypatch):
    monkeypatch.setattr(_statistics, "RESAMPLES", 10)
    rng = np.random.default_rng(8)
    errors = {"four": [], "two": []}
    for _ in range(2000):
        logs = 0.03 * rng.normal(size=(40, 4))
        a, b = logs[:, [0, 3]], logs[:, [1, 2]]
        errors["four"].append(np.log(_statistics.ratio_interval(np.exp(a), np.exp(b)).value))
        errors["two"].append(np.median(a - b))
    assert np.std(errors["four"]) < 0.95 * np.std(errors["two"])


def test_interval_is_wider_where_neighbours_are_alike():
    rng = np.random.default_rng(2)
    steps = np.repeat(rng.normal(0, 0.1, size=20), 20)
    times = np.exp(np.stack([steps, steps], axis=1))
    in_turn = _statistics.ratio_interval(times, np.ones_like(times))
    mixed = _statistics.ratio_interval(rng.permutation(times), np.ones_like(times))
    assert in_turn.high / in_turn.low > 2 * mixed.high / mixed.low - 1


def test_interval_is_the_same_every_time():
    times = np.exp(np.random.default_rng(0).normal(size=(50, 2)))
    assert _statistics.ratio_interval(times, times[::-1]) == _statistics.ratio_interval(times, times[::-1])


def test_a_burst_does_not_drag_the_ratio_along():
    """A third of the rounds is hit by foreign load that lands on one or the other; the ratio of means is far off."""
    rng = np.random.default_rng(4)
    a, b = 1.2 * np.exp(0.01 * rng.normal(size=(90, 2))), np.exp(0.01 * rng.normal(size=(90, 2)))
    a[0:30:3, 0] *= rng.uniform(2, 6, size=10)
    b[1:31:3, 0] *= rng.uniform(4, 9, size=10)
    b[2:32:3, 1] *= rng.uniform(4, 9, size=10)
    a[30:40, 1] *= rng.uniform(2, 6, size=10)
    r = _statistics.ratio_interval(a, b)
    assert r.low < 1.2 < r.high
    assert r.value == pytest.approx(1.2, rel=0.005)
    assert r.high / r.low < 1.02
    assert abs(a.mean() / b.mean() - 1.2) > 0.1


@pytest.mark.parametrize(("low", "high", "margin", "verdict"), [
    (1.04, 1.10, 0.03, "faster"),
    (0.80, 0.90, 0.03, "slower"),
    (0.98, 1.02, 0.03, "same"),
    (0.98, 1.04, 0.03, "undecided"),
    (1.01, 1.06, 0.03, "undecided"),
    (0.90, 0.98, 0.03, "undecided"),
    (1.02, 1.05, 0.0, "faster"),
    (0.95, 0.98, 0.0, "slower"),
    (1.01, 1.06, 0.0, "faster"),  # any difference at all: the interval decides by itself
    (1.011, 1.06, 0.01, "undecided"),  # widened to 99.9 % it reaches 1
    (1.10, 1.80, 0.03, "undecided"),
    (1.30, 1.80, 0.03, "faster"),
    (0.99, 1.01, 0.0, "undecided"),
])
def test_verdicts(low, high, margin, verdict):
    assert _statistics.verdict(Ratio((low + high) / 2, low, high), margin) == verdict


# What it says --------------------------------------------------------------------------------------------------------


def with_ratio(clock, value, low, high, **options):
    """A comparison whose interval is set by hand."""
    return dataclasses.replace(two(clock, **options), ratios={"fused": Ratio(value, low, high)})


@pytest.mark.parametrize(("ratio", "english", "bengali"), [
    ((1.5, 1.4, 1.6), "fused is 1.50 times as fast as the baseline (probably between 1.40 and 1.60 times).",
     "fused বেসলাইনের চেয়ে 1.50 গুণ দ্রুত (সম্ভবত 1.40 থেকে 1.60 গুণের মধ্যে)।"),
    ((0.5, 0.4, 0.625),
     "fused is slower: the same work takes 2.00 times as long (probably between 1.60 and 2.50 times).",
     "fused উল্টো ধীর: একই কাজে 2.00 গুণ সময় লাগছে (সম্ভবত 1.60 থেকে 2.50 গুণের মধ্যে)।"),
    ((1.0, 0.99, 1.01),
     "There is no difference worth mentioning between fused and the baseline: ratio 1.00 (0.990 to 1.01).",
     "fused আর বেসলাইনের গতিতে বলার মতো তফাত নেই: অনুপাত 1.00 (0.990 থেকে 1.01)।"),
    ((1.0, 0.9, 1.1),
     "Whether fused is faster or slower cannot be said yet: ratio 1.00, but anything from 0.900 to 1.10 is possible. "
     "Close other programs and measure for longer.",
     "fused দ্রুত না ধীর, এখনো বলা যাচ্ছে না: অনুপাত 1.00, তবে 0.900 থেকে 1.10-এর মধ্যে যেকোনোটি হতে পারে। "
     "অন্য প্রোগ্রাম বন্ধ করে আরও সময় নিয়ে মাপুন।"),
    ((1.04, 1.01, 1.06),
     "fused may be faster: ratio 1.04, probably between 1.01 and 1.06. That is not sure enough for a verdict; measure "
     "for longer.",
     "fused হয়তো দ্রুত: অনুপাত 1.04, সম্ভবত 1.01 থেকে 1.06-এর মধ্যে। রায় দেওয়ার মতো নিশ্চিত নয়; আরও সময় নিয়ে মাপুন।"),
    ((0.96, 0.93, 0.99),
     "fused may be slower: ratio 0.960, probably between 0.930 and 0.990. That is not sure enough for a verdict; "
     "measure for longer.", None),
])
def test_sentences(clock, ratio, english, bengali):
    from labkit.language import nfc

    c = with_ratio(clock, *ratio)
    assert c.sentence("fused") == english
    assert english in str(c)
    if bengali:
        lab.use_language("bn")
        assert c.sentence("fused") == nfc(bengali)
        assert nfc(bengali) in str(c)


def test_html_has_bars_with_words_and_escapes_names(clock):
    c = lab.compare({"eager": clock.work(0.002), "<b>": clock.work(0.001)}, clock=clock, budget_s=0.2)
    page = c._repr_html_()
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert page.count('role="img" aria-label=') == 2
    assert "2.00" in page
    assert "faster" in page
    for colour in re.findall(r"(?:color|background):([^;\"]+)", page):
        assert re.fullmatch(r"var\(--jp-[\w-]+,.+\)", colour)  # the theme's colour, and one for elsewhere


def test_why_gives_counted_facts_and_the_break_even(clock):
    facts = {"eager": {"bytes": 8e6, "kernels": 4},
             "fused": lambda: {"bytes": 2e6, "kernels": 1, "regime": "memory-bound"}}
    functions = {"eager": clock.work(0.002), "fused": clock.work(10.0, 0.001)}
    c = lab.compare(functions, clock=clock, budget_s=0.2, facts=facts)
    text = c.why("fused")
    assert "2.00 MB instead of 8.00 MB" in text
    assert "kernels: 1 instead of 4" in text
    assert "memory-bound" in text
    assert "about 9998 calls" in text
    assert "Nothing was counted" in two(clock).why("fused")
    with pytest.raises(KeyError, match="eager, fused"):
        c.why("fast")


def test_card_is_plain_json(clock):
    card = json.loads(json.dumps(two(clock, facts={"fused": {"kernels": 1}}).card()))
    assert card["verdicts"] == {"fused": "faster"}
    assert card["ratios"]["fused"] == pytest.approx([2, 2, 2])
    assert card["measurements"]["eager"]["result"]["median_s"] == pytest.approx(0.002)
    assert card["facts"] == {"fused": {"kernels": 1}}
    assert card["machine"]
    assert "machine" not in card["measurements"]["eager"]


def test_medians_and_unknown_names(clock):
    c = two(clock)
    assert c.medians_s == {"eager": pytest.approx(0.002), "fused": pytest.approx(0.001)}
    assert c.ratio("eager") == Ratio(1, 1, 1)
    with pytest.raises(KeyError, match="there are: eager, fused"):
        c.ratio("compiled")


# Claims --------------------------------------------------------------------------------------------------------------


class Scripted:
    """Stands for a comparison whose every new measurement gives the next interval."""

    baseline, facts = "eager", {"eager": {"kernels": 4}, "fused": {"kernels": 1}}

    def __init__(self, *intervals, budget_s=1.0, log=None):
        self.intervals, self.budget_s, self.log = intervals, budget_s, [] if log is None else log

    def ratio(self, name):
        low, high = self.intervals[0]
        return Ratio((low + high) / 2, low, high)

    def again(self, budget_s):
        self.log.append(budget_s)
        return Scripted(*self.intervals[1:], budget_s=budget_s, log=self.log)


@pytest.mark.parametrize(("intervals", "holds", "budgets"), [
    ([(1.4, 1.6)], True, []),
    ([(1.3, 1.6)], True, []),
    ([(1.0, 1.2)], False, []),
    ([(1.2, 1.5), (1.35, 1.45)], True, [2.0]),
    ([(1.2, 1.5), (1.1, 1.25)], False, [2.0]),
    ([(1.2, 1.5), (1.25, 1.45), (1.31, 1.4)], True, [2.0, 4.0]),
    ([(1.2, 1.5), (1.25, 1.45), (1.29, 1.4), (9, 9)], False, [2.0, 4.0]),
])
def test_faster_is_measured_again_while_undecided_at_most_twice(intervals, holds, budgets, capsys):
    lab.use_language("en")
    c = Scripted(*intervals)
    claim = lab.claim(c, "fused", "faster", at_least=1.3)
    assert bool(claim) is holds
    assert c.log == budgets
    assert capsys.readouterr().out == (
        "Holds: fused is at least 1.3 times as fast as eager. Counted: kernels: 1 instead of 4.\n" if holds else
        "Does not hold here: fused was not shown to be 1.3 times as fast as eager on this machine. "
        "Counted: kernels: 1 instead of 4.\n")


@pytest.mark.parametrize(("interval", "holds"), [
    ((0.5, 0.6), True), ((0.98, 1.02), True), ((1.05, 1.3), True), ((1.1, 1.3), True), ((1.11, 1.3), False)])
def test_not_faster_fails_only_when_all_of_the_interval_is_above(interval, holds, capsys):
    c = Scripted(interval)
    assert bool(lab.claim(c, "fused", "not faster", at_most=1.1)) is holds
    assert c.log == []


@pytest.mark.parametrize("language", ["bn", "en"])
def test_a_claims_line_has_no_measured_number(clock, language, capsys):
    lab.use_language(language)
    claim = lab.claim(two(clock, 0.00217, 0.00133), "fused", "faster", at_least=1.3)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [str(claim)]
    assert re.findall(r"\d+\.?\d*", lines[0]) == ["1.3"]


@pytest.mark.parametrize(("language", "words"), [("bn", "“x * 2” 1.3"), ("en", "that “x * 2” is more than 1.3 times")])
def test_a_names_last_figure_does_not_run_into_the_bound(clock, language, words):
    lab.use_language(language)
    c = lab.compare({"x + x": clock.work(0.002), "x * 2": clock.work(0.002)}, baseline="x + x", clock=clock,
                    budget_s=1.0)
    assert words in str(lab.claim(c, "x * 2", "not faster", at_most=1.3))


def test_a_claim_at_the_end_of_a_cell_is_not_shown_twice(clock):
    from IPython.core.formatters import DisplayFormatter

    claim = lab.claim(two(clock), "fused", "faster", at_least=1.3)
    assert DisplayFormatter().format(claim) == ({}, {})
    assert "0x" not in repr(claim)


def test_claims_remeasure_the_functions_themselves(clock, capsys):
    """First noisy, then steady: the real comparison takes the second look with twice the budget."""
    c = dataclasses.replace(two(clock, 0.0014, 0.001), ratios={"fused": Ratio(1.35, 1.1, 1.6)})
    claim = lab.claim(c, "fused", "faster", at_least=1.3)
    assert claim.holds
    assert claim.comparison.budget_s == 2 * c.budget_s
    assert claim.comparison.ratio("fused").value == pytest.approx(1.4)


@pytest.mark.parametrize("arguments", [
    {"kind": "faster"}, {"kind": "faster", "at_most": 1.1}, {"kind": "not faster", "at_least": 1.3},
    {"kind": "slower", "at_least": 1.3}, {"kind": "faster", "at_least": 1.3, "at_most": 2.0},
    {"kind": "faster", "at_least": 0.0}])
def test_a_claim_without_its_bound_is_refused(clock, arguments):
    with pytest.raises(ValueError, match="1.3"):
        lab.claim(two(clock), "fused", **arguments)


# Wrong use -----------------------------------------------------------------------------------------------------------


def _f(x):
    return x * 2


def _bit_by_bit(x):
    yield x


async def _later(x):
    return x


def _slow(x):
    time.sleep(0.05)
    return x


WRONG = [
    (lambda x: lab.compare([_f, _f], x), TypeError, '{"eager": f, "fused": g}'),
    (lambda x: lab.compare(_f, x), TypeError, '{"eager": f, "fused": g}'),
    (lambda x: lab.compare({"eager": _f(x), "fused": _f}, x), TypeError, '{"eager": f, "fused": g}'),
    (lambda x: lab.compare({"eager": _f}, x), ValueError, "lab.measure(f, x)"),
    (lambda x: lab.compare({}, x), ValueError, "lab.measure(f, x)"),
    (lambda x: lab.compare({"plain": _f, "fused": _f}, x), ValueError, "baseline='plain'"),
    (lambda x: lab.compare({"eager": _f, "fused": _f}, x, budget_s=0), ValueError, "budget_s=1.0"),
    (lambda x: lab.compare({"eager": _f, "fused": _f}, x, budget_s=-3), ValueError, "budget_s=1.0"),
    (lambda x: lab.compare({"eager": _f, "fused": _f}, x, margin=-0.1), ValueError, "0.03"),
    (lambda x: lab.compare({"eager": _f, "fused": _f}, iter([x])), TypeError, "list(items)"),
    (lambda x: lab.compare({"eager": _f, "fused": _f}, x, cache="hot"), ValueError, '"cold"'),
    (lambda x: lab.compare({"eager": _f, "fused": _bit_by_bit}, x), TypeError, "lambda: list(f(x))"),
    (lambda x: lab.compare({"eager": _f, "fused": _bit_by_bit(x)}, x), TypeError, "lambda: list(f(x))"),
    (lambda x: lab.compare({"eager": _f, "fused": _later}, x), TypeError, "asyncio.run(f(x))"),
    (lambda x: lab.compare({"eager": _f, "fused": lambda x: x + 5}, x), ResultsDifferError, "fused"),
    (lambda x: lab.compare({"eager": _f, "fused": lambda x: 1 / 0}, x), CallFailedError, "ZeroDivisionError"),
    (lambda x: lab.compare({"eager": _f, "fused": lambda x: x.to("meta")}, x), DevicesDifferError, "meta"),
    (lambda x: lab.compare({"eager": _slow, "fused": _slow}, x, budget_s=0.01), BudgetTooSmallError, "budget_s="),
]


@pytest.mark.parametrize("language", ["bn", "en"])
@pytest.mark.parametrize(("wrong", "kind", "says"), WRONG)
@pytest.mark.filterwarnings("ignore:coroutine")
def test_wrong_use_says_what_to_type(language, wrong, kind, says):
    lab.use_language(language)
    with pytest.raises(kind) as caught:
        wrong(torch.ones(3))
    assert says in str(caught.value)
    assert any("ঀ" <= letter <= "৿" for letter in str(caught.value)) is (language == "bn")


def test_a_function_that_raises_only_later(clock):
    with pytest.raises(CallFailedError, match="fused"):
        lab.compare({"eager": clock.work(0.001), "fused": clock.cycle(0.001, 0.001, 0.001, None)}, clock=clock)


# On the real clock ---------------------------------------------------------------------------------------------------


@pytest.mark.timing
def test_equal_functions_get_no_winner():
    left, right, out = torch.randn(128, 128), torch.randn(128, 128), torch.empty(128, 128)

    def steady():
        for _ in range(100):
            torch.mm(left, right, out=out)
        return out

    def same():
        return steady()

    verdicts = [lab.compare({"eager": steady, "same": same}, budget_s=1.0).verdict("same") for _ in range(4)]
    assert not {"faster", "slower"} & set(verdicts)


@pytest.mark.timing
def test_half_as_much_work_again_is_found():
    left, right, out = torch.randn(128, 128), torch.randn(128, 128), torch.empty(128, 128)

    def steady(products):
        for _ in range(products):
            torch.mm(left, right, out=out)
        return out

    c = lab.compare({"eager": lambda: steady(100), "more": lambda: steady(150)}, budget_s=1.0)
    assert c.verdict("more") == "slower"
    assert c.ratio("more").low < 1 / 1.5 * 1.05
    assert c.ratio("more").high > 1 / 1.5 * 0.95
