"""Counted facts: hand counts as the outside truth, and cases in which a naive count is wrong."""

from __future__ import annotations

import pytest

import labkit as lab

torch = pytest.importorskip("torch")
from labkit import graphs  # noqa: E402
from labkit._undisturbed import backward_of_sum  # noqa: E402
from labkit._wrapper_code import read_wrapper  # noqa: E402

needs_compiler = pytest.mark.skipif(not lab.hardware.has_compiler(), reason="torch.compile needs a C++ compiler here")

WRAPPER = """
# AOT ID: ['1_backward']
import torch
aten = torch.ops.aten
cpp_fused_add_0 = async_compile.cpp_pybinding(['const float*'], r'''
void kernel() { cpp_fused_add_0(1); extern_kernels.mm(2); }
''')
triton_poi_fused_mul_1 = async_compile.triton('triton_poi_fused_mul_1', '''
@triton_heuristics.pointwise(filename=__file__, triton_meta={'device': 'secret'})
@triton.jit
def triton_poi_fused_mul_1(in_ptr0, xnumel, XBLOCK : tl.constexpr):
    tmp0 = tl.load(in_ptr0)
''')

class Runner:
    def call(self, args):
        buf0 = empty_strided_cpu((8, ), (1, ), torch.float32)
        # extern_kernels.mm(only a comment)
        cpp_fused_add_0(buf0)
        cpp_fused_add_0(buf0)
        triton_poi_fused_mul_1.run(buf0, 8, stream=stream0)
        extern_kernels.mm(buf0, reinterpret_tensor(buf0, (8, ), (1, ), 0), out=buf0)
        buf8 = torch.ops.aten.convolution_backward.default(buf0)
        torch.ops._c10d_functional.wait_tensor.default(buf8)
        return (buf8, )

def benchmark_compiled_module(args, times=10, repeat=10):
    cpp_fused_add_0(args)
"""


def test_wrapper_counts_calls_not_definitions_comments_or_benchmarks():
    graph = read_wrapper(WRAPPER)
    assert graph.phase == "backward"
    assert graph.fused == ("cpp_fused_add_0", "cpp_fused_add_0", "triton_poi_fused_mul_1")
    assert graph.extern == ("extern_kernels.mm", "aten.convolution_backward")


def test_a_wrapper_without_call_is_refused():
    with pytest.raises(ValueError, match="cpp_wrapper"):
        read_wrapper("x = 1")


def test_triton_source_keeps_the_function_and_drops_device_facts():
    source = graphs.LabSource.from_wrappers([WRAPPER])
    text = source.kernels["triton_poi_fused_mul_1"]
    assert text.startswith("@triton.jit\ndef triton_poi_fused_mul_1(")
    assert "secret" not in str(source)
    assert "secret" in source.raw["triton_poi_fused_mul_1"]


def chain(x):
    return torch.sigmoid(torch.tanh(torch.nn.functional.gelu(2 * x + 1)))


@needs_compiler
@pytest.mark.slow
def test_element_wise_chain_is_one_kernel_and_matmul_stays_outside():
    x = torch.randn(64, 64)
    assert (graphs.kernels(chain, x).fused, graphs.kernels(chain, x).extern) == (1, 0)
    product = graphs.kernels(lambda a: torch.relu(a @ a) + 1, x)
    assert (product.fused, product.extern) == (1, 1)
    assert product.names[1] == "extern_kernels.mm"


@needs_compiler
@pytest.mark.slow
def test_two_equal_halves_of_a_broken_graph_count_twice():
    def broken(x):
        y = x.sin() + 1
        torch._dynamo.graph_break()
        return y.sin() + 1

    assert repr(graphs.kernels(broken, torch.ones(32))) == "Kernels(fused=2, extern=0, graphs=2)"


@needs_compiler
@pytest.mark.slow
def test_training_counts_both_ways_and_leaves_the_model_alone():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    rng = torch.get_rng_state()
    x = torch.ones(4, 8)
    found = graphs.kernels(model, x, backward=True)
    # Forward: the linear layer, and dropout's seed is drawn. Backward: the weight's gradient alone, for x needs none.
    assert set(found.forward.names) >= {"extern_kernels.addmm", "aten.randint.low_out"}
    assert (found.forward.extern, found.backward.extern) == (2, 1)
    assert found.forward.fused >= 1
    assert found.backward.fused >= 1
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(rng, torch.get_rng_state())
    # The same count when the learner's own step calls the compiled model.
    compiled = torch.compile(model)
    by_hand = graphs.kernels(lambda: compiled(x).sum().backward(), as_is=True)
    assert by_hand.names == found.names


