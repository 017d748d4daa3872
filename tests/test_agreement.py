"""The correctness gate: what counts as the same answer, and what is refused."""

from __future__ import annotations

import collections
import copy
import dataclasses
import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import labkit as lab
from labkit import _agreement, models
from labkit._callables import CallFailedError
from labkit._correctness import DevicesDifferError, Gate, InputsChangedError, ResultsDifferError
from labkit._stopwatch import Stopwatch
from tests.test_timing import needs_mxnet

Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple = ()


@pytest.fixture(autouse=True)
def _english():
    lab.use_language("en")
    torch.manual_seed(0)


def difference(expected, got, **options):
    return _agreement.first_difference(_agreement.answer(expected), _agreement.answer(got), **options)


def compared(f, g, *args, **options):
    """A comparison in which only the gate matters: the clock moves on a millisecond whenever it is read."""
    ticks = itertools.count(step=1_000_000)
    return lab.compare({"eager": f, "other": g}, *args, budget_s=0.05, clock=lambda: next(ticks), **options)


X = torch.linspace(-3, 3, 1001)

SAME = [
    (X, X.clone()),
    (X, X + 1e-6),
    (X.half(), (X.half().float() * 1.001).half()),
    (X.bfloat16(), (X.bfloat16().float() * 1.005).bfloat16()),
    (X, X.bfloat16()),  # the coarser dtype's tolerance counts
    (X.numpy(), X),
    ((X, {"a": [X]}), (X + 1e-6, {"a": [X]})),
    (Pair(X, 1), Pair(X, 1)),
    (Output(X, (X,)), Output(X, (X,))),
    (torch.tensor([1.0, float("nan"), float("inf")]), torch.tensor([1.0, float("nan"), float("inf")])),
    (torch.tensor([1, 2, 3]), torch.tensor([1, 2, 3])),
    (0.1 + 0.2, 0.3),
    (None, None),
    ("text", "text"),
    (torch.empty(0, 3), torch.empty(0, 3)),
    (torch.complex(X, X), torch.complex(X, X)),
    (X.to_sparse(), X.to_sparse()),
]

DIFFERENT = [
    (X, X + 1e-3, "output", "1001 of 1001"),
    (X, torch.cat([X[:-1], torch.tensor([9.0])]), "output", "[1000]"),
    (F.gelu(X), F.gelu(X, approximate="tanh"), "output", "off by"),
    (X, X[:-1], "output", "(1000,) instead of (1001,)"),
    (X, X.reshape(1, -1), "output", "(1, 1001)"),
    ({"logits": X, "loss": X}, {"logits": X, "loss": X + 1}, 'output["loss"]', "off by"),
    ({"logits": X}, {"logits": X, "extra": X}, 'output["extra"]', "one of the two"),
    ([X, X], [X], "output[1]", "one of the two"),
    (Output(X, (X,)), Output(X, (X + 1,)), "output.hidden[0]", "off by"),
    (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0]), "output", "[1]"),
    (torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("nan")]), "output", "nan instead of 2"),
    (torch.tensor([1, 2]), torch.tensor([1, 3]), "output", "3 instead of 2"),
    (torch.tensor([True]), torch.tensor([False]), "output", "off by"),
    (X, None, "output", "one of the two"),
    (1.0, 1.1, "output", "off by"),
    ("a", "b", "output", "'b' instead of 'a'"),
    (X.bfloat16(), X.bfloat16() * 1.2, "output", "off by"),
]


@pytest.mark.parametrize(("expected", "got"), SAME)
def test_same(expected, got):
    assert difference(expected, got) is None


@pytest.mark.parametrize(("expected", "got", "where", "says"), DIFFERENT)
def test_different(expected, got, where, says):
    found = difference(expected, got)
    assert found.where == where
    assert says in found.text


def test_largest_difference_and_its_place_are_named():
    wrong = X.clone().reshape(7, 11, 13)
    wrong[3, 4, 5] += 0.5
    wrong[6, 0, 0] += 0.25
    found = difference(X.reshape(7, 11, 13), wrong)
    assert "up to 0.5 at [3, 4, 5]" in found.text
    assert "2 of 1001" in found.text


