"""What only a CUDA GPU can show: its clock, its memory, CUDA graphs, Triton kernels, and NCCL where there are two.

Skipped elsewhere; ``make gpu`` runs it. Each test holds labkit to something else: torch, a kernel of known length, a
number from the driver.
"""

from __future__ import annotations

import copy
import importlib.util
import re
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import pytest

import labkit as lab
from labkit import hardware, launch
from labkit._peak_memory import peak_bytes
from labkit.lessons.activations import alive_bytes

torch = pytest.importorskip("torch")
from labkit import _chains, _stopwatch, graphs  # noqa: E402
from labkit._correctness import ResultsDifferError  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600), pytest.mark.usefixtures("english")]
ROOT = Path(__file__).resolve().parent.parent
RANKS = ROOT / "tests" / "ranks"
MIB = 2**20


@pytest.fixture
def two_gpus():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")


@pytest.fixture
def triton():
    """Decided in the test: here, where no GPU is, the tests are collected all the same."""
    if not hardware.has_triton():
        pytest.skip("Triton does not run on this GPU")


def of_events(fn) -> float:
    """Seconds between two events around ``fn()``, the second time: what torch's documentation shows."""
    fn()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    fn()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3


# ---- time --------------------------------------------------------------------------------------------------------


def test_a_long_kernel_takes_what_the_events_say_on_the_gpu_and_by_the_wall():
    x = torch.ones(1, device="cuda")

    def long(x):
        torch.cuda._sleep(20_000_000)  # some ten milliseconds
        return x

    m = lab.measure(long, x, budget_s=2.0)
    truth_s = statistics.median(of_events(lambda: long(x)) for _ in range(5))  # now that its clocks are up
    assert truth_s > 2e-3
    assert m.device.startswith("cuda")
    assert m.device_median_s == pytest.approx(truth_s, rel=0.15)
    assert 0.98 * m.device_median_s <= m.median_s <= 1.2 * m.device_median_s + 100e-6


def test_a_product_takes_no_less_time_than_the_gpu_needs():
    x = torch.randn(4096, 4096, device="cuda")
    m = lab.measure(torch.mm, x, x, budget_s=1.0)
    assert 0.6 * m.median_s <= m.device_median_s <= 1.02 * m.median_s


def test_where_the_gpu_waits_for_the_host_its_own_time_is_far_below():
    """Two events around the same calls would say what the wall clock says."""
    x = torch.ones(1, device="cuda")

    def slow_to_launch(x):
        time.sleep(1e-3)
        return x + 1

    m = lab.measure(slow_to_launch, x, budget_s=1.0)
    assert m.median_s >= 1e-3
    assert m.device_median_s < 0.1 * m.median_s
    assert of_events(lambda: slow_to_launch(x)) > 0.9e-3


def test_many_small_kernels_are_launch_bound():
    x = torch.ones(1, device="cuda")

    def small(x):
        for _ in range(50):
            x = x + 1
        return x

    m = lab.measure(small, x, budget_s=1.0)
    assert 50 * 0.5e-6 < m.device_median_s < 0.8 * m.median_s


def test_sync_waits():
    done = torch.cuda.Event()
    torch.cuda._sleep(50_000_000)
    done.record()
    assert not done.query()
    lab.sync()
    assert done.query()