@needs_compiler
@pytest.mark.slow
def test_cold_and_warm_count_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16), torch.nn.GELU())
    x = torch.randn(4, 16)
    cold = graphs.kernels(model, x, backward=True)
    warm = graphs.kernels(model, x, backward=True)
    assert cold.total > 0
    assert (cold.names, len(cold.graphs)) == (warm.names, len(warm.graphs))
    assert str(cold.source) == str(warm.source)


def test_backward_without_a_gradient_says_so():
    with pytest.raises(ValueError, match="requires_grad|গ্রেডিয়েন্ট"):
        backward_of_sum(torch.ones(3))


def test_bytes_of_a_wrapper_by_hand():
    code = """
from torch import empty_strided
cpp_fused_add_0 = async_compile.cpp_pybinding(['const float*', 'float*', 'const float*', 'float*'], r'''
extern "C"  void  kernel(const float* in_ptr0, float* in_out_ptr0, const float* in_ptr1, float* out_ptr1)
''')

def call(args):
    arg0_1, arg1_1 = args
    assert_size_stride(arg0_1, (8, 4), (4, 1), 'input')
    buf0 = empty_strided_cpu((8, 4), (4, 1), torch.float32)
    buf1 = empty_strided_cpu((8, 4), (4, 1), torch.bfloat16)
    cpp_fused_add_0(arg0_1, buf0, arg1_1, buf1)
    buf2 = extern_kernels.convolution(buf0, arg1_1, stride=(1, 1))
    assert_size_stride(buf2, (2, 3), (3, 1), 'torch.ops.aten.convolution.default')
    buf3 = reinterpret_tensor(buf0, (4, 4), (4, 1), 0); del buf0
    extern_kernels.mm(buf3, buf3, out=buf1)
    return (buf2, )

def get_args():
    arg0_1 = rand_strided((8, 4), (4, 1), device='cpu', dtype=torch.float32)
    arg1_1 = rand_strided((8, 4), (0, 1), device='cpu', dtype=torch.float32)
"""
    # in_ptr0 128, in_out_ptr0 2 x 128, in_ptr1 expanded 16, out_ptr1 64; convolution 128 + 16 + 24; mm 64 and out 64.
    assert read_wrapper(code).bytes_moved == 128 + 256 + 16 + 64 + 128 + 16 + 24 + 64 + 64
    assert read_wrapper(code.replace("(2, 3), (3, 1)", "(s0, 3), (3, 1)")).bytes_moved is None


@needs_compiler
@pytest.mark.slow
def test_compiled_bytes_are_those_of_the_fused_kernel():
    x = torch.randn(64, 64)
    assert graphs.kernels(chain, x).bytes_moved == 2 * 64 * 64 * 4
    # The product reads a once and writes; the rest works in place on what it wrote.
    assert graphs.kernels(lambda a: torch.relu(a @ a) + 1, x).bytes_moved == 4 * 64 * 64 * 4


def test_a_torch_that_is_too_old_or_moved_something_is_named(monkeypatch):
    from torch._inductor.graph import GraphLowering

    from labkit import _torch_private as private

    monkeypatch.delattr(GraphLowering, "save_output_code")
    with pytest.raises(private.TorchMovedError, match="GraphLowering.save_output_code"):
        graphs.kernels(chain, torch.ones(4))
    monkeypatch.setattr(torch, "__version__", "2.8.0")
    with pytest.raises(private.TorchMovedError, match="2.8.0"):
        private.reset_dynamo()


# graph breaks and recompilations, by hand


def prints_first(x):
    print("before any operation")
    return x * 2


def branches(x):
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return y * 3


def calls_twice(x):
    x = helper(x + 1)
    return helper(x) * 2


