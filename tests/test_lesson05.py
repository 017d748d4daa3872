"""Lesson 05: its checks know right from wrong by counting, every common mistake has a hint, helpers count right."""

import pytest
import torch
import torch.nn.functional as F

import labkit as lab
from labkit import _enough_time, models
from labkit.lessons import compile_stages, compiled_families, l05, regional, vector_loops

pytestmark = pytest.mark.usefixtures("english")
SEEDS = range(2)


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def scaled(x):
    peak = x.abs().max().item()
    if peak > 1:
        x = x / peak
    return torch.tanh(x)


def scaled_whole(x):
    return torch.tanh(x / torch.clamp(x.abs().max(), min=1.0))


def pad_to_bucket(x):
    length = max(16, 1 << (x.shape[1] - 1).bit_length())
    return F.pad(x, (0, 0, 0, length - x.shape[1]))


def compile_blocks(model, **options):
    for block in model.blocks:
        block.compile(**options)
    return model


@pytest.mark.parametrize("seed", SEEDS)
def test_right_answers_earn_full_marks_whatever_the_inputs(seed):
    assert lab.check("05-1", scaled_whole, seed=seed).points == 6
    assert lab.check("05-2", pad_to_bucket, seed=seed).points == 6
    assert lab.check("05-3", compile_blocks, seed=seed).points == 6


def test_a_decision_by_where_and_a_decorated_answer_are_right_too():
    @torch.compile(backend="eager")
    def answer(x):
        peak = x.abs().max()
        return torch.tanh(torch.where(peak > 1, x / peak, x))

    assert lab.check("05-1", answer, seed=1).points == 6


def test_stubs_earn_nothing():
    for exercise in ("05-1", "05-2", "05-3"):
        result = lab.check(exercise, lambda *arguments, **options: None)
        assert (result.status, result.points) == ("todo", 0)


def branch(x):
    peak = x.abs().max()
    if peak > 1:
        x = x / peak
    return torch.tanh(x)


remembered = {}


def cached(x):
    """Returns what the reference gave, by way of Python."""
    key = tuple(x.flatten().tolist())
    return remembered.setdefault(key, scaled(x))


@pytest.mark.parametrize(("answer", "points", "said"), [
    (scaled, 0, "`.item()` fetches the number"),
    (branch, 0, "a branch depends on the value of a tensor"),
    (cached, 0, "graph break"),
    (torch.compiler.disable(scaled), 0, "kept away from the compiler"),
    (lambda x: torch.tanh(x / x.abs().max()), 3, "peak is below 1"),
    (lambda x: torch.tanh(x), 3, "nothing was divided"),
    (lambda x: torch.tanh(torch.where(x.abs() > 1, x / x.abs().max(), x)), 3, "One decision holds for the whole"),
    (lambda x: torch.tanh(x.clamp(-1, 1)), 3, "cuts off"),
    (lambda x: torch.tanh(x / x.max().clamp(min=1.0)), 3, "`abs()` is missing"),
    (lambda x: x / torch.clamp(x.abs().max(), min=1.0), 0, "`torch.tanh` at the end"),
    (lambda x: torch.sin(x), 0, "Compare with `scaled(x)`"),
])  # fmt: skip
def test_wrong_answers_to_05_1(answer, points, said):
    result = lab.check("05-1", answer, seed=3)
    assert said in result.hint
    assert result.points == points


def test_an_answer_that_is_right_only_outside_the_compiler_is_found_out():
    def two_faced(x):
        if torch.compiler.is_compiling():
            return torch.tanh(x)
        return scaled(x)

    assert lab.check("05-1", two_faced, seed=3).points < 6


def to_multiple(step):
    return lambda x: F.pad(x, (0, 0, 0, -x.shape[1] % step))