def test_a_cold_cache_is_cold():
    l2_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    assert l2_bytes > 0
    assert _stopwatch._flusher("cuda:0").__self__.nbytes >= 2 * l2_bytes
    x = torch.ones(l2_bytes // 4 // 4, device="cuda")  # a quarter of the cache
    warm = lab.measure(torch.sum, x, budget_s=0.5)
    cold = lab.measure(torch.sum, x, budget_s=0.5, cache="cold")
    assert cold.calls == 1
    assert cold.device_median_s >= 0.95 * warm.device_median_s


def test_the_copy_rate_is_that_of_events():
    peaks = lab.peaks()
    a = torch.ones(peaks.buffer_bytes // 4, device="cuda")
    b = torch.empty_like(a)
    by_events = 2 * a.nbytes / min(of_events(lambda: b.copy_(a)) for _ in range(10))
    assert peaks.copy_bytes_per_s == pytest.approx(by_events, rel=0.25)


def test_work_on_the_second_gpu_is_waited_for(two_gpus):
    assert torch.cuda.current_device() == 0
    x = torch.randn(4096, 4096, device="cuda:1")
    m = lab.measure(torch.mm, x, x, budget_s=1.0)
    assert m.device == "cuda:1"
    assert 2 * 4096**3 / m.median_s < 2e15  # an unsynchronised launch would claim a hundred times more
    assert 0.6 * m.median_s <= m.device_median_s <= 1.02 * m.median_s
    assert torch.cuda.current_device() == 0


# ---- memory ------------------------------------------------------------------------------------------------------


def one_after_the_other(device):
    torch.zeros(64 * MIB, dtype=torch.uint8, device=device)
    torch.zeros(64 * MIB, dtype=torch.uint8, device=device)


def both_at_once(device):
    return [torch.zeros(64 * MIB, dtype=torch.uint8, device=device) for _ in range(2)]


@pytest.mark.parametrize(("fn", "expected"), [(one_after_the_other, 64 * MIB), (both_at_once, 128 * MIB)])
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_the_peak_is_what_was_alive_at_once(fn, expected, device):
    before = torch.zeros(32 * MIB, dtype=torch.uint8, device=device)  # does not count
    for _ in range(2):
        assert expected <= peak_bytes(lambda: fn(device), torch.device(device)) <= expected + 2 * MIB
    assert before.sum() == 0
    left = 128 * MIB if fn is both_at_once else 0
    assert left <= alive_bytes(lambda: fn(device), device) <= left + 2 * MIB


# ---- the same answer ---------------------------------------------------------------------------------------------


def test_random_numbers_are_the_same_for_both():
    x = torch.ones(1000, device="cuda")

    def dropped(x):
        return torch.nn.functional.dropout(x, 0.5)

    assert lab.compare({"eager": dropped, "again": lambda x: dropped(x)}, x, budget_s=0.3).checked


def network(width: int = 256):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, width)]
    return torch.nn.Sequential(*layers).cuda()


def test_cuda_graphs_of_a_model_give_its_answers(triton):
    model, x = network().eval(), torch.randn(64, 256, device="cuda")
    graphed = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        c = lab.compare({"eager": model, "graphs": graphed}, x, budget_s=1.0)
        assert c.checked
        assert c.again(0.5).checked  # confirms the answers once more
        with pytest.raises(ResultsDifferError):
            lab.compare({"eager": model, "graphs": lambda x: graphed(x * 1.1)}, x, budget_s=1.0)
        for scale in (1.0, 2.0, 3.0):
            torch.testing.assert_close(graphed(scale * x), model(scale * x), rtol=1e-2, atol=1e-2)
        # They really are CUDA graphs: the memory of one answer is that of the next.
        held = graphed(x)
        graphed(2 * x)
        with pytest.raises(RuntimeError, match="overwritten"):
            held.sum().item()


def test_cuda_graphs_of_a_training_step_leave_the_same_gradients(triton):
    model, x = network(), torch.randn(64, 256, device="cuda")
    twin = copy.deepcopy(model)
    graphed = torch.compile(twin, mode="reduce-overhead")

    def eager():
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    def graphs():
        twin.zero_grad()
        loss = graphed(x).square().mean()
        loss.backward()
        return loss.detach()

    c = lab.compare({"eager": eager, "graphs": graphs}, budget_s=1.5)
    assert c.checked
    assert c.again(0.5).checked
    with torch.no_grad():
        twin[0].weight.mul_(1.5)
    with pytest.raises(ResultsDifferError):
        lab.compare({"eager": eager, "graphs": graphs}, budget_s=1.0)