def helper(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


def breaks_in_a_loop(x):
    for _ in range(3):
        x = x + 1
        torch._dynamo.graph_break()
    return x


def test_breaks_have_lines_and_no_paths():
    found = graphs.breaks(branches, torch.ones(3))
    assert (found.graphs, len(found)) == (2, 1)
    assert found.lines[0].endswith(": if y.sum() > 0:")
    text = str(found) + repr(found) + found._repr_html_()
    assert "/" not in text.replace("</", "").replace("/>", "")
    assert "0x" not in text
    assert len(graphs.breaks(chain, torch.ones(3))) == 0


def test_breaks_without_an_operation_before_them_count_too(capsys):
    found = graphs.breaks(prints_first, torch.ones(3))
    assert (found.graphs, len(found)) == (1, 1)
    assert torch._dynamo.explain(prints_first)(torch.ones(3)).graph_break_count == 0  # why torch's own count won't do
    assert graphs.breaks(calls_twice, torch.ones(3)).graphs == 4


def test_a_function_given_up_as_a_whole_is_a_break_with_no_graph():
    found = graphs.breaks(breaks_in_a_loop, torch.ones(3))
    assert found.graphs == 0
    assert found.reasons[0].skipped


def scaled(x, factor):
    return x * factor


def test_recompiles_name_the_guard_that_failed():
    x = torch.ones(3)
    found = graphs.recompiles(scaled, [(x, 2), (x, 2), (x, 3), (torch.ones(5), 3), (x.double(), 3)])
    assert [one.call for one in found] == [3, 4, 5]
    assert found.guards[0] == "factor == 2"
    assert "expected 3, actual 5" in found.guards[1]
    assert "Double" in found.guards[2]
    assert not found.limit_reached
    assert len(graphs.recompiles(scaled, [(torch.ones(n), 2) for n in range(3, 9)], dynamic=True)) == 0


def test_the_recompile_limit_and_the_silent_fall_back_are_seen():
    def named(x, name):
        return x * len(name)

    found = graphs.recompiles(named, [(torch.ones(3), "a" * n) for n in range(12)])
    assert found.limit_reached
    assert found.compiles == 8
    assert "type" not in graphs.recompiles(named, [(torch.ones(3), "a")]).__repr__()
    torch._dynamo.reset()
    compiled = torch.compile(named, backend="eager")
    with graphs.watching() as seen, graphs.private.quiet_logs():
        for n in range(12):
            compiled(torch.ones(3), "a" * n)
    assert seen.limit_reached
    assert seen.compiles == 8
    assert not graphs.fell_back(compiled, torch.ones(3), "aaa")
    assert graphs.fell_back(compiled, torch.ones(3), "a" * 20)
    assert graphs.fell_back(named, torch.ones(3), "a")
    torch._dynamo.reset()


def test_watching_without_a_limit():
    torch._dynamo.reset()
    with graphs.watching() as seen:
        torch.compile(scaled, backend="eager")(torch.ones(3), 2)
    assert (seen.compiles, seen.limit_reached, seen.skipped) == (1, False, ())


# TorchScript


def wasteful(x, y):
    a = (x + y) * 2
    b = (x + y) * 3
    return a + b * (2 * 3 + 4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_passes_on_a_copy():
    script = torch.jit.script(wasteful)
    before = graphs.nodes(script)
    assert before.kinds["aten::add"] == 3
    assert before.kinds["aten::mul"] == 3
    done = graphs.after_pass(script, "cse")
    assert done.removed == {"aten::add": 1}
    assert done.before.total - done.after.total == 1
    assert graphs.nodes(script) == before  # the learner's own graph is as it was
    assert graphs.after_pass(script, "dce").removed == {}
    assert "#" not in done.graph
    with pytest.raises(ValueError, match="no_such_pass"):
        graphs.after_pass(script, "no_such_pass")
    with pytest.raises(TypeError, match="torch.jit.trace"):
        graphs.nodes(wasteful)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
def test_fused_kinds_of_an_optimised_stack():
    from labkit import models

    family = models.conv_stack("cpu")
    with torch.no_grad():
        traced = torch.jit.trace(family.model, family.inputs)
        assert graphs.nodes(traced).kinds["aten::batch_norm"] == 8
        frozen = torch.jit.freeze(traced)
        assert "aten::batch_norm" not in graphs.nodes(frozen).kinds
        assert graphs.fused_kinds(frozen) == {}
        assert graphs.fused_kinds(torch.jit.optimize_for_inference(traced)) == {"prim::mkldnn_convolution": 8}


# collectives


def test_collectives_have_one_name_each(tmp_path):
    dist = torch.distributed
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        x = torch.ones(4)

        def three():
            dist.all_reduce(x)
            dist.all_reduce(x)
            dist.all_gather_into_tensor(torch.empty(4), x)

        assert graphs.collectives(three) == {"all_gather": 1, "all_reduce": 2}
        assert graphs.collectives(lambda: x + 1) == {}
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        assert graphs.collectives(lambda: model(torch.ones(2, 4)).sum().backward()) == {"all_reduce": 1}
    finally:
        dist.destroy_process_group()
    assert graphs.collective_name("c10d_functional.reduce_scatter_tensor") == "reduce_scatter"
    assert graphs.collective_name("c10d._allgather_base_") == "all_gather"


# eager operators


def test_operators_are_those_that_start_a_kernel():
    x = torch.randn(4, 6, requires_grad=True)
    assert graphs.operators(lambda: (x.t().reshape(-1) * 2).sigmoid()).names == {"clone": 1, "mul": 1, "sigmoid": 1}
    assert graphs.operators(lambda: torch.empty(3)).total == 0
    assert graphs.operators(torch.compile(chain), x.detach()).total == 5  # mul, add, gelu, tanh, sigmoid
