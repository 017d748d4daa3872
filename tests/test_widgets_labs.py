"""What each lab makes of a measurement: figures hold the values, tables and reasons the counted facts. Nothing is
compiled here, and times come from fake clocks or are given."""

import dataclasses
import math

import pytest
import torch

from labkit import _chains, _fusion_lab, _timing_lab, advisor, comparison, cost, timing
from labkit._compile_lab import CompileLab
from labkit._compiled_model import Compiled, made, step_of
from labkit._correctness import ResultsDifferError
from labkit._cost_lab import CostLab
from labkit._decision_lab import DecisionLab
from labkit._first_look import first_look
from labkit._fusion_lab import Fusion, FusionLab
from labkit._kernel_lines import KernelCall, KernelLines, _lines
from labkit._lab_source import LabSource
from labkit._roofline_lab import RooflineLab, call
from labkit._statistics import Ratio
from labkit._timing_lab import Timing, TimingLab

pytestmark = pytest.mark.usefixtures("english")


def measurement(name, median_s, first_s=0.1):
    return timing.Measurement(name=name, times_s=(median_s,) * 10, first_s=first_s, device="cpu", threads=2, calls=1,
                              cache="warm", stopped="settled", inputs=(), utc="2026-01-01T00:00:00+00:00")  # fmt: skip


def compared(medians_s, baseline):
    """A Comparison with these medians and narrow intervals."""
    times = {name: medians_s[baseline] / time_s for name, time_s in medians_s.items() if name != baseline}
    ratios = {name: Ratio(r, 0.99 * r, 1.01 * r) for name, r in times.items()}
    return comparison.Comparison({name: measurement(name, time_s) for name, time_s in medians_s.items()}, ratios,
                                 baseline, 0.03, 1.0, True)  # fmt: skip


def drawn_x(figure):
    """The value of every interval, in the order drawn."""
    return [float(one.lines[0].get_xdata()[0]) for one in figure.axes[0].containers]


# TimingLab


def timing_value():
    return Timing("sort", "one", ((1.0, 1.0), (2.0, 1.0), (1.0, 4.0)), compared({"A": 1.0, "B": 1.0}, "A"))


def test_timing_counts_false_winners_in_both_directions():
    value = timing_value()
    assert value.naive_ratios == (1.0, 2.0, 0.25)
    assert (value.false_winners, value.worst) == (2, 4.0)


def test_timing_draws_what_it_returned():
    lab, value = TimingLab(), timing_value()
    figure = lab.figure(value, 3.0)
    assert drawn_x(figure) == [1.0, 2.0, 0.25, 1.0]  # three trials, then lab.compare
    assert "your guess" in [line.get_label() for line in figure.axes[0].lines]
    assert "2 of 3 trials" in lab.verdict(value)
    assert "a winner in 2 of 3 trials" in str(lab.table(value))
    assert "processor busy: 1." in " ".join(lab.why(value))


def test_the_naive_trials_use_the_clock_as_people_do(monkeypatch):
    monkeypatch.setattr(comparison, "compare", lambda ways, **_options: compared(dict.fromkeys(ways, 1.0), "A"))
    ticks = iter([0.0, 1.0, 3.0, 10.0, 14.0, 15.0])
    value = _timing_lab.time_both(lambda: None, work="sort", load="none", trials=2, budget_s=1,
                                  clock=lambda: next(ticks))  # fmt: skip
    assert value.singles == ((1.0, 2.0), (4.0, 1.0))


# FusionLab


@pytest.mark.parametrize("length", [1, 2, 3, 5, 7, 12])
def test_every_form_of_a_chain_computes_the_same(length):
    x, out, mine = torch.randn(1000), torch.zeros(1000), torch.zeros(1000)
    expected = x
    for k in range(length):
        expected = [lambda v: v * 0.5, lambda v: v + 1, torch.relu, lambda v: v * 2, lambda v: v - 3][k % 5](expected)
    assert torch.allclose(_chains.eager_chain(length)(x, out), expected)
    assert torch.allclose(_chains.python_chain(length)(x, mine), expected)
    assert _chains.cpp_source(length).count("v = ") == length + 1  # one more reads the element
    apart, fused = (_chains.bytes_moved(length, 1000, 4, fused=fused) for fused in (False, True))
    assert apart == length * fused


def test_the_bytes_of_a_chain_are_what_the_operators_move():
    from labkit.lessons.traffic import traffic

    x = torch.randn(4096)
    counted = traffic(_chains.eager_chain(5), x, torch.zeros(4096))
    assert counted.kernels == 5
    assert counted.bytes == _chains.bytes_moved(5, 4096, 4, fused=False)


