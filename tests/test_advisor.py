"""advise(): never touches the learner's model, never lets a wrong result win, and a failure is a row."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import labkit as lab
from labkit import _recipes, advisor, comparison, models
from labkit._advice_gate import Gate
from labkit._callables import budget_too_small
from labkit._trials import CannotCopyError, Task

needs_compiler = pytest.mark.skipif(not lab.hardware.has_compiler(), reason="torch.compile needs a C++ compiler here")
QUICK = ["channels-last", "fused optimizer"]


@pytest.fixture(autouse=True)
def short_and_english(monkeypatch):
    """Nothing here asserts on times: the shortest ones will do."""
    monkeypatch.setattr(advisor, "SCREEN_S", 0.05)
    monkeypatch.setattr(advisor, "FINAL_S", 0.1)
    monkeypatch.setattr(advisor, "FINAL_SHARE", 0)
    lab.use_language("en")


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4))


def advise(model, inputs, **options):
    return lab.advise(model, inputs, progress=None, **{"budget_s": 60} | options)


def snapshot(model):
    return {
        "tensors": [x.detach().clone() for x in [*model.parameters(), *model.buffers()]],
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "modes": [m.training for m in model.modules()],
        "hooks": [len(m._forward_hooks) for m in model.modules()],
        "rng": torch.get_rng_state(),
    }


def same(a, b):
    tensors = all(torch.equal(x, y) for x, y in zip(a["tensors"], b["tensors"], strict=True))
    grads = all((x is None) == (y is None) and (x is None or torch.equal(x, y))
                for x, y in zip(a["grads"], b["grads"], strict=True))  # fmt: skip
    return tensors and grads and all(a[key] == b[key] for key in ("modes", "hooks")) and torch.equal(a["rng"], b["rng"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["train", "inference"])
def test_the_learners_model_is_untouched(mode):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.2), nn.Flatten(), nn.LazyLinear(2))
    x = torch.randn(4, 3, 8, 8)
    model(x).sum().backward()
    model[0].eval()
    model[0].register_forward_hook(lambda *_: None)
    before, x_before = snapshot(model), x.clone()
    # A loss that reaches the learner's own weights, as a weight penalty does.
    loss = (lambda out: out.square().mean() + model[0].weight.square().sum()) if mode == "train" else None
    advice = advise(model, x, loss=loss, only=[*(["fused optimizer"] if loss else []), "channels-last"])
    assert same(before, snapshot(model))
    assert torch.equal(x, x_before)
    assert advice.count("measured") >= 2


def test_snapshot_sees_a_change():
    model = small()
    before = snapshot(model)
    with torch.no_grad():
        model[0].bias[0] += 1
    assert not same(before, snapshot(model))


WRONG = {
    "another function": lambda m: nn.Sequential(m, nn.Tanh()),
    "one weight off": lambda m: _with_weight_off(m),
    "in half the places": lambda m: _Half(m),
    "changes its input": lambda m: _Eats(m),
    "gives a tuple": lambda m: _Tuple(m),
}


def _with_weight_off(model):
    with torch.no_grad():
        model[0].weight[0, 0] += 0.05
    return model


class _Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner


class _Half(_Wrapped):
    def forward(self, x):
        y = self.inner(x)
        return torch.cat([y[: len(y) // 2], y[len(y) // 2 :] * 1.001])


class _Eats(_Wrapped):
    def forward(self, x):
        y = self.inner(x)
        x.zero_()
        return y


class _Tuple(_Wrapped):
    def forward(self, x):
        return (self.inner(x),)


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_candidate_is_refused_and_never_timed(kind):
    advice = advise(small(), torch.randn(8, 16), kernels={"mine": WRONG[kind]}, only=["mine"])
    row = advice.row("mine")
    assert row.status == "wrong"
    assert row.ratio is None
    assert row.note
    assert advice.best.name == "eager"


def test_a_candidate_that_leaves_the_input_alone_where_eager_does_not_is_wrong():
    class Doubles(_Wrapped):
        def forward(self, x):
            return self.inner(x.mul_(2))

    class Twice(_Wrapped):
        def forward(self, x):
            return self.inner.inner(x * 2)

    advice = advise(Doubles(small()), torch.randn(8, 16), kernels={"mine": Twice}, only=["mine"])
    assert advice.row("mine").status == "wrong"
    assert "input" in advice.row("mine").note


def test_a_wrong_gradient_is_refused_though_the_loss_is_right():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, x):
            return x.clone()

        @staticmethod
        def backward(_ctx, grad):
            return grad * 1.01

    class Skewed(_Wrapped):
        def forward(self, x):
            return Scale.apply(self.inner(x))

    loss = lambda out: out.square().mean()  # noqa: E731
    advice = advise(small(), torch.randn(8, 16), loss=loss, kernels={"mine": Skewed}, only=["mine"])
    assert advice.row("mine").status == "wrong"
    assert "gradient" in advice.row("mine").note


@pytest.mark.slow
def test_a_trace_that_baked_in_one_branch_is_refused():
    class Branches(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x * 3

    advice = advise(Branches(), torch.rand(64) + 1, only=["TorchScript"])
    assert advice.row("TorchScript").status == "wrong"


def test_a_crash_is_a_row():
    def broken(_model):
        raise ZeroDivisionError("kernel is not ready")

    advice = advise(small(), torch.randn(8, 16), kernels={"mine": broken}, only=["mine"])
    assert advice.row("mine").status == "failed"
    assert "kernel is not ready" in advice.row("mine").note
    assert advice.best.name == "eager"


def test_out_of_memory_is_said():
    class Huge(_Wrapped):
        def forward(self, x):
            torch.empty(2**60, dtype=torch.int8)
            return self.inner(x)

    advice = advise(small(), torch.randn(8, 16), kernels={"mine": Huge}, only=["mine"])
    assert advice.row("mine").note == "ran out of memory"


def test_a_candidate_that_never_returns_is_a_row():
    class Hangs(_Wrapped):
        def forward(self, _x):
            while True:
                pass

    advice = advise(small(), torch.randn(8, 16), kernels={"mine": Hangs}, only=["mine"], budget_s=4)
    assert advice.row("mine").status == "failed"
    assert "budget" in advice.row("mine").note


def test_a_spent_budget_is_said():
    advice = advise(small(), torch.randn(8, 16), loss=lambda o: o.sum(), only=["fused optimizer"], budget_s=0.01)
    assert advice.row("fused optimizer").status == "not tried"


def test_interrupt_keeps_what_is_done():
    def interrupt(_model):
        raise KeyboardInterrupt

    kernels = {"fine": lambda m: m, "interrupt": interrupt, "later": lambda m: m, "last": lambda m: m}
    advice = advise(small(), torch.randn(8, 16), kernels=kernels, only=list(kernels))
    assert not advice.is_complete
    assert advice.row("fine").status == "measured"
    assert advice.row("later").status == advice.row("last").status == "not tried"


def test_an_interrupt_before_few_are_timed_leaves_no_half_rows():
    def interrupt(_model):
        raise KeyboardInterrupt

    kernels = {"fine": lambda m: m, "interrupt": interrupt}
    advice = advise(small(), torch.randn(8, 16), kernels=kernels, only=list(kernels))
    assert not advice.is_complete
    assert [row.status for row in advice.rows] == ["measured", "not tried", "not tried"]
    assert "interrupted" in advice.row("fine").note
    assert advice.best.name == "eager"
    assert str(advice)


def test_few_are_timed_together_at_once(monkeypatch):
    asked, compared = [], advisor._compared
    monkeypatch.setattr(advisor, "_compared", lambda steps, budget_s: asked.append(list(steps)) or compared(steps, 0.1))
    names = ["a", "b", "c", "d"]
    kernels = {name: lambda m: m for name in names}
    advise(small(), torch.randn(8, 16), kernels=kernels, only=names[:3])
    assert asked == [["eager", "a", "b", "c"]]
    asked.clear()
    advise(small(), torch.randn(8, 16), kernels=kernels, only=names)
    assert asked[:4] == [["eager", name] for name in names]


@pytest.mark.parametrize("fault", ["raises", "hangs"])
def test_one_that_spoils_the_timing_of_few_costs_only_its_own_row(fault):
    class Later(_Wrapped):
        calls = 0

        def forward(self, x):
            Later.calls += 1
            while Later.calls > 4:  # passes the gate and its first call, then no more
                if fault == "raises":
                    raise ZeroDivisionError("worn out")
            return self.inner(x)

    kernels = {"fine": lambda m: m, "later": Later}
    advice = advise(small(), torch.randn(8, 16), kernels=kernels, only=list(kernels), budget_s=6)
    assert advice.row("later").status in ("failed", "not tried")
    if fault == "raises":
        assert "worn out" in advice.row("later").note
        assert advice.row("fine").status == "measured"
        assert advice.row("fine").ratio


@pytest.mark.parametrize("inputs", ["tensor", "tuple", "dict"])
def test_inputs_may_be_a_tensor_a_tuple_or_a_dict(inputs):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x, y=None):
            out = self.a(x) + (0 if y is None else y)
            return {"out": out, "half": out / 2}

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    given = {"tensor": x, "tuple": (x, y), "dict": {"x": x, "y": y}}[inputs]
    advice = advise(Two(), given, loss=lambda o: o["out"].square().sum(), only=["fused optimizer"])
    assert advice.row("fused optimizer").status == "measured"


def test_dropout_is_neither_refused_nor_waved_through():
    model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.5), nn.Linear(64, 4))
    loss = lambda out: out.square().mean()  # noqa: E731
    good = advise(model, torch.randn(8, 16), loss=loss, kernels={"mine": lambda m: m}, only=["mine"])
    assert good.row("mine").status == "measured"
    bad = advise(model, torch.randn(8, 16), loss=loss, kernels={"mine": _with_weight_off}, only=["mine"])
    assert bad.row("mine").status == "wrong"


@pytest.mark.slow
@needs_compiler
def test_what_runs_eager_under_compile_is_told():
    class Eager(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        @torch._dynamo.disable
        def forward(self, x):
            return self.inner(x)

    advice = advise(Eager(), torch.randn(2, 4), only=["compiled"])
    assert "graph break" in advice.row("compiled").note


@pytest.mark.slow
@needs_compiler
def test_code_compiled_for_an_earlier_candidate_is_no_eager():
    model = nn.Sequential(nn.EmbeddingBag(50, 8), nn.Linear(8, 4))
    tokens = torch.randint(0, 50, (4, 6))
    advice = advise(model, tokens, loss=lambda o: o.square().mean(), only=["compiled", "compiled + fused optimizer"])
    assert [row.note for row in advice.rows] == ["", "", ""]


def test_what_has_to_be_compiled_comes_last():
    names = [recipe.name for recipe in _recipes.recipes_for(
        nn.Conv2d(1, 1, 1), torch.device("cpu"), is_training=True, kernels={"mine": lambda m: m})]  # fmt: skip
    compiled = ["compiled" in name for name in names]
    assert compiled == sorted(compiled)
    assert any(compiled) == lab.hardware.has_compiler()
    assert names[0] == "mine"


def test_a_machine_that_stands_still_for_a_moment_costs_no_row(monkeypatch):
    """A stalled warm-up makes a step look too long for the budget: the comparison then gets more time."""
    budgets = []

    def stalls_once(steps, *, budget_s, **options):
        budgets.append(budget_s)
        if len(budgets) == 1:
            raise budget_too_small(budget_s, 0.4, 0.06)
        return compare(steps, budget_s=budget_s, **options)

    compare = lab.compare
    monkeypatch.setattr(comparison, "compare", stalls_once)
    advice = advise(small(), torch.randn(8, 16), kernels={"mine": lambda m: m}, only=["mine"])
    assert advice.row("mine").status == "measured", advice.row("mine").note
    assert budgets[1] == 0.4


@pytest.mark.parametrize(("looks", "share", "short_s", "budgets", "verdict"), [
    ([(1.01, 1.30), (1.12, 1.18)], 1 / 8, 0, [0.1, pytest.approx(0.3)], "faster"),  # measured again, for longer
    ([(0.98, 1.02)], 1 / 8, 0, [0.1], "same"),
    ([(0.80, 1.02)], 1 / 8, 0, [0.1], "undecided"),  # in no case faster by more than the margin: no use waiting
    ([(1.01, 1.30)] * 3, 0.4 / 60, 0, [0.1, pytest.approx(0.3), pytest.approx(0.4, abs=0.02)], "undecided"),  # spent
    ([(1.01, 1.30)], 0.05 / 60, 0, [0.1], "undecided"),
    ([(1.01, 1.30)], 1 / 8, 60, [0.1], "undecided"),  # a short budget
])
def test_the_last_word_is_taken_again_while_it_leaves_the_best_open(looks, share, short_s, budgets, verdict,
                                                                    monkeypatch):
    from labkit._statistics import Ratio

    class Found:
        margin, medians_s = 0.03, {"eager": 0.1, "mine": 0.09}

        def __init__(self, low, high):
            self.of = Ratio((low * high) ** 0.5, low, high)

        def ratio(self, name):
            return self.of

        def verdict(self, name):
            return comparison._statistics.verdict(self.of, self.margin)

    left, asked = [Found(*look) for look in looks], []

    def compared(steps, budget_s):
        asked.append(budget_s)
        return left.pop(0)

    monkeypatch.setattr(advisor, "FINAL_SHARE", share)
    monkeypatch.setattr(advisor, "SHORT_S", short_s)
    monkeypatch.setattr(advisor, "_compared", compared)
    advice = advise(small(), torch.randn(8, 16), kernels={"mine": lambda m: m}, only=["mine"])
    assert asked == budgets
    assert advice.row("mine").verdict == verdict


@pytest.mark.parametrize(("seconds", "looks"), [(360, 2), (40, 1)])
def test_two_that_may_differ_are_compared_for_longer(seconds, looks, monkeypatch):
    """Both are faster than eager; which of them by how much is open at first. A short budget leaves it at that."""
    from labkit._statistics import Ratio

    class Found:
        margin = 0.03

        def __init__(self, **ratios):
            self.ratios = {name: Ratio((low * high) ** 0.5, low, high) for name, (low, high) in ratios.items()}
            self.medians_s = dict.fromkeys(("eager", *ratios), 0.1)

        def ratio(self, name):
            return self.ratios[name]

        def verdict(self, name):
            return comparison._statistics.verdict(self.ratios[name], self.margin)

    monkeypatch.setattr(advisor, "FINAL_SHARE", 1 / 3)
    found = [Found(a=(2.04, 2.40), b=(2.08, 2.33)), Found(a=(2.20, 2.23), b=(2.26, 2.29))]
    asked = []
    monkeypatch.setattr(advisor, "_compared", lambda steps, budget_s: asked.append(budget_s) or found[len(asked) - 1])
    advice = advise(small(), torch.randn(8, 16), kernels={name: lambda m: m for name in "ab"}, only=["a", "b"],
                    budget_s=seconds)  # fmt: skip
    assert len(asked) == looks
    assert advice.best.name == ("b" if looks == 2 else "a")


def test_long_steps_get_a_longer_first_look(monkeypatch):
    asked, compared = [], advisor._compared
    monkeypatch.setattr(advisor, "timed", lambda step: (step(), 0.1)[1])
    monkeypatch.setattr(advisor, "_compared", lambda steps, budget_s: asked.append(budget_s) or compared(steps, 0.1))
    kernels = {name: lambda m: m for name in "abcd"}
    advise(small(), torch.randn(8, 16), kernels=kernels, only=list(kernels), budget_s=120)
    assert asked[0] == pytest.approx(2.0)  # 48 steps would take 4.8 s; a sixtieth of the budget is less


def test_randomness_that_cannot_be_switched_off_is_seeded_alike():
    class Noisy(_Wrapped):
        def forward(self, x):
            return self.inner(x) + torch.randn(len(x), 1)

    model = Noisy(small())
    right = advise(model, torch.randn(8, 16), kernels={"mine": lambda m: m}, only=["mine"])
    assert right.row("mine").status == "measured"
    wrong = advise(model, torch.randn(8, 16), kernels={"mine": WRONG["another function"]}, only=["mine"])
    assert wrong.row("mine").status == "wrong"


def test_a_bias_in_front_of_a_batch_norm_does_not_refuse_everything():
    """Its gradient cancels to nothing but rounding, and other kernels round otherwise."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
    loss = lambda out: out.square().mean() + out.abs().mean()  # noqa: E731
    advice = advise(model, torch.randn(8, 3, 16, 16), loss=loss, only=["channels-last"])
    assert advice.row("channels-last").status == "measured", advice.row("channels-last").note