def test_chunks_do_not_hide_a_late_error(monkeypatch):
    monkeypatch.setattr(_agreement, "_CHUNK", 100)
    wrong = X.clone()
    wrong[999] = 0
    assert "[999]" in difference(X, wrong).text


def test_tolerance_can_be_set():
    assert difference(X, X * 1.004, tolerance=1e-2) is None
    assert difference(X, X * 1.04, tolerance=1e-2)


@needs_mxnet
def test_mxnet_arrays():
    mx = lab.mx.load()
    a = mx.nd.array([[1.0, 2.0]])
    assert difference(a, a + 1e-6) is None
    assert "off by" in difference(a, a + 1).text
    assert compared(lambda x: x * 2, lambda x: x + x, a).checked


def test_model_outputs_of_transformers():
    outputs = pytest.importorskip("transformers.modeling_outputs")
    a = outputs.BaseModelOutput(last_hidden_state=X)
    assert difference(a, outputs.BaseModelOutput(last_hidden_state=X.clone())) is None
    assert difference(a, outputs.BaseModelOutput(last_hidden_state=X + 1)).where == 'output["last_hidden_state"]'


def test_fp32_gradients_get_more_room_than_outputs():
    expected = _agreement.answer(X, [("w", X)])
    got = _agreement.answer(X, [("w", X * 1.0005)])
    assert _agreement.first_difference(expected, got, gradients=1) is None
    assert _agreement.first_difference(expected, got).where == "gradient of w"


# The gate inside compare() -------------------------------------------------------------------------------------------


def test_refusal_names_output_difference_and_tolerance():
    with pytest.raises(ResultsDifferError) as caught:
        compared(lambda x: {"y": x * 2}, lambda x: {"y": x * 2 + 0.5}, X)
    text = str(caught.value)
    for part in ("`other` and `eager`", 'output["y"]', "0.5", "is allowed", "tolerance=", "check="):
        assert part in text
    lab.use_language("bn")
    with pytest.raises(ResultsDifferError, match="এক ফল দেয় না"):
        compared(lambda x: x, lambda x: x + 1, X)


def test_nothing_is_timed_before_the_answers_agree():
    calls = []
    with pytest.raises(ResultsDifferError):
        compared(lambda x: x, lambda x: calls.append(1) or x + 1, X)
    assert len(calls) <= 2


@pytest.mark.parametrize("change", [
    lambda x: x.mul_(2),
    lambda x: x.relu_(),  # a second call changes nothing more, but the first one's input is gone
    lambda x: x.copy_(x.sort().values),
    lambda x: x.add_(1).sub_(1).relu_(),
])
def test_input_changed_in_place_is_refused(change):
    x = torch.randn(100)
    with pytest.raises(InputsChangedError, match=r"args\[0\].*clone"):
        compared(change, change, x)


def test_numpy_input_changed_in_place_is_refused():
    with pytest.raises(InputsChangedError, match=r"args\[0\]"):
        compared(lambda a: a.sort() or a, lambda a: np.sort(a), np.random.default_rng(0).normal(size=50))


def test_preallocated_output_is_welcome():
    out = torch.empty(100)
    x = torch.randn(100)
    assert compared(lambda x, out: torch.add(x, 1, out=out), lambda x, out: torch.sub(x, -1, out=out), x, out).checked
    with pytest.raises(ResultsDifferError, match=r"args\[1\]"):
        compared(lambda x, out: torch.add(x, 1, out=out).sum() * 0, lambda x, out: torch.add(x, 2, out=out).sum() * 0,
                 x, out)


def test_a_cache_that_is_partly_overwritten_is_welcome():
    cache = torch.randn(8, 4)

    def attend(x, cache):
        cache[3] = x
        return cache.sum(0)

    assert compared(attend, attend, torch.randn(4), cache).checked


def test_integer_inputs_too():
    with pytest.raises(InputsChangedError):
        compared(lambda x: x.clamp_(min=0), lambda x: x.clamp_(min=0), torch.tensor([-1, 2, 3]))


def test_hidden_state_is_refused():
    total = torch.zeros(3)
    with pytest.raises(InputsChangedError, match="second time"):
        compared(lambda x: total.add_(x).clone(), lambda x: x, torch.ones(3))


