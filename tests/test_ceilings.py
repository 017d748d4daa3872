"""Bytes, FLOPs, ceilings and regimes, against counts by hand and formulas from textbooks."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch")
import labkit as lab  # noqa: E402
from labkit import _peaks, ceilings, graphs  # noqa: E402
from labkit._callables import CallFailedError, NotTimeableError  # noqa: E402

N = 1000
X, Y = torch.ones(N), torch.ones(N)

# function, bytes moved, least bytes
BYTES = {
    "three operators in turn": (lambda: (X * 2 + 1).relu(), 6 * 4 * N, 2 * 4 * N),
    "two inputs": (lambda: X + Y, 3 * 4 * N, 3 * 4 * N),
    "the same input twice": (lambda: X * X, 2 * 4 * N, 2 * 4 * N),
    "in place": (lambda: X.clone().add_(1), 4 * 4 * N, 2 * 4 * N),
    "copy_ only writes its target": (lambda: Y.copy_(X), 2 * 4 * N, 2 * 4 * N),
    "out= only writes its target": (lambda: torch.mul(X, 2, out=Y), 2 * 4 * N, 2 * 4 * N),
    "a view moves nothing": (lambda: X.view(10, 100).t(), 0, 0),
    "an expanded tensor is read once": (lambda: X.expand(8, N) + 1, 4 * N + 8 * 4 * N, 4 * N + 8 * 4 * N),
    "an expanded slice too": (lambda: X[:10].expand(8, 10) + 1, 40 + 320, 40 + 320),
    "overlapping windows are their storage": (lambda: X.unfold(0, 10, 1) + 1, 4 * N + 4 * 9910, 4 * N + 4 * 9910),
    "a slice is read alone": (lambda: X[:10] + 1, 80, 80),
    "half precision is half": (lambda: X.to(torch.bfloat16).exp(), (4 + 2) * N + 4 * N, (4 + 2) * N),
    "filling writes": (lambda: torch.zeros(N), 4 * N, 4 * N),
    "an empty allocation does not": (lambda: torch.empty(N), 0, 4 * N),
    "product": (lambda: torch.ones(8, 4) @ torch.ones(4, 2), 4 * (32 + 8) * 2 + 4 * 16, 4 * 16),
}


@pytest.mark.parametrize("what", BYTES)
def test_bytes_by_hand(what):
    fn, moved, least = BYTES[what]
    assert ceilings.compulsory_bytes(fn) == least
    assert ceilings.bytes_moved(fn) == max(moved, least)


def test_an_embedding_reads_only_the_rows_asked_for():
    table, rows = torch.nn.Embedding(10_000, 16), torch.arange(5)
    with torch.no_grad():
        assert ceilings.bytes_moved(table, rows) == 5 * 8 + 2 * 5 * 16 * 4


def test_a_hand_written_kernel_moves_its_inputs_and_outputs():
    def hidden(x, y):
        with torch.utils._python_dispatch._disable_current_modes():
            result = x + y
        return torch.empty_like(x).set_(result)

    assert ceilings.bytes_moved(hidden, torch.ones(N), torch.ones(N)) >= 2 * 4 * N


# FLOPs


def test_flops_of_products_equal_the_formulas():
    m, k, n = 8, 16, 4
    assert ceilings.flops(torch.mm, torch.ones(m, k), torch.ones(k, n)) == 2 * m * n * k
    conv, x = torch.nn.Conv2d(3, 5, 3, padding=1), torch.ones(2, 3, 6, 7)
    assert ceilings.flops(conv, x) == 2 * 2 * 5 * 6 * 7 * 3 * 9
    q = torch.ones(2, 3, 8, 4)  # (batch, heads, seq, dim): two products
    attention = torch.nn.functional.scaled_dot_product_attention
    assert ceilings.flops(attention, q, q, q) == 2 * (2 * 2 * 3 * 8 * 8 * 4)
    lstm = torch.nn.LSTM(4, 8)
    seen = ceilings._traffic.count(lstm, torch.ones(5, 2, 4))
    assert seen.product_flops == 2 * 5 * 2 * (4 * 8 * 4 + 4 * 8 * 8)


def test_flops_of_products_equal_torchs_own_counter():
    from torch.utils.flop_counter import FlopCounterMode

    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5))
    x = torch.ones(2, 1, 8, 8)

    def step():
        model(x).sum().backward()

    with FlopCounterMode(display=False) as torchs:
        step()
    assert ceilings._traffic.count(step).product_flops == torchs.get_total_flops()


def test_training_is_three_times_the_forward_when_the_input_needs_a_gradient():
    layer, x = torch.nn.Linear(16, 16, bias=False), torch.ones(8, 16, requires_grad=True)
    forward = ceilings._traffic.count(layer, x).product_flops
    assert ceilings._traffic.count(lambda: layer(x).sum().backward()).product_flops == 3 * forward


def test_element_wise_flops_are_one_an_element_and_moving_is_none():
    assert ceilings.flops(lambda: (X * 2).tanh()) == 2 * N
    assert ceilings.flops(lambda: torch.cat([X, Y]).clone()) == 0


def test_inference_mode_and_compiled_functions_count_as_eager():
    layer, x = torch.nn.Linear(16, 4), torch.ones(8, 16)
    with torch.inference_mode():
        assert ceilings._traffic.count(layer, x).product_flops == 2 * 8 * 16 * 4
    compiled = torch.compile(layer)
    assert ceilings._traffic.count(compiled, x).product_flops == 2 * 8 * 16 * 4


def test_counting_leaves_the_module_and_the_random_state_alone():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
    state, rng = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    ceilings.bytes_moved(model, torch.randn(8, 4))
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    rng_after = torch.get_rng_state()
    torch.set_rng_state(rng)
    torch.randn(8, 4)
    assert torch.equal(rng_after, torch.get_rng_state())


# regimes, without a clock

PEAKS = ceilings.Peaks(
    device="cpu", threads=2, copy_bytes_per_s=1e10, flops_per_s={"float32": 1e11}, dispatch_s=1e-6,
    buffer_bytes=2**28, cache_bytes=2**20, utc="",
)  # fmt: skip
CALL = ceilings.Roofline(
    name="f", time_s=1e-2, bytes_moved=80_000_000, compulsory_bytes=20_000_000, flops=10_000_000, product_flops=0,
    dtype="float32", dispatches=5, scaling=1.0, is_compiled=False, peaks=PEAKS,
)  # fmt: skip


def test_shares_are_bytes_and_flops_over_the_ceilings():
    assert CALL.floors_s == pytest.approx({"memory": 8e-3, "compute": 1e-4, "overhead": 5e-6})
    assert CALL.shares == pytest.approx({"memory": 0.8, "compute": 0.01, "overhead": 0.0005})
    assert CALL.regime == "memory-bound"
    # Memory traffic falls from 80 to 20 MB: four times less.
    assert CALL.fusing_at_most == pytest.approx(4.0)


def test_products_make_it_compute_bound_and_low_precision_uses_its_own_ceiling():
    call = dataclasses.replace(CALL, flops=900_000_000, product_flops=900_000_000)
    assert call.regime == "compute-bound"
    faster = dataclasses.replace(PEAKS, flops_per_s={"float32": 1e11, "bfloat16": 4e11})
    low = dataclasses.replace(call, dtype="bfloat16", peaks=faster)
    assert low.floors_s["compute"] == pytest.approx(call.floors_s["compute"] / 4)
    # Not native here: judged by float32's ceiling.
    assert dataclasses.replace(call, dtype="bfloat16").floors_s == call.floors_s


def test_overhead_is_told_from_memory_by_operators_and_by_scaling():
    tiny = dataclasses.replace(CALL, time_s=2e-5, bytes_moved=8_000, compulsory_bytes=2_000, flops=1000, dispatches=10)
    assert dataclasses.replace(tiny, scaling=None).regime == "overhead-bound"
    assert dataclasses.replace(tiny, scaling=0.05).regime == "overhead-bound"
    # The time follows the work, so it is not the starting of operators that it waits for.
    assert dataclasses.replace(tiny, scaling=1.0).regime == "memory-bound"
    # The time does not care about the work although memory's floor is the largest.
    assert dataclasses.replace(CALL, scaling=0.1).regime == "overhead-bound"


@pytest.mark.parametrize("language", ["bn", "en"])
def test_display_in_both_languages(language):
    with lab.language.speaking(language):
        text, page = str(CALL), CALL._repr_html_()
        assert "80.0 MB" in text
        assert "80 %" in text
        assert CALL.name in page
        assert "0x" not in text + page + str(PEAKS)
        figure = ceilings.roofline_figure(CALL, dataclasses.replace(CALL, name="g", flops=10**9))
        assert "memory-bound" in figure.alt
        assert figure.svg() == ceilings.roofline_figure(CALL, dataclasses.replace(CALL, name="g", flops=10**9)).svg()
    assert CALL.facts() == {"bytes": 80_000_000, "regime": "memory-bound"}
    assert CALL.card()["peaks"]["flops_per_s"] == {"float32": 1e11}


# Ceilings that nothing reaches: whatever is timed stays far below them.
HIGH = dataclasses.replace(PEAKS, copy_bytes_per_s=1e18, flops_per_s={"float32": 1e18}, dispatch_s=1e-15)
NOW = dataclasses.replace(PEAKS, utc="now")


@pytest.mark.parametrize(
    ("recorded", "product", "copy", "judged_by"),
    [
        (HIGH, 0.5e18, 1e18, NOW),  # arithmetic at half its speed, as on a laptop that throttles
        (HIGH, 1e18, 0.6e18, NOW),  # memory, beside a busy neighbour
        (HIGH, 1e18, 1.4e18, NOW),  # recovered
        (HIGH, 0.9e18, 1.1e18, HIGH),  # as it was: the call is far from them for a reason of its own
    ],
)
def test_a_call_far_below_the_ceilings_is_judged_by_those_of_this_minute(
    recorded, product, copy, judged_by, monkeypatch
):
    monkeypatch.setattr(ceilings, "peaks", lambda refresh=False: NOW if refresh else recorded)
    monkeypatch.setattr(_peaks, "_product_rate", lambda *_: product)
    monkeypatch.setattr(_peaks, "_copy_rate", lambda *_: (0, copy))
    assert ceilings.roofline(torch.exp, torch.ones(100, 100), budget_s=0.05).peaks is judged_by


@pytest.mark.parametrize(
    ("shares", "is_in_cache", "doubtful"),
    [
        ({"memory": 0.8}, False, False),
        ({"memory": 0.1, "compute": 0.1, "overhead": 0.9}, False, False),  # the overhead is its ceiling
        ({"memory": 0.3, "compute": 0.4, "overhead": 0.2}, False, True),
        ({"memory": 1.5}, False, True),
        ({"memory": 1.5}, True, False),  # a cache is faster than the memory
        ({"compute": 1.3}, True, True),
    ],
)
def test_when_ceilings_are_doubted(shares, is_in_cache, doubtful):
    given = {"shares": {"memory": 0.0, "compute": 0.0} | shares, "is_in_cache": is_in_cache}
    call = type("Call", (ceilings.Roofline,), given)(**vars(CALL))
    assert ceilings._is_doubtful(call) is doubtful


COUNTERS = {
    "lab.roofline": lab.roofline, "lab.ceilings.bytes_moved": ceilings.bytes_moved,
    "lab.ceilings.compulsory_bytes": ceilings.compulsory_bytes, "lab.ceilings.flops": ceilings.flops,
    "lab.graphs.operators": graphs.operators, "lab.graphs.kernels": graphs.kernels,
    "lab.graphs.generated_source": graphs.generated_source, "lab.graphs.breaks": graphs.breaks,
    "lab.graphs.recompiles": lambda fn: graphs.recompiles(fn, [()]),
    "lab.graphs.compiled_regions": graphs.compiled_regions, "lab.graphs.fell_back": graphs.fell_back,
    "lab.graphs.collectives": graphs.collectives,
}  # fmt: skip


@pytest.mark.parametrize("language", ["bn", "en"])
@pytest.mark.parametrize("tool", COUNTERS)
def test_a_result_instead_of_a_function_says_what_to_type(tool, language):
    lab.use_language(language)
    with pytest.raises(NotTimeableError) as caught:
        COUNTERS[tool](torch.ones(3))
    assert f"`{tool}(f(x))`" in str(caught.value)
    right = "f, [x, y]" if tool.endswith("recompiles") else "f, x"
    assert f"`{tool}({right})`" in str(caught.value)
    assert any("ঀ" <= letter <= "৿" for letter in str(caught.value)) is (language == "bn")


@pytest.mark.parametrize("language", ["bn", "en"])
def test_roofline_raises_what_measure_raises(language):
    lab.use_language(language)
    with pytest.raises(CallFailedError, match="ZeroDivisionError"):
        lab.roofline(lambda x: x / (1 // 0), torch.ones(3))
    with pytest.raises(NotTimeableError, match=r"`lab\.roofline`.*list\(items\)"):
        lab.roofline(torch.add, iter([1]))


def test_halving_the_inputs():
    x, w, b = torch.ones(8, 4), torch.ones(4, 4), torch.ones(8, 4)
    first = next(iter(ceilings._halved((x, w, b, 3))))
    assert [tuple(v.shape) for v in first[:3]] == [(4, 4), (4, 4), (4, 4)]
    square = list(ceilings._halved((torch.ones(8, 8), torch.ones(8, 8))))
    assert [tuple(v.shape) for v in square[1]] == [(4, 8), (8, 8)]
    assert list(ceilings._halved((3,))) == []


# measured


@pytest.mark.slow
def test_peaks_are_measured_once_and_plausible():
    top = lab.peaks()
    assert lab.peaks() is top
    assert 1e8 < top.copy_bytes_per_s < 2e13
    assert 1e8 < top.flops_per_s["float32"] < 1e15
    assert 1e-8 < top.dispatch_s < 1e-3
    assert top.buffer_bytes >= 4 * top.cache_bytes or top.buffer_bytes >= 256 * 2**20
    assert "machine" in top.card()


@pytest.mark.timing
def test_copy_ceiling_is_what_a_plain_copy_reaches():
    """The bandwidth of a shared machine changes by half from one minute to the next: the two take turns."""
    import time

    source, target = torch.ones(2**26), torch.zeros(2**26)

    def best_s(runs):
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            target.copy_(source)
            times.append(time.perf_counter() - start)
        return min(times)

    ceiling = plain = 0.0
    for _ in range(6):
        plain = max(plain, 2 * 2**28 / best_s(30))
        ceiling = max(ceiling, lab.peaks(refresh=True).copy_bytes_per_s)
        if ceiling == pytest.approx(plain, rel=0.1):
            break
    assert ceiling == pytest.approx(plain, rel=0.25)


@pytest.mark.timing
def test_regimes_of_three_known_calls():
    big = torch.randn(2**24)
    assert lab.roofline(torch.relu, big).regime == "memory-bound"
    a = torch.randn(1024, 1024)
    product = lab.roofline(torch.mm, a, a)
    assert product.regime == "compute-bound"
    assert 0.5 < product.shares["compute"] < 1.2
    small = torch.randn(16)
    assert lab.roofline(lambda x: (x * 2 + 1).relu(), small).regime == "overhead-bound"