class _InFloat64(_Wrapped):
    """The same model, computed in float64: right by construction, rounded otherwise."""

    def forward(self, x):
        kept = dict(self.inner.named_buffers())
        exact = {name: value.double() for name, value in [*self.inner.named_parameters(), *kept.items()]}
        y = torch.func.functional_call(self.inner, exact, (x.double(),)).float()
        with torch.no_grad():
            for name, value in kept.items():
                value.copy_(exact[name])
        return y


def test_values_that_rounding_pushes_through_a_relu_refuse_nobody():
    """A gradient jumps where a value next to zero passes in one version only; among millions there is often one."""
    family = models.FAMILIES["convnet"]()
    for places in range(1, 5):
        inputs = torch.utils._pytree.tree_map(lambda x, by=places: x.flatten().roll(by).view(x.shape), family.inputs)
        task = Task(family.model, inputs, family.loss, advisor.adamw, torch.device("cpu"))
        gate = Gate(task)
        for kernel, is_right in ((_InFloat64, True), (_Half, False)):
            recipe = _recipes.recipes_for(family.model, task.device, is_training=True, kernels={"mine": kernel})[0]
            ruling = gate.rule(recipe)
            assert ruling.is_right == is_right, (places, ruling.reason)


def test_a_model_that_cannot_be_copied_gets_the_way_out():
    model = small()
    model.handle = (n for n in range(3))
    with pytest.raises(CannotCopyError, match="lambda"):
        advise(model, torch.randn(8, 16), only=["TorchScript"])


