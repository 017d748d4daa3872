"""Lesson 04: its checks know right from wrong, its counts are right, and a model really leaves Python."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import labkit as lab
from labkit._cpp_kernels import CompileError
from labkit.lessons import deploying, l04, scripting

pytestmark = [
    pytest.mark.usefixtures("english"),
    pytest.mark.filterwarnings("ignore:.*torch.jit"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]
SEEDS = range(6)


def small_model():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()


# --- counting -----------------------------------------------------------------------------------------------------


def test_freezing_folds_the_batch_norm_and_work_shows_it():
    model, x = small_model(), torch.randn(2, 3, 8, 8)
    traced = torch.jit.trace(model, x)
    assert l04.work(traced) == {"aten::_convolution": 1, "aten::batch_norm": 1, "aten::relu": 1}
    assert "aten::batch_norm" not in l04.work(torch.jit.freeze(traced))


def test_peak_memory_in_outputs():
    x = torch.randn(1000)
    assert l04.peak_activations(l04.inference(torch.exp, x)) == 1.0
    assert l04.peak_activations(l04.inference(lambda x: (x * 2).exp(), x)) == 2.0
    assert l04.peak_activations(l04.inference(lambda x: (x * 2).exp_(), x)) == 1.0


def test_inference_keeps_nothing_for_a_backward_pass():
    weight = torch.ones(3, requires_grad=True)
    assert not l04.inference(lambda x: x * weight, torch.ones(3))().requires_grad


def test_onednn_fusion_leaves_the_switch_as_it_was_and_the_answer_right():
    model, x = small_model(), torch.randn(2, 3, 8, 8)
    before = torch.jit.onednn_fusion_enabled()
    fused = l04.onednn_fused(model, x)
    assert torch.jit.onednn_fusion_enabled() == before
    with torch.no_grad():
        torch.testing.assert_close(fused(x), model(x))


def test_export_refuses_what_a_trace_gets_wrong():
    class Gate(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x * 3

    assert l04.export_refuses(Gate(), torch.ones(3))
    assert not l04.export_refuses(nn.Linear(3, 3), torch.ones(1, 3))


# --- the model from the wild ------------------------------------------------------------------------------------


def test_the_detector_hears_the_vowels_alone_at_both_rates():
    detector, sounds = lab.datasets.voice_detector(), l04.synthetic_sounds()
    heard = {name: l04.voiced(detector, sound) for name, sound in sounds.items()}
    assert {len(pieces) for pieces in heard.values()} == {31}
    assert [sum(heard[name]) for name in ("silence", "noise", "tone")] == [0, 0, 0]
    assert sum(heard["vowels"]) > 25
    assert sum(l04.voiced(detector, sounds["vowels"][::2], rate=8000)) > 25
    assert l04.voiced(detector, sounds["vowels"]) == heard["vowels"]  # nothing is remembered between sounds


def test_synthetic_sounds_are_what_they_say():
    sounds = l04.synthetic_sounds()
    assert all(len(sound) == scripting.RATE and sound.abs().max() <= 1 for sound in sounds.values())
    assert torch.fft.rfft(sounds["tone"]).abs().argmax() == 440
    spectrum = torch.fft.rfft(sounds["vowels"]).abs()
    assert spectrum[:4000].sum() > 20 * spectrum[6000:].sum()  # speech, too, lives below 4 kHz


# --- leaving Python ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_saved_model_runs_from_cpp(tmp_path):
    program = l04.cpp_program(l04.RUN_CPP)
    model, x = small_model(), torch.randn(2, 3, 8, 8)
    torch.jit.freeze(torch.jit.trace(model, x)).save(tmp_path / "model.pt")
    with torch.no_grad():
        torch.testing.assert_close(program(tmp_path / "model.pt", x).view(2, 4, 6, 6), model(x))
    assert repr(program) == "<C++ program>"
    with pytest.raises(deploying.ProgramError, match="C\\+\\+ program stopped"):
        program(tmp_path / "missing.pt", x)


@pytest.mark.slow
def test_a_packaged_model_gives_the_same_and_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    model, x = nn.Linear(4, 3).eval(), torch.randn(2, 4)
    with torch.no_grad():
        packaged = l04.aot_package(torch.export.export(model, (x,)), name="line")
        torch.testing.assert_close(packaged(x), model(x))
    [file] = tmp_path.rglob("line_*.pt2")
    made = file.stat().st_mtime_ns
    with torch.no_grad():
        l04.aot_package(torch.export.export(model, (x,)), name="line")
        assert file.stat().st_mtime_ns == made
        names = {deploying._fingerprint(deploying._content(torch.export.export(m, (v,))))
                 for m, v in ((model, x), (model, x[:1]), (nn.Linear(4, 3), x))}  # fmt: skip
    assert len(names) == 3  # other weights or shapes are another package


def test_a_program_that_does_not_compile_tells_line_and_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    with pytest.raises(CompileError, match=r"line 2: .*undeclared|line 2: .*not declared"):
        l04.cpp_program("int main() {\n  return nothing;\n}")
    assert not list(tmp_path.rglob("program_*"))


def test_without_a_compiler_the_lesson_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(deploying.hardware, "has_compiler", lambda: False)
    model, x = small_model(), torch.randn(2, 3, 8, 8)
    torch.jit.freeze(torch.jit.trace(model, x)).save(tmp_path / "model.pt")
    with torch.no_grad():
        assert torch.equal(l04.cpp_program(l04.RUN_CPP)(tmp_path / "model.pt", x).view(2, 4, 6, 6),
                           torch.jit.load(tmp_path / "model.pt")(x))  # fmt: skip
        torch.testing.assert_close(l04.aot_package(torch.export.export(model, (x,)))(x), model(x))
    said = capsys.readouterr().out
    assert "sudo apt install g++" in said
    assert "ahead of time" in said


def test_another_source_torch_or_processor_gets_another_file(monkeypatch):
    seen = {deploying._fingerprint("a"), deploying._fingerprint("b")}
    monkeypatch.setattr(deploying._probes, "cpu_flags", lambda: frozenset({"avx512f"}))
    seen.add(deploying._fingerprint("a"))
    monkeypatch.setattr(torch, "__file__", "elsewhere")
    seen.add(deploying._fingerprint("a"))
    assert len(seen) == 4


# --- exercises ----------------------------------------------------------------------------------------------------


def without_dead(program, result):
    needed, kept = {result}, []
    for line in reversed(program):
        if line[0] in needed:
            kept.insert(0, line)
            needed.update(line[2])
    return kept


def limit(x):
    return x / torch.clamp(x.abs().max(), min=1.0)


def with_an_if(x):
    peak = x.abs().max()
    return x / peak if bool(peak > 1) else x


def fold(weight, bias, mean, var, gamma, beta, eps):
    scale = gamma / torch.sqrt(var + eps)
    return weight * scale.view(-1, 1, 1, 1), (bias - mean) * scale + beta


@pytest.mark.parametrize("seed", SEEDS)
def test_right_answers_earn_full_marks_whatever_the_inputs(seed):
    assert lab.check("04-1", without_dead, seed=seed).points == 5
    assert lab.check("04-2", limit, seed=seed).points == 5
    assert lab.check("04-2", lambda x: torch.where(x.abs().max() > 1, x / x.abs().max(), x), seed=seed).points == 5
    assert lab.check("04-2", torch.jit.script(with_an_if), seed=seed).points == 5
    assert lab.check("04-3", fold, seed=seed).points == 8


def test_stubs_earn_nothing():
    for exercise in ("04-1", "04-2", "04-3"):
        result = lab.check(exercise, lambda *arguments: None)
        assert (result.status, result.points) == ("todo", 0)


def one_sweep(program, result):
    return [line for line in program if line[0] == result or any(line[0] in other[2] for other in program)]


@pytest.mark.parametrize(("answer", "points", "said"), [
    (lambda program, result: program, 0, "Nothing was left out"),
    (one_sweep, 2, "only a dead line reads"),
    (lambda program, result: without_dead(program, result)[::-1], 0, "another order"),
    (lambda program, result: without_dead(program, result)[:-1], 0, "must stay"),
    (lambda program, result: [line[0] for line in without_dead(program, result)], 0, "must stay"),
    (lambda program, result: program[::2] if len(program) == 3 else program, 2, "Going backwards"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_04_1(answer, points, said, seed):
    result = lab.check("04-1", answer, seed=seed)
    assert said in str(result)
    assert result.points == points


@pytest.mark.parametrize(("answer", "points", "said"), [
    (with_an_if, 2, "The trace remembers"),
    (lambda x: x / max(1.0, x.abs().max().item()), 2, "The trace remembers"),
    (lambda x: x.clamp(-1, 1), 0, "cuts off single values"),
    (lambda x: x / torch.clamp(x.max(), min=1.0), 0, "take `abs()` first"),
    (lambda x: x / (x.abs().max() + 1e-9), 0, "must come back as it is"),
    (lambda x: x * 1.0, 0, "Divide by"),
    (lambda x: x / x.abs().max(), 0, "NaN"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_04_2(answer, points, said, seed):
    result = lab.check("04-2", answer, seed=seed)
    assert said in str(result)
    assert result.points == points


def folded(weight=None, bias=None):
    """`fold` with the weight or the bias computed in another way from (w, b, mean, var, gamma, beta, eps)."""
    def answer(*given):
        right = fold(*given)
        return weight(*given) if weight else right[0], bias(*given) if bias else right[1]

    return answer


def scale(var, gamma, eps):
    return gamma / torch.sqrt(var + eps)


@pytest.mark.parametrize(("answer", "points", "said"), [
    (folded(weight=lambda w, b, m, v, g, beta, eps: w * (g / v.sqrt()).view(-1, 1, 1, 1)), 4, "`eps` is missing"),
    (folded(weight=lambda w, b, m, v, g, beta, eps: w * (g / (v + eps)).view(-1, 1, 1, 1)), 4, "take the root"),
    (folded(weight=lambda w, *rest: w), 4, "The weight has to change"),
    (folded(weight=lambda w, *rest: w.mean(0)), 4, "shape of the old one"),
    (folded(bias=lambda w, b, m, v, g, beta, eps: beta - m * scale(v, g, eps)), 4, "the convolution had is missing"),
    (folded(bias=lambda w, b, m, v, g, beta, eps: (b - m) * scale(v, g, eps)), 4, "`beta` is missing"),
    (folded(bias=lambda w, b, m, v, g, beta, eps: b - m + beta), 4, "scaled like the weight"),
    (folded(bias=lambda w, b, m, v, g, beta, eps: b * scale(v, g, eps) + beta), 4, "`mean` is missing"),
    (folded(bias=lambda w, b, *rest: b), 4, "What becomes of the old bias"),
    (lambda *given: fold(*given)[0], 0, "tuple / list"),
    (lambda *given: (*fold(*given), 1), 0, "Return two tensors"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_04_3(answer, points, said, seed):
    result = lab.check("04-3", answer, seed=seed)
    assert said in str(result)
    assert result.points == points


def test_the_model_answer_agrees_with_torch():
    conv, norm = nn.Conv2d(2, 3, 3).double(), nn.BatchNorm2d(3).double().eval()
    norm.running_mean.uniform_()
    x = torch.randn(1, 2, 5, 5, dtype=torch.double)
    parts = (conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.weight, norm.bias, norm.eps)
    torch.testing.assert_close(F.conv2d(x, *fold(*parts)), norm(conv(x)))


# --- sentences ----------------------------------------------------------------------------------------------------


def test_the_answer_counts_the_models_above_two():
    class Found:
        def __init__(self, value):
            self.value = value

        def ratio(self, name):
            return lab.comparison.Ratio(self.value, self.value, self.value)

    said = str(l04.answer({"mlp": (Found(1.04), "scripted"), "lstm": (Found(2.5), "scripted")}))
    assert "mlp 1.04; lstm 2.50" in said
    assert "1 of 2" in said
    assert not math.isnan(Found(1.0).ratio("x").value)