def fusion_value(**changes):
    found = compared({"eager": 4.0, "by hand": 1.0, "compiled": 2.0, "copy_": 0.8}, "eager")
    lines = KernelLines((KernelCall("cpp_fused_mul_0", ("v1 = x * 0.5",), 8000),), LabSource({"k": "a < b"}, {}))
    value = Fusion(5, 1000, "float32", found, {"eager": 40000, "by hand": 8000, "compiled": 8000, "copy_": 8000},
                   {"eager": 5, "by hand": 1, "compiled": 1, "copy_": 1}, lines, {})  # fmt: skip
    return dataclasses.replace(value, **changes)


def test_fusion_names_the_best_and_its_share_of_the_copy():
    lab, value = FusionLab(), fusion_value()
    assert value.best == "by hand"
    assert value.copy_share == pytest.approx(0.8)
    assert "4.00 times as fast" in lab.verdict(value)
    assert "80% of the copy's speed" in lab.verdict(value)
    assert "at most 5.00 times" in lab.why(value)[0]
    assert "fits into the cache" in " ".join(lab.why(value))
    assert "nothing to fuse" in " ".join(lab.why(fusion_value(length=1)))


def test_fusion_draws_and_links_what_it_returned():
    lab, value = FusionLab(), fusion_value()
    bars = [patch.get_width() for patch in lab.figure(value, None).axes[0].patches]
    assert bars == pytest.approx([4.0, 2.0, 5.0])
    page = lab.more(value)
    assert "v1 = x * 0.5" in page
    assert "cpp_fused_mul_0" in page
    assert "8.00 kB" in page
    assert "a &lt; b" in page
    left = fusion_value(left_out={"by hand": "not written"})
    assert "not written" in str(lab.table(left))


def test_a_fused_kernel_with_another_result_is_not_timed():
    x = torch.ones(8)
    ways = {"eager": lambda: x, "by hand": lambda: x + 1e-3}
    with pytest.raises(ResultsDifferError, match="`by hand` computes something else"):
        _fusion_lab._require_equal(ways, "float32")
    _fusion_lab._require_equal(ways, "bfloat16")
    with pytest.raises(ResultsDifferError):
        _fusion_lab._require_equal({"eager": lambda: x, "by hand": lambda: x * math.nan}, "float32")


def test_lines_are_the_innermost_of_each_stack_in_the_order_of_the_code():
    third = '  File "m.py", line 3, in f\n    return x + 1\n'
    stacks = ['  File "m.py", line 9, in forward\n    y = f(x)\n' + third + "      ^^\n",
              '  File "m.py", line 2, in f\n    x = 2 * x\n', third]  # fmt: skip
    assert _lines(stacks) == ("x = 2 * x", "return x + 1")
    assert _lines(()) == ()


def test_a_first_look_takes_the_quickest_of_the_calls_in_its_time():
    ticks = iter([0.0, 0.0, 0.06, 0.06, 0.06, 0.08, 0.08, 0.09, 0.2, 0.2])
    assert first_look(lambda: None, clock=lambda: next(ticks)) == pytest.approx(0.02)


@pytest.mark.slow
def test_a_chain_is_fused_for_real_and_its_lines_are_found():
    value = FusionLab().run(length=5, n=2**16, dtype="float32", budget_s=0.5)
    [kernel] = value.lines.calls
    assert kernel.lines == (*(f"v{k} = {text}" for k, text in enumerate(
        ["x * 0.5", "v1 + 1.0", "torch.relu(v2)", "v3 * 2.0", "v4 - 3.0"], 1)), "return out.copy_(v5)")  # fmt: skip
    assert value.bytes_moved["compiled"] == kernel.bytes_moved == 2 * 4 * 2**16
    assert value.comparison.names == ["eager", "by hand", "compiled", "copy_"]


# CompileLab


def compiled_value(fast_s=0.5, first_s=4.5, **changes):
    found = compared({"eager": 1.0, "torch.compile": fast_s}, "eager")
    value = Compiled("mlp", "inference", "torch.compile", 8, found, first_s, 24, None, {}, None, False, None)
    return dataclasses.replace(value, **changes)