@pytest.mark.parametrize(("model", "loss"), [("not a model", None), (small(), "mse")])
def test_senseless_arguments_are_refused(model, loss):
    with pytest.raises(TypeError, match=r"lab\.advise|loss"):
        advise(model, torch.randn(8, 16), loss=loss)


def test_unknown_candidates_are_named():
    with pytest.raises(KeyError, match="fused optimizer"):
        advise(small(), torch.randn(8, 16), loss=lambda o: o.sum(), only=["warp drive"])


def test_best_is_the_highest_ratio_among_the_verdicts():
    from labkit._statistics import Ratio

    rows = tuple(
        advisor.Row(name, "measured", Ratio(value, low, high), verdict, 0.0, 1.0, 1.0)
        for name, value, low, high, verdict in [
            ("eager", 1.0, 1.0, 1.0, "same"), ("a", 1.5, 1.4, 1.6, "faster"),
            ("b", 3.0, 0.5, 9.0, "undecided"), ("c", 2.0, 1.9, 2.1, "faster"),
        ]
    )  # fmt: skip
    advice = advisor.Advice(rows, True, "cpu", 0.1, True, 1.0)
    assert advice.best.name == "c"
    assert advisor.Advice(rows[:1], True, "cpu", 0.1, True, 1.0).best.name == "eager"
    assert copy.deepcopy(advice).card()["best"] == "c"


