"""Counted facts: hand counts as the outside truth, and cases in which a naive count is wrong."""

from __future__ import annotations

import pytest

import labkit as lab

torch = pytest.importorskip("torch")
from labkit import graphs  # noqa: E402
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
        graphs.backward_of_sum(torch.ones(3))
