"""measure(): every branch on a fake clock, wrong use in both languages, and a check against torch's Timer."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import json
import statistics
import types
import weakref

import numpy as np
import pytest
import torch

import labkit as lab
from labkit import _callables, _device_time, _stopwatch, timing

needs_mxnet = pytest.mark.skipif(importlib.util.find_spec("mxnet") is None, reason="no MXNet package for this machine")


class FakeClock:
    """Nanoseconds that pass only when someone works."""

    def __init__(self):
        self.ns = 0

    def __call__(self) -> int:
        return self.ns

    def spend(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)

    def work(self, *durations_s: float):
        """A function whose calls take these durations; the last one for ever."""
        left = list(durations_s)

        def fn():
            self.spend(left.pop(0) if len(left) > 1 else left[0])

        return fn

    def cycle(self, *durations_s: float):
        """A function whose calls take these durations over and over."""
        count = [0]

        def fn():
            self.spend(durations_s[count[0] % len(durations_s)])
            count[0] += 1

        return fn


@pytest.fixture
def clock():
    lab.use_language("en")
    return FakeClock()


def test_first_call_stays_apart(clock):
    m = lab.measure(clock.work(5.0, 0.002), clock=clock)
    assert m.first_s == pytest.approx(5.0)
    assert m.median_s == pytest.approx(0.002)
    assert max(m.times_s) == pytest.approx(0.002)


def test_warm_up_ends_when_two_blocks_agree(clock):
    calls = [9.0, 0.010, 0.008, 0.006, 0.0040, 0.0041]  # the last two are within 5 %
    m = lab.measure(clock.work(*calls, 0.005), clock=clock, budget_s=1.0)
    assert set(np.round(m.times_s, 6)) == {0.005}


def test_warm_up_gives_up_after_a_quarter_of_the_budget(clock):
    shrinking = [9.0, *(0.1 * 0.8**i for i in range(200))]
    m = lab.measure(clock.work(*shrinking), clock=clock, budget_s=1.0)
    warmed = shrinking[1:].index(pytest.approx(m.times_s[0], rel=1e-6))
    assert 0.25 < sum(shrinking[1:1 + warmed]) < 0.25 + shrinking[warmed]


def test_one_stall_does_not_make_a_function_slow(clock):
    m = lab.measure(clock.work(0.003, 0.9, 0.8, 0.003), clock=clock, budget_s=0.5)
    assert m.median_s == pytest.approx(0.003)


def test_a_long_stall_does_not_make_a_budget_look_too_small(clock):
    m = lab.measure(clock.work(0.003, 0.9, 0.9, 0.003), clock=clock, budget_s=0.5)  # two blocks that agree
    assert m.median_s == pytest.approx(0.003)


def test_stops_when_the_spread_is_small(clock):
    m = lab.measure(clock.work(0.002), clock=clock, budget_s=1.0)
    assert m.stopped == "settled"
    assert 0.2 <= sum(m.times_s) < 0.3  # a fifth of the budget is always spent
    assert m.warnings == ()


def test_budget_ends_first_and_it_says_so(clock):
    m = lab.measure(clock.cycle(0.002, 0.003), clock=clock, budget_s=0.5)
    assert m.stopped == "budget"
    assert 0.5 <= sum(m.times_s) < 0.51
    assert any("budget" in text for text in m.warnings)


def test_slow_function_gets_three_runs_and_a_remark(clock):
    m = lab.measure(clock.work(0.9), clock=clock, budget_s=1.0)
    assert m.n == 3
    assert "3 runs" in str(m)
    assert "budget_s=11" in str(m)


def test_at_least_ten_runs_when_the_budget_allows(clock):
    m = lab.measure(clock.work(0.05), clock=clock, budget_s=1.0)
    assert m.n >= 10


def test_short_functions_are_timed_in_blocks(clock):
    m = lab.measure(clock.work(1e-5), clock=clock, budget_s=0.1)
    assert m.calls == 100
    assert m.median_s == pytest.approx(1e-5)


@pytest.mark.parametrize(("spread", "noisy", "texts"), [(0.05, False, 0), (0.12, True, 1), (0.30, True, 1)])
def test_noise_warnings(clock, spread, noisy, texts):
    m = lab.measure(clock.cycle(*np.linspace(0.01 * (1 - spread), 0.01 * (1 + spread), 101)), clock=clock, budget_s=9.0)
    assert m.spread == pytest.approx(spread, rel=0.15)
    assert m.is_noisy is noisy
    about_noise = [text for text in m.warnings if "%" in text]
    assert len(about_noise) == texts
    assert any("not to be trusted" in text for text in about_noise) is (spread > 0.25)


def test_median_and_iqr_as_the_statistics_module_has_them(clock):
    m = lab.measure(clock.cycle(0.001, 0.004, 0.002, 0.009, 0.003), clock=clock, budget_s=0.3)
    low, middle, high = statistics.quantiles(m.times_s, n=4, method="inclusive")
    assert m.median_s == pytest.approx(middle)
    assert m.iqr_s == pytest.approx(high - low)


def test_cold_cache_is_emptied_before_every_run(clock, monkeypatch):
    events = []
    monkeypatch.setattr(_stopwatch, "_flusher", lambda device: lambda: (events.append("flush"), clock.spend(0.02)))
    fn = clock.work(1e-5)
    m = lab.measure(lambda: (events.append("call"), fn()), cache="cold", clock=clock, budget_s=0.5)
    assert m.calls == 1
    assert m.median_s == pytest.approx(1e-5)  # the flush is not timed
    assert events[0] == "call"  # the first call
    assert events[1:] == ["flush", "call"] * (len(events) // 2)


def test_the_flush_is_larger_than_the_last_level_cache():
    flush = _stopwatch._flusher("cpu")
    assert flush().numel() >= 2 * _stopwatch._cpu_cache_bytes() >= 2 * 2**20


class Lazy:
    """Like an array of an asynchronous engine: handed over at once, ready only after waiting."""

    shape, dtype = (2,), np.dtype("float32")

    def __init__(self, clock):
        self.clock, self.pending = clock, True

    def wait_to_read(self):
        if self.pending:
            self.clock.spend(0.004)
            self.pending = False


def test_asynchronous_results_are_waited_for(clock):
    kept = Lazy(clock)

    def fn():
        clock.spend(0.001)
        kept.pending = True
        return kept

    m = lab.measure(fn, clock=clock, budget_s=0.3)
    assert m.first_s == pytest.approx(0.005)
    assert m.median_s == pytest.approx(0.005)


@needs_mxnet
def test_mxnet_waits_for_its_whole_engine(monkeypatch):
    mx = lab.mx.load()
    waited = []
    monkeypatch.setattr(mx.nd, "waitall", lambda: waited.append(1))
    lab.measure(lambda x: x + 1, mx.nd.ones(3), budget_s=0.02)
    lab.measure(lambda: mx.nd.ones(3).__iadd__(1) is None, budget_s=0.02)  # no array returned: still waited for
    assert len(waited) > 20


def test_gpu_time_beside_wall_time(clock, monkeypatch):
    launches = []

    class Timer:
        def seconds(self, run, launch_s):
            launches.append(launch_s)
            run()
            return 0.0005 * round(launch_s / 0.001)  # half a millisecond a call

    monkeypatch.setattr(_stopwatch, "_device_of", lambda result, args: "cuda:0")
    monkeypatch.setattr(_stopwatch, "_wait_for", lambda device, result: lambda result: clock.spend(0.002))
    monkeypatch.setattr(_stopwatch, "_device_timer", lambda device: Timer())
    m = lab.measure(clock.work(0.001), clock=clock, budget_s=0.3)
    assert m.median_s == pytest.approx(0.003)  # launched, then waited for
    assert launches == pytest.approx([0.001 * m.calls] * len(launches))
    assert m.device_median_s == pytest.approx(0.0005)
    assert m.card()["result"]["device_median_s"] == m.device_median_s
    assert "GPU" in m._repr_html_()
    c = lab.compare({"eager": clock.work(0.001), "other": clock.work(0.002)}, clock=clock, budget_s=0.3)
    assert [one.device_median_s for one in c.measurements.values()] == [None, None]  # it would cost half the rounds


class FakeEvent:
    def __init__(self, gpu: FakeGpu):
        self.gpu, self.at_s = gpu, 0.0

    def record(self, stream):
        assert stream == "stream of cuda:1"
        self.at_s = self.gpu.launch(0.0)

    def synchronize(self):
        self.gpu.host_s = max(self.gpu.host_s, self.at_s)

    def elapsed_time(self, other):
        return (other.at_s - self.at_s) * 1e3


class FakeGpu:
    """A CUDA stream on a fake clock: it works off, one after the other, what the host has launched."""

    def __init__(self, monkeypatch):
        self.host_s = self.free_s = 0.0

        monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: FakeEvent(self))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
        monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
        monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: self.launch(cycles / 2e9))

    def launch(self, work_s: float) -> float:
        """When it is done: the host goes on after 10 us."""
        self.host_s += 10e-6
        self.free_s = max(self.free_s, self.host_s) + work_s
        return self.free_s


@pytest.mark.parametrize("work_s", [1e-6, 20e-6])
def test_gaps_between_launches_are_not_the_gpus_time(work_s, monkeypatch):
    gpu = FakeGpu(monkeypatch)

    def run():
        for _ in range(100):
            gpu.launch(work_s)

    timer = _device_time.DeviceTimer("cuda:1")
    for _ in range(3):
        assert timer.seconds(run, 1e-3) == pytest.approx(100 * work_s, rel=0.02)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: gpu.launch(1e-5))  # it kept the GPU too short
    assert timer.seconds(run, 1e-3) == pytest.approx(max(1e-3, 100 * work_s), rel=0.05)


def test_the_results_own_gpu_is_waited_for(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    _stopwatch._wait_for("cuda:1", torch.ones(1))(None)
    assert waited == ["cuda:1"]


def test_no_result_outlives_its_call(clock):
    alive = weakref.WeakSet()

    class Big:
        pass

    def fn():
        clock.spend(0.001)
        assert len(alive) == 0
        big = Big()
        alive.add(big)
        return big

    lab.measure(fn, clock=clock, budget_s=0.05)
    assert len(alive) == 0


def test_garbage_collection_is_held_back_and_let_loose_again(clock):
    states = []

    def fn():
        clock.spend(0.001)
        states.append(gc.isenabled())
        knot = []
        knot.append(knot)

    lab.measure(fn, clock=clock, budget_s=5.0)
    assert not any(states)
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    with pytest.raises(_callables.CallFailedError):
        lab.measure(clock.cycle(0.001, None), clock=clock)
    assert gc.isenabled()


def test_cycles_do_not_pile_up(clock):
    alive = weakref.WeakSet()

    class Knot:
        def __init__(self):
            self.me = self

    def fn():
        clock.spend(0.001)
        alive.update(Knot() for _ in range(100))
        return len(alive)

    seen = []
    lab.measure(lambda: seen.append(fn()), clock=clock, budget_s=1.0)
    assert max(seen) < 2000  # hundreds of runs make a hundred knots each


# Wrong use -----------------------------------------------------------------------------------------------------------


async def _later():
    return 1


def _one_by_one():
    yield 1


def _raises():
    raise KeyError("no such layer")


WRONG = [
    (lambda: lab.measure(torch.ones(3)), TypeError, "lab.measure(f, x)"),
    (lambda: lab.measure(np.ones(3)), TypeError, "lab.measure(f, x)"),
    (lambda: lab.measure("torch.relu", torch.ones(3)), TypeError, "lab.measure(f, x)"),
    (lambda: lab.measure(_one_by_one), TypeError, "lambda: list(f(x))"),
    (lambda: lab.measure(_one_by_one()), TypeError, "lambda: list(f(x))"),
    (lambda: lab.measure(lambda: (i for i in range(3))), TypeError, "lambda: list(f(x))"),
    (lambda: lab.measure(_later), TypeError, "asyncio.run(f(x))"),
    (lambda: lab.measure(lambda: asyncio.sleep(0)), TypeError, "asyncio.run(f(x))"),
    (lambda: lab.measure(sum, iter([1, 2])), TypeError, "items = list(items)"),
    (lambda: lab.measure(len, [], budget_s=0), ValueError, "budget_s=1.0"),
    (lambda: lab.measure(len, [], budget_s=-1), ValueError, "budget_s=1.0"),
    (lambda: lab.measure(len, [], budget_s=float("nan")), ValueError, "budget_s=1.0"),
    (lambda: lab.measure(len, [], budget_s="1"), ValueError, "budget_s=1.0"),
    (lambda: lab.measure(len, [], cache="hot"), ValueError, '"cold"'),
    (lambda: lab.measure(_raises), RuntimeError, "KeyError: 'no such layer'"),
]


@pytest.mark.parametrize("language", ["bn", "en"])
@pytest.mark.parametrize(("wrong", "kind", "says"), WRONG)
@pytest.mark.filterwarnings("ignore:coroutine")
def test_wrong_use_says_what_to_type(language, wrong, kind, says):
    lab.use_language(language)
    with pytest.raises(kind) as caught:
        wrong()
    text = str(caught.value)
    assert says in text
    assert any("ঀ" <= letter <= "৿" for letter in text) is (language == "bn")


def test_the_original_exception_is_the_cause(clock):
    with pytest.raises(_callables.CallFailedError) as caught:
        lab.measure(_raises)
    assert isinstance(caught.value.__cause__, KeyError)
    assert "_raises" in str(caught.value)


def test_a_budget_below_one_call_names_one_that_fits(clock):
    with pytest.raises(_callables.BudgetTooSmallError, match=r"2\.00 s.*budget_s=24"):
        lab.measure(clock.work(2.0), clock=clock, budget_s=1.0)


# What is kept --------------------------------------------------------------------------------------------------------


def test_card_is_plain_json(clock):
    x = torch.ones(3, 4, dtype=torch.float16)
    card = json.loads(json.dumps(lab.measure(torch.neg, x, budget_s=0.01).card()))
    assert card["name"] == "neg"
    assert card["inputs"] == [{"shape": [3, 4], "dtype": "float16", "device": "cpu"}]
    assert card["threads"] == torch.get_num_threads()
    assert card["cache"] == "warm"
    assert card["result"]["n"] >= 3
    assert card["utc"].startswith("20")
    assert card["machine"]


def test_measurement_is_frozen_and_shows_itself(clock):
    m = lab.measure(clock.work(0.00123), clock=clock, name="chain", budget_s=0.3)
    with pytest.raises(AttributeError):
        m.first_s = 0.0
    assert str(m).startswith("chain: 1.23 ms")
    assert "0x" not in repr(m)
    assert "<script>" not in lab.measure(clock.work(0.001), clock=clock, name="<script>")._repr_html_()
    lab.use_language("bn")
    assert "প্রথম কল" in str(m)


def test_names():
    assert _callables.name_of(torch.relu) == "relu"
    assert _callables.name_of(lambda: 0) == "f"
    assert _callables.name_of(torch.nn.Linear(1, 1)) == "Linear"


def test_nothing_goes_to_stderr(clock, capsys):
    lab.measure(clock.cycle(0.001, 0.005), clock=clock, budget_s=0.1)
    assert capsys.readouterr() == ("", "")


def test_threads_without_torch(monkeypatch):
    monkeypatch.setattr(_stopwatch, "sys", types.SimpleNamespace(modules={}))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert _stopwatch.threads() == 3


@pytest.mark.timing
@pytest.mark.parametrize("target_s", [10e-6, 1e-3])
def test_agrees_with_torchs_timer(target_s):
    """The bench's question, asked shorter. The two take turns run by run: a shared machine changes by the second."""
    from tests.bench import measure

    assert statistics.median(measure.ratios(target_s, rounds=5, budget_s=0.3)) == pytest.approx(1.0, abs=0.05)


@pytest.mark.gpu
def test_gpu_work_is_waited_for():
    x = torch.randn(4096, 4096, device="cuda")
    m = lab.measure(torch.mm, x, x, budget_s=0.5)
    assert m.device.startswith("cuda")
    flops_per_s = 2 * 4096**3 / m.median_s
    assert flops_per_s < 2e15  # an unsynchronised launch would claim a hundred times more
    assert m.device_median_s == pytest.approx(m.median_s, rel=0.5)
    assert timing.measure(torch.mm, x, x, cache="cold", budget_s=0.5).calls == 1
