"""Lesson 06: right answers earn everything, every common mistake its own hint; the four contests are fair."""

import math

import pytest
import torch

import labkit as lab
from labkit._statistics import Ratio
from labkit.lessons import l06

pytestmark = pytest.mark.usefixtures("english")


def fusing_at_most(spot):
    return sum(spot[key] for key in ("memory", "compute", "overhead")) / (
        spot["compute"] + (spot["memory"] + spot["overhead"]) / spot["ops"])  # fmt: skip


def winner(rows):
    able = [row for row in rows if row["status"] == "measured" and row["low"] >= 1.03]
    return max(able, key=lambda row: row["ratio"])["name"] if able else "eager"


def steps_to_pay(compile_s, eager_s, compiled_s, rate, extra):
    saved = eager_s * rate - compiled_s * (rate + extra)
    return math.ceil(compile_s * (rate + extra) / saved) if saved > 0 else math.inf


@pytest.mark.parametrize(("name", "answer"), [("06-1", fusing_at_most), ("06-2", winner), ("06-3", steps_to_pay)])
@pytest.mark.parametrize("_again", range(5))
def test_a_right_answer_earns_everything(name, answer, _again):
    result = lab.check(name, answer)
    assert result.points == result.max_points, str(result)


def _largest(rows):
    return max((row for row in rows if row["status"] == "measured"), key=lambda row: row["ratio"])["name"]


WRONG = {
    "upside down": ("06-1", lambda s: 1 / fusing_at_most(s), "before divided by after"),
    "preparations as they were": ("06-1", lambda s: (s["memory"] + s["compute"] + s["overhead"]) / (
        s["compute"] + s["memory"] / s["ops"] + s["overhead"]), "left the preparations"),
    "arithmetic fused as well": ("06-1", lambda s: s["ops"], "fusing gains nothing"),
    "wrong results win": ("06-2", lambda rows: max(rows, key=lambda row: row["ratio"])["name"], "no speed"),
    "luck wins": ("06-2", _largest, "may be luck"),
    "somebody always wins": ("06-2", lambda rows: winner(rows) if winner(rows) != "eager" else rows[0]["name"],
                             'return `"eager"`'),
    "half steps": ("06-3", lambda c, e, f, r, x: c * (r + x) / (e * r - f * (r + x)), "round up"),
    "seconds, not money": ("06-3", lambda c, e, f, r, x: math.ceil(c / (e - f)) if e > f else math.inf,
                           "left the higher rent out"),
    "compiled elsewhere": ("06-3", lambda c, e, f, r, x: steps_to_pay(c * r / (r + x), e, f, r, x), "dearer machine"),
    "always pays": ("06-3", lambda c, e, f, r, x: math.ceil(c * (r + x) / abs(e * r - f * (r + x))), "never pays"),
    "minus infinity": ("06-3", lambda *a: steps_to_pay(*a) if steps_to_pay(*a) < math.inf else -math.inf, "never pays"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_answer_gets_its_own_hint(what):
    name, answer, hint = WRONG[what]
    result = lab.check(name, answer)
    assert result.points < result.max_points
    assert hint in str(result)


@pytest.mark.skipif(not lab.hardware.has_compiler(), reason="torch.compile needs a C++ compiler here")
def test_every_kernel_by_hand_gives_what_eager_gives():
    assert [contest.name for contest in l06.contests() if not contest.is_right()] == []


@pytest.mark.skipif(not lab.hardware.has_compiler(), reason="torch.compile needs a C++ compiler here")
def test_a_contest_is_run_on_its_own_inputs(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda fn: fn)  # how fast it is does not matter here
    [small] = [contest for contest in l06.contests() if contest.name == "small_chain"]
    found = small.run(budget_s=0.1)
    assert found.names == ["eager", "by hand", "compiled"]
    assert found.checked


class _Found:
    def __init__(self, **ratios):
        self.ratios = {name: Ratio(*given[:3]) for name, given in ratios.items()}
        self.verdicts = {name: given[3] for name, given in ratios.items()}

    def ratio(self, name):
        return self.ratios[name]

    def verdict(self, name):
        return self.verdicts[name]


def test_who_won_is_decided_by_verdict():
    both = _Found(hand=(1.9, 1.8, 2.0, "faster"), compiled=(2.5, 2.4, 2.6, "faster"))
    luck = _Found(hand=(1.2, 0.9, 1.6, "undecided"), compiled=(1.1, 1.05, 1.15, "faster"))
    none = _Found(hand=(0.3, 0.2, 0.4, "slower"), compiled=(1.0, 0.99, 1.01, "same"))
    assert [l06.winner_of(found) for found in (both, luck, none)] == ["compiled", "compiled", "eager"]