def test_compile_time_is_paid_back_where_the_curves_cross():
    lab, value = CompileLab(), compiled_value()
    assert value.compile_s == pytest.approx(4.0)
    assert value.pays_from.steps == cost.break_even(4.0, 1.0, 0.5).steps == 8
    figure = lab.figure(value, 4.0)
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in figure.axes[0].lines}
    assert lines["eager"] == ([0, 4, 8, 12, 16], [0.0, 4.0, 8.0, 12.0, 16.0])
    assert lines["torch.compile"][1] == pytest.approx([4.0, 6.0, 8.0, 10.0, 12.0])
    assert lines["your guess"][1] == pytest.approx([4.0, 5.0, 6.0, 7.0, 8.0])
    assert "from step 8 on" in lab.verdict(value)


def test_what_never_pays_is_drawn_and_said_all_the_same():
    lab, value = CompileLab(), compiled_value(fast_s=1.25)
    assert "never pays" in lab.verdict(value)
    assert len(lab.figure(value, None).axes[0].lines) == 2
    assert "ran eagerly" in " ".join(lab.why(compiled_value(fell_back=True)))


def test_a_way_that_is_not_here_is_refused_in_words():
    with pytest.raises(ValueError, match="inference only"):
        CompileLab().run(family="conv_stack", task="training")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="is for a GPU"):
            CompileLab().run(way="max-autotune")


def test_the_models_are_equal_every_time_without_dropout_and_take_a_share_of_the_batch():
    (one, inputs), (other, _) = made("encoder", "training", 0.25), made("encoder", "training", 0.25)
    assert len(inputs[0]) == 2
    steps = [step_of(model, inputs, "training") for model in (one, other)]
    assert [steps[0]().item() for _ in range(2)] == [steps[1]().item() for _ in range(2)]


@pytest.mark.slow
def test_torchscript_is_compared_for_real():
    value = CompileLab().run(family="conv_stack", way="TorchScript", share=0.25, budget_s=0.5)
    assert value.script_kinds
    assert value.batch == 2
    assert "prim::mkldnn_convolution" in value.kernels_text or torch.cuda.is_available()


@pytest.mark.slow
@pytest.mark.parametrize(("family", "way"), [("mlp", "torch.compile"), ("mlp", "TorchScript"),
                                             ("conv_silu", "torch.compile")])  # fmt: skip
def test_a_training_step_is_compiled_for_real(family, way):
    """Losses and gradients agreed, or nothing would have been timed; the backward is compiled too.

    The gradients of conv_silu's biases, in front of batch-norms, are zero by mathematics.
    """
    value = CompileLab().run(family=family, task="training", way=way, share=0.25, budget_s=0.5)
    assert (value.task, value.comparison.checked, value.fell_back) == ("training", True, False)
    if way == "torch.compile" and family == "mlp":
        inference = CompileLab().run(family=family, task="inference", way=way, share=0.25, budget_s=0.5)
        assert value.kernels.total > inference.kernels.total > 0
        assert value.breaks is not None
    lab = CompileLab()
    assert lab.table(value).rows[1][0] == way
    assert way in lab.verdict(value)


# DecisionLab


def advice(**best):
    eager = advisor.Row("eager", "measured", Ratio(1, 1, 1), "same", 0.0, 0.1, 0, 1000)
    fast = advisor.Row("compiled", "measured", Ratio(2.0, 1.9, 2.1), "faster", 1e-7, 3.0, 60, 800, code="torch.compile")
    wrong = advisor.Row("mine", "wrong", error=0.5, note="too far away")
    return advisor.Advice((eager, dataclasses.replace(fast, **best), wrong), False, "cpu", 0.1, True, 9.0)


def test_the_decision_is_the_advice():
    lab, value = DecisionLab(), advice()
    assert lab.measured(value) == Ratio(2.0, 1.9, 2.1)
    assert "Use compiled" in lab.verdict(value)
    assert "▶ compiled" in str(lab.table(value))
    assert "too far away" in str(lab.table(value))
    labels = [text.get_text() for text in lab.figure(value, 1.5).axes[0].get_yticklabels()]
    assert labels == ["eager (baseline)", "compiled (faster)"]
    assert "torch.compile" in lab.more(value)


def test_a_model_of_ones_own_goes_to_advise(monkeypatch):
    seen = {}
    monkeypatch.setattr(advisor, "advise", lambda model, inputs, **given: seen.update(given, model=model) or advice())
    model = torch.nn.Linear(2, 2)
    lab = DecisionLab(model=model, inputs=torch.ones(1, 2), loss=torch.sum)
    assert [control.name for control in lab.controls()] == ["budget_s"]
    lab.run(budget_s=5)
    assert (seen["model"], seen["loss"], seen["budget_s"]) == (model, torch.sum, 5)