def test_random_numbers_are_the_same_for_both_and_go_on_afterwards():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert compared(lambda x: F.dropout(x, 0.5), lambda x: F.dropout(x, 0.5), torch.ones(1000)).checked
    first_drawn_by_timing = torch.rand(3)
    assert not torch.equal(expected, first_drawn_by_timing)  # timing draws; only the gate puts its numbers back


def test_check_replaces_the_rule():
    seen = []
    compared(lambda x: x, lambda x: x + 1, X, check=lambda a, b: seen.append((a, b)) or bool((b > a).all()))
    assert len(seen) == 1
    assert torch.equal(seen[0][0], X)
    with pytest.raises(ResultsDifferError, match="your `check`"):
        compared(lambda x: x, lambda x: x, X, check=lambda a, b: False)
    with pytest.raises(CallFailedError, match="ZeroDivisionError"):
        compared(lambda x: x, lambda x: x, X, check=lambda a, b: 1 / 0)


def test_check_sees_the_baselines_output_as_it_was():
    buffer = torch.empty(2)
    seen = []
    compared(lambda: buffer.fill_(1), lambda: buffer.fill_(2),
             check=lambda a, b: seen.append((a.tolist(), b.tolist())) or True)
    assert seen == [([1, 1], [2, 2])]


def test_different_devices():
    with pytest.raises(DevicesDifferError, match=r"meta.*lab\.device\(\)"):
        compared(lambda x: x, lambda x: x.to("meta"), X)


def test_nothing_returned_is_said():
    c = compared(lambda: None, lambda: None)
    assert not c.checked
    assert "could not be compared" in str(c)


def test_a_candidate_that_raises():
    with pytest.raises(CallFailedError, match="other") as caught:
        compared(lambda x: x, lambda x: x @ torch.ones(3, 3), torch.ones(2, 2))
    assert isinstance(caught.value.__cause__, RuntimeError)


# Training steps ------------------------------------------------------------------------------------------------------


def make_step(model, x, y, optimizer=None, spoil=False):
    def step():
        model.zero_grad(set_to_none=True)
        out = model[0](x)
        loss = F.mse_loss(model[2](out.detach() if spoil else out), y)
        loss.backward()
        if optimizer:
            optimizer.step()
        return loss

    return step


@pytest.fixture
def training():
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    return model, torch.randn(32, 8), torch.randn(32, 2)


def test_training_steps_with_an_optimizer_start_from_the_same_weights(training):
    model, x, y = training
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    before = [p.detach().clone() for p in model.parameters()]
    c = compared(make_step(model, x, y, optimizer), make_step(model, x, y, optimizer))
    assert c.checked
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not optimizer.state_dict()["state"]


def test_a_missing_gradient_is_refused(training):
    model, x, y = training
    with pytest.raises(ResultsDifferError, match="gradients are 2 in number instead of 4"):
        compared(make_step(model, x, y), make_step(model, x, y, spoil=True))


def test_a_wrong_gradient_is_refused_although_the_loss_agrees(training):
    model, x, y = training

    def doubled():
        loss = make_step(model, x, y)()
        model[0].weight.grad.mul_(2)
        return loss

    with pytest.raises(ResultsDifferError, match=r"gradient of 0\.weight"):
        compared(make_step(model, x, y), doubled)