@pytest.mark.parametrize("language", ["bn", "en"])
def test_it_shows_itself_in_both_languages(language):
    lab.use_language(language)
    advice = advise(small(), torch.randn(8, 16), loss=lambda o: o.square().mean(), only=["fused optimizer"])
    assert "fused optimizer" in str(advice)
    assert "<table>" in advice._repr_html_()
    assert ("eager-এর" in str(advice)) == (language == "bn")


def test_recipes_fit_the_model():
    def names(model, is_training):
        return {r.name for r in _recipes.recipes_for(model, torch.device("cpu"), is_training=is_training, kernels={})}

    images, words = names(nn.Conv2d(1, 1, 1), False), names(nn.Linear(1, 1), True)
    assert "channels-last" in images
    assert "TorchScript" in images
    assert not any("channels-last" in name or "TorchScript" in name for name in words)
    assert "fused optimizer" in words


@pytest.mark.slow
def test_compile_is_checked_and_graph_breaks_are_noted():
    class Breaks(_Wrapped):
        def forward(self, x):
            y = self.inner(x)
            torch._dynamo.graph_break()
            return F.relu(y)

    advice = advise(Breaks(small()), torch.randn(8, 16), only=["compiled"], budget_s=240)
    row = advice.row("compiled")
    assert row.status == "measured", row.note
    assert "1 graph break" in row.note
    assert row.first_s > 0.1