# CostLab


def test_costs_are_the_sums_of_the_cost_module():
    value = CostLab().run(step_s=0.5, ratio=2.0, once_s=0.0, steps=7200, rate_per_hour=100, watts=500, price_kwh=10)
    assert (value.before.hours, value.after.hours) == (1.0, 0.5)
    assert value.saved == pytest.approx(0.5 * 100 + 0.5 * 0.5 * 10)
    assert value.spent(7200) == pytest.approx((value.money(value.before), value.money(value.after)))


def test_costs_are_drawn_with_the_guess_and_called_computed():
    lab = CostLab(step_s=1.0, ratio=2.0, once_s=0.0, steps=3600, rate_per_hour=100)
    lab.run(guess=20)
    lines = {line.get_label(): list(line.get_ydata()) for line in lab.result.figure.axes[0].lines}
    assert (lines["now"][-1], lines["after the change"][-1], lines["your guess"][-1]) == pytest.approx((100, 50, 80))
    assert "computed" in lab.title()
    assert "You guessed 20.00; it comes to 50.00." in str(lab.result)


@pytest.mark.parametrize(("name", "unit"), [("PipelineLab", "%"), ("MemoryLab", " GB")])
def test_what_is_worked_out_is_not_called_measured(name, unit):
    from labkit import widgets

    lab = getattr(widgets, name)()
    lab.run(guess=50)
    said = lab.beside(lab.result.outcome)
    assert said.startswith(f"You guessed 50{unit}; it comes to ")
    assert "measure" not in said


def test_a_slower_change_costs_more_and_advice_fills_the_fields():
    lab = CostLab(advice())
    assert lab.defaults()["step_s"] == 0.1
    assert lab.defaults()["ratio"] == 2.0
    assert lab.defaults()["once_s"] == pytest.approx(2.9)
    lab.run(ratio=0.5)
    assert "costs" in lab.verdict(lab.value)
    assert "never pays" in lab.why(lab.value)[0]


def test_a_change_that_changes_nothing_is_neither_a_gain_nor_a_loss():
    best_is_eager = dataclasses.replace(advice(), rows=advice().rows[:1])
    lab = CostLab(best_is_eager)
    assert best_is_eager.best.name == "eager"
    assert lab.defaults()["once_s"] == 0
    lab.run()
    assert lab.verdict(lab.value) == "In money the change makes no difference."
    lab.run(once_s=1e-6)
    assert lab.verdict(lab.value) == "In money the change makes no difference."
    assert "-0.00" not in str(lab.result)


# RooflineLab


def roofline_value(time_s=1e-3, **changes):
    from labkit._peaks import Peaks
    from labkit.ceilings import Roofline

    top = Peaks("cpu", 2, 10e9, {"float32": 100e9}, 5e-6, 2**28, 2**25, "2026-01-01T00:00:00+00:00")
    value = Roofline("relu", time_s, 8_000_000, 8_000_000, 1_000_000, 0, "float32", 1, 1.0, False, top)
    return dataclasses.replace(value, **changes)


def test_the_roofline_says_the_share_of_the_nearest_ceiling():
    lab, value = RooflineLab(), roofline_value()
    assert lab.measured(value) == pytest.approx(80.0)  # 8 MB at 10 GB/s are 0.8 ms of the millisecond
    assert "memory-bound" in lab.verdict(value)
    assert "80 %" in str(lab.table(value))
    figure = lab.figure(value, 40.0)
    points = [(line.get_label(), line.get_xdata()[0], line.get_ydata()[0]) for line in figure.axes[0].lines[-2:]]
    assert ("your guess", pytest.approx(0.125), pytest.approx(0.5e9)) in points
    assert "More than the ceiling" in " ".join(lab.why(roofline_value(1e-4, compulsory_bytes=2**26)))


@pytest.mark.parametrize("operation", ["relu", "chain", "softmax", "layer-norm", "matrix-vector", "matrix product"])
def test_every_operation_can_be_called(operation):
    fn, args = call(operation, 16)
    assert fn(*args).shape[0] == 16


@pytest.mark.parametrize(("lab", "says"), [(CostLab, "Worked out"), (TimingLab, "A saved run of")])
def test_a_saved_run_says_whether_it_was_measured(lab, says):
    from labkit._lab_panel import saved

    one = lab()
    one.run()
    assert says in saved(one)["text/plain"]