def test_a_gradient_that_is_only_rounding_beside_the_others_agrees():
    """Of a bias in front of a batch-norm: zero by mathematics, other rounding in every way of computing it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.SiLU())
    x = torch.randn(16, 3, 16, 16)

    def step(times: float = 1.0):
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        model[0].bias.grad.mul_(times)
        return loss

    def stays_small():
        step()
        return model[0].bias.grad.abs().max() < 1e-6 * model[1].weight.grad.abs().max()

    assert stays_small()
    assert compared(step, lambda: step(-1.0)).checked
    with pytest.raises(ResultsDifferError, match=r"gradient of 0\.bias"):
        compared(step, lambda: step(1e6))


def test_values_that_rounding_pushes_through_a_relu_refuse_nobody():
    """A gradient jumps where a value next to zero passes in one version only; among millions there is often one."""
    family = models.FAMILIES["convnet"]()
    rounds_otherwise = copy.deepcopy(family.model)
    for parameter in rounds_otherwise.parameters():
        parameter.data *= 1 + 4 * torch.finfo(torch.float32).eps * torch.randn_like(parameter).sign()

    def training(model, x, spoil: float = 1.0):
        def step():
            model.zero_grad()
            loss = family.loss(model(x))
            loss.backward()
            model.features[0].weight.grad.mul_(spoil)
            return loss

        return step

    def agrees(**ways):
        with Gate(ways, (), baseline="eager") as gate:
            for name, fn in ways.items():
                gate.open(name, lambda keep, fn=fn: Stopwatch(fn, (), name="", tool="", keep=keep))

    for places in range(1, 5):
        x = family.inputs[0].flatten().roll(places).view(family.inputs[0].shape)
        agrees(eager=training(family.model, x), other=training(rounds_otherwise, x))
        with pytest.raises(ResultsDifferError, match=r"gradient of features\.0\.weight"):
            agrees(eager=training(family.model, x), other=training(family.model, x, spoil=1.5))


def test_gradients_of_an_input():
    x = torch.randn(5, requires_grad=True)

    def step(x, factor):
        x.grad = None
        loss = (x * factor).sum()
        loss.backward()
        return loss.detach() * 0

    with pytest.raises(ResultsDifferError, match=r"gradient of args\[0\]"):
        compared(lambda x: step(x, 1.0), lambda x: step(x, 2.0), x)


def test_steps_on_two_copies_of_a_model(training):
    import copy

    model, x, y = training
    twin = copy.deepcopy(model)
    assert compared(make_step(model, x, y), make_step(twin, x, y)).checked
    with torch.no_grad():
        twin[0].weight[0, 0] += 1
    with pytest.raises(ResultsDifferError):
        compared(make_step(model, x, y), make_step(twin, x, y))


def test_batch_norm_statistics_are_put_back():
    model = torch.nn.BatchNorm1d(4)
    x = torch.randn(16, 4)
    assert compared(model, lambda x: model(x), x).checked
    assert model.num_batches_tracked.item() == 0


def test_handwritten_weights_in_the_globals():
    w = torch.randn(3, requires_grad=True)

    def step(x):
        w.grad = None
        loss = (w * x).sum()
        loss.backward()
        with torch.no_grad():
            w.sub_(0.1 * w.grad)
        return loss

    before = w.detach().clone()
    assert compared(step, step, torch.ones(3)).checked
    assert torch.equal(w, before)


def test_weights_come_back_after_an_error_too(training):
    model, x, y = training
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[0].bias.grad = torch.ones(16)
    before = [p.detach().clone() for p in model.parameters()]
    step = make_step(model, x, y, optimizer)
    with pytest.raises(ResultsDifferError):
        compared(step, lambda: step() + 1)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(model[0].bias.grad, torch.ones(16))
    assert model[2].bias.grad is None


def test_a_graph_held_by_the_learner_stays_usable(training):
    model, x, y = training
    loss = F.mse_loss(model(x), y)
    compared(model, lambda x: model(x), x)
    loss.backward()  # raises when a weight was written to in between


def test_inputs_come_back_when_the_function_cannot_stand_nonsense():
    x = torch.tensor([3.0, 1.0])

    def change(x):
        if x.isnan().any():
            raise ArithmeticError
        return x.clamp_(max=2)

    with pytest.raises(CallFailedError):
        compared(change, change, x)
    assert x.tolist() == [3, 1]


@pytest.mark.slow
def test_a_compiled_training_step_agrees(training):
    model, x, y = training
    compiled = torch.compile(model)

    def step(net):
        model.zero_grad(set_to_none=True)
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    assert compared(lambda: step(model), lambda: step(compiled)).checked


@pytest.mark.slow
def test_float32_on_a_gpu_whichever_switches_for_tf32_were_turned():
    """torch refuses to read its old switches after the new ones, which its documentation recommends, were turned."""
    code = """
import torch
from labkit._torch_private import allows_tf32
found = [allows_tf32()]
for precision in ("ieee", "tf32"):
    for part in (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn):
        part.fp32_precision = precision
    found.append(allows_tf32())
try:
    torch.backends.cuda.matmul.allow_tf32
except RuntimeError:
    found.append("refused")
print(*found)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False", "True", "refused"], done.stderr