def test_advice_tries_cuda_graphs(triton):
    model, x = network(512).eval(), torch.randn(8, 512, device="cuda")
    row = lab.advise(model, (x,), budget_s=120, only=["reduce-overhead"], progress=None).row("reduce-overhead")
    assert row.status == "measured", row.note
    assert row.error < 1e-2


# ---- Triton ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [1, 3, 5, 12])
def test_the_labs_triton_chain_is_torchs(length, dtype, triton):
    if dtype == "bfloat16" and not hardware.bf16_native():
        dtype = "float16"
    for n in (1, 1023, 1024, 100_003):
        x = torch.randn(n, device="cuda").to(getattr(torch, dtype))
        x[-1] = float("nan")
        expected = _chains.python_chain(length)(x, torch.empty_like(x))
        fused = _chains.fused_chain(length, x.dtype)
        room = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 1e-1}[dtype]
        torch.testing.assert_close(fused(x, torch.ones_like(x)), expected, rtol=room, atol=room, equal_nan=True)
        assert x.isnan().sum() == 1  # nothing is written beside the output


def lesson_module(folder: Path, *names: str):
    """A module with these functions of lesson 03's source; Triton reads a kernel's source from its file."""
    text = (ROOT / "notebooks/src/03_kernel_fusion.md").read_text(encoding="utf-8")
    parts = [re.search(rf"^(@triton.jit\n)?def {name}\(.*?(?=\n\n\n|\n```)", text, re.M | re.S)[0] for name in names]
    path = folder / "of_lesson_03.py"
    path.write_text("\n\n\n".join(["import triton\nimport triton.language as tl", *parts]) + "\n")
    spec = importlib.util.spec_from_file_location("of_lesson_03", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lessons_own_triton_kernels_are_torchs(tmp_path, triton):
    lesson = lesson_module(tmp_path, "chain_kernel", "fused_triton", "residual_kernel")
    for n in (1, 1024, 10_000):
        x, r = torch.randn(2, n, device="cuda").unbind()
        expected = torch.relu(x * 0.5 + 1.0) * 2.0 - 3.0
        torch.testing.assert_close(lesson.fused_triton(x, torch.ones_like(x)), expected)
        out = torch.ones_like(x)
        lesson.residual_kernel[(-(-n // 64),)](x, r, out, n, BLOCK=64)
        torch.testing.assert_close(out, torch.relu(x * 0.5 + r))


def test_a_fused_chain_is_one_triton_kernel(triton):
    x = torch.randn(100_000, device="cuda")
    assert graphs.kernels(lambda x: torch.relu(x * 0.5 + 1.0) * 2.0 - 3.0, x).fused == 1


def test_the_fusion_lab_measures_its_triton_kernel(triton):
    value = lab.widgets.FusionLab().run(length=5, n=2**24, budget_s=2.0)
    assert value.comparison.checked
    assert value.comparison.measurements["by hand"].device.startswith("cuda")
    assert (value.kernels["eager"], value.kernels["by hand"], value.kernels["compiled"]) == (5, 1, 1)
    assert value.comparison.ratio("by hand").low > 1.3  # a fifth of the trips to memory


# ---- energy ------------------------------------------------------------------------------------------------------


def test_energy_is_what_the_driver_counts():
    x = torch.randn(4096, 4096, device="cuda")
    median_s = lab.measure(torch.mm, x, x, budget_s=0.5).median_s
    found = lab.cost.energy(torch.mm, x, x)
    if found.joules is None:
        pytest.skip(f"no energy counter: {found.source}")
    watts = found.joules / median_s
    assert found.source == "NVML"
    assert 5 < watts < 3000
    if shutil.which("nvidia-smi"):
        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid).removeprefix("GPU-")
        query = ["nvidia-smi", f"--id=GPU-{uuid}", "--query-gpu=power.limit", "--format=csv,noheader,nounits"]
        said = subprocess.run(query, capture_output=True, text=True).stdout.strip()
        if re.fullmatch(r"[0-9.]+", said):
            assert watts < 1.5 * float(said)


# ---- ranks -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def truth():
    from tests.test_parallel_scripts import tiny

    return tiny.alone()


def run(name: str, ranks: int, **options) -> list[dict]:
    return launch.torchrun(RANKS / f"{name}.py", ranks, show=False, **options)


def held_to(truth, weights: dict, losses: list) -> None:
    from tests.test_parallel_scripts import max_gap

    assert max_gap(weights, truth[0]) < 1e-9  # a GPU adds in another order than the CPU that made the truth
    assert losses == pytest.approx(truth[1], abs=1e-9)


def on_their_own_gpus(results: list[dict]) -> bool:
    return [result["device"] for result in results] == [f"cuda:{rank}" for rank in range(len(results))]


@pytest.mark.skipif(not torch.distributed.is_nccl_available(), reason="this torch has no NCCL")
def test_one_rank_on_one_gpu_takes_nccl(truth):
    [result] = run("ddp", 1)
    assert (result["device"], result["backend"]) == ("cuda:0", "nccl")
    held_to(truth, result["weights"], result["losses"])


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "tensor_parallel_torch"])
def test_two_ranks_beside_one_gpu_take_gloo_and_the_cpu(name, truth, monkeypatch):
    """NCCL refuses two ranks on one GPU; and what torch puts on a GPU by itself must not land there."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    results = run(name, 2)
    assert [(result["device"], result["backend"]) for result in results] == [("cpu", "gloo")] * 2
    held_to(truth, results[0]["weights"], results[0]["losses"])


@pytest.mark.parametrize("ranks", [2, 3])
def test_nccl_sums_and_the_ring_of_neighbours_too(ranks, two_gpus):
    if torch.cuda.device_count() < ranks:
        pytest.skip("needs two GPUs, or three")
    results = run("ring", ranks)
    assert on_their_own_gpus(results)
    assert {result["backend"] for result in results} == {"nccl"}
    expected = [ranks * number + 100 * sum(range(ranks)) for number in range(10)]
    assert all(result["x"] == expected and result["equal"] for result in results)


@pytest.mark.parametrize("name", ["averaged", "ddp", "fsdp2", "tensor_parallel_torch"])
def test_training_over_nccl_equals_one_process(name, two_gpus, truth):
    results = run(name, 2)
    assert on_their_own_gpus(results)
    for result in results:
        assert result["backend"] == "nccl"
        held_to(truth, result["weights"], result["losses"])
    if name == "fsdp2":
        whole = 8 * sum(p.numel() for p in tiny_network().parameters())
        assert [result["parameter_bytes"] for result in results] == [whole // 2] * 2


def tiny_network():
    from tests.test_parallel_scripts import tiny

    return tiny.network("cpu")


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_pipeline_over_nccl_equals_one_process(schedule, two_gpus, truth):
    results = run("pipeline", 2, values={"schedule": schedule})
    assert on_their_own_gpus(results)
    held_to(truth, {name: value for result in results for name, value in result["weights"].items()},
            results[-1]["losses"])  # fmt: skip


def test_lesson_08s_stages_over_nccl(two_gpus):
    from labkit.lessons import schedules

    orders = {name: schedules.orders(schedule, 2, 6) for name, schedule in schedules.SCHEDULES.items()}
    results = run("stages", 2, values={"orders": orders, "layers": 2, "width": 256, "rows": 64, "turns": 2})
    assert on_their_own_gpus(results)
    assert max(gap for result in results for gap in result["gaps"].values()) < 1e-2


def test_lesson_07s_lab_scales_over_nccl(two_gpus):
    value = lab.widgets.DataParallelLab().run(width=512, batch=1024, ranks=2, rounds=5)
    assert {m.device for m in value.speed.measurements.values()} == {"cuda"}
    assert value.gradient_bytes == 6 * (512 * 512 + 512) * 4