@pytest.mark.parametrize(("answer", "points", "said"), [
    (lambda x: x, 0, "each length is compiled anew"),
    (to_multiple(16), 0, "At most 5 are wanted"),
    (to_multiple(256), 3, "more than half of it is padding"),
    (lambda x: F.pad(x, (0, 256 - x.shape[1])), 0, "Only dimension 1"),
    (lambda x: F.pad(x, (0, 0, 256 - x.shape[1], 0)), 0, "stand in front"),
    (lambda x: F.pad(x, (0, 0, 0, 256 - x.shape[1]), value=1.0), 0, "must hold zeros"),
    (lambda x: x[:, :16], 0, "was cut"),
    (lambda x: torch.zeros_like(pad_to_bucket(x)), 0, "have changed"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_05_2(answer, points, said, seed):
    result = lab.check("05-2", answer, seed=seed)
    assert said in result.hint
    assert result.points == points


def wrapped(model, **options):
    for index, block in enumerate(model.blocks):
        model.blocks[index] = torch.compile(block, **options)
    return model


def first_only(model, **options):
    model.blocks[0].compile(**options)
    return model


def no_return(model, **options):
    compile_blocks(model, **options)


def options_forgotten(model, **options):
    return model


def another_model(model, **options):
    return compile_blocks(l05.Tower(len(model.blocks), model.head.in_features), **options)


@pytest.mark.parametrize(("answer", "points", "said"), [
    (wrapped, 4, "gives a new module around the block"),
    (first_only, 0, "1 of"),
    (no_return, 0, "now `return model`"),
    (options_forgotten, 0, "Hand them on"),
    (lambda model, **options: torch.compile(model, **options), 0, "The whole model became one graph"),
    (another_model, 0, "another result than before"),
])  # fmt: skip
@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_answers_to_05_3(answer, points, said, seed):
    result = lab.check("05-3", answer, seed=seed)
    assert said in result.hint
    assert result.points == points


# --- counting -----------------------------------------------------------------------------------------------------


def test_operations_are_the_graphs_own():
    seen = []

    def backend(graph, _inputs):
        seen.append(compile_stages.operations(graph))
        return graph.forward

    torch.compile(lambda x: torch.relu(x * 2.0).sum(0)[1:], backend=backend)(torch.ones(3, 4))
    assert seen == [("mul", "relu", "sum")]


@pytest.mark.slow
def test_every_stage_hands_on_to_the_next():
    x = torch.randn(8, 16, requires_grad=True)
    opened = compile_stages.stages(lambda x: torch.tanh(x) * 2.0, x)
    assert opened["Dynamo"] == ("tanh", "mul")
    assert opened["AOTAutograd forward"] == ("tanh", "mul")
    assert opened["AOTAutograd backward"] == ("mul", "tanh_backward")  # the chain rule, last operation first
    assert len(opened["Inductor forward"]) == len(opened["Inductor backward"]) == 1
    assert "AOTAutograd backward" in str(opened)
    assert x.grad is None


def test_whole_and_regional_graphs():
    assert regional.graph_sizes(lambda model, **options: model.compile(**options)) == [3 * regional.DEPTH + 1]
    assert regional.graph_sizes(compile_blocks) == [3]
    assert regional.regions(lambda model, **options: model.compile(**options)) == 1
    assert regional.regions(compile_blocks) == regional.DEPTH


@pytest.mark.slow
def test_a_family_run_says_what_happened():
    run = compiled_families.family("lstm", budget_s=0.2)
    assert run.facts == {"training": (1, 0, False), "inference": (1, 0, False)}
    assert "lstm" in str(run)
    assert "lstm" in str(compiled_families.FamilyTable((run,)))
    assert min(run.training.peak_bytes) > 0


def test_a_compiled_function_that_fell_back_is_noticed(monkeypatch):
    """The whole way from Dynamo's limit to the fact that the lesson prints."""
    f = torch.compile(lambda x: torch.tanh(x) + 1.0, backend="eager", dynamic=False)
    with l05.quiet_logs():
        for n in range(1, 12):
            f(torch.ones(n))
    x = torch.ones(30)
    side = compiled_families._side({"eager": lambda: torch.tanh(x) + 1.0, "compiled": lambda: f(x)}, 0.05,
                                   compiled_families.outputs_agree)  # fmt: skip
    assert side.fell_back
    assert side.graphs == 0


def test_a_budget_grows_on_a_slow_machine(monkeypatch):
    monkeypatch.setattr(_enough_time, "timed", lambda call: call())
    assert _enough_time.budget({"eager": lambda: 2.0, "compiled": lambda: 0.5}, 3.0) == 20.0
    assert _enough_time.budget({"eager": lambda: 0.02, "compiled": lambda: 0.01}, 3.0) == 3.0


LOOPS = """for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(73728L); x0+=static_cast<int64_t>(1L))
{
  for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(2L); x1+=static_cast<int64_t>(8L))
  for(int64_t x2=0; x2<9216; x2+=8)
  for(int64_t x2=9216; x2<9218; x2+=8)
}"""


def test_half_empty_vector_loops_are_counted():
    assert vector_loops.loops(LOOPS) == [(2, 8), (9216, 8), (2, 8)]
    source = lab.graphs.LabSource({"k": "a\nb\n" + LOOPS}, {"k": LOOPS})
    assert "x1<static_cast" in str(vector_loops.half_empty_loop(source))
    assert "a\nb" not in str(vector_loops.half_empty_loop(source))
    triton = lab.graphs.LabSource({"k": "tl.load(x)"}, {"k": "tl.load(x)"}, "triton")
    assert vector_loops.half_empty_loop(triton) is triton


@pytest.mark.slow
def test_two_channels_leave_vectors_half_empty_and_the_switch_mends_it():
    thin, threads = models.thin_silu("cpu"), torch.get_num_threads()
    with l05.one_core():
        assert torch.get_num_threads() == 1
        as_it_comes = lab.graphs.kernels(thin.model, *thin.inputs, backward=True)
        mended = lab.graphs.kernels(thin.model, *thin.inputs, backward=True, options={"layout_optimization": False})
    assert torch.get_num_threads() == threads
    assert vector_loops.half_empty(as_it_comes) > vector_loops.half_empty(mended)
    wide = lab.graphs.kernels(lambda x: torch.tanh(x) + 1.0, torch.ones(4096))
    assert vector_loops.half_empty(wide) == 0
