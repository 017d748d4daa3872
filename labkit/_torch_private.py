"""Every private torch API that labkit reads, each wrapped once.

Private APIs move. A wrapper here turns that into one clear error instead of an AttributeError somewhere in a lesson,
and is the one place to mend. Tried with torch 2.13, read in the sources of 2.9 to 2.12.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

import torch

from labkit.language import t

OLDEST = (2, 9)
NEWEST_KNOWN = "2.13"
_MANY = 4096  # compilations kept while watching; torch keeps 64


class TorchMovedError(RuntimeError):
    """This torch does not have a private API that labkit reads, or has it in another form."""


def torch_version() -> tuple[int, int]:
    """Major and minor number of the running torch: ``(2, 13)``."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


@contextlib.contextmanager
def private(api: str) -> Iterator[None]:
    """Use a private API inside; TorchMovedError is raised where this torch lacks it. ``api`` names it."""
    if torch_version() < OLDEST:
        raise TorchMovedError(
            t(
                "labkit reads {api}, which it knows from torch 2.9 on; this is torch {version}. Install a newer one "
                "(pip install --upgrade torch), restart the kernel and run this cell again.",
                api=api,
                version=torch.__version__,
            )
        )
    try:
        yield
    except (ImportError, AttributeError) as error:
        raise TorchMovedError(
            t(
                "labkit reads {api} inside torch, and torch {version} moved it. labkit knows torch 2.9 to {newest}: "
                "install one of these, or mend labkit/_torch_private.py. Nothing was counted.",
                api=api,
                version=torch.__version__,
                newest=NEWEST_KNOWN,
            )
        ) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No warnings inside: what torch deprecates here is labkit's affair, not the learner's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def quiet_logs() -> Iterator[None]:
    """No log lines of Dynamo inside; what they say is in the value returned."""
    logger = logging.getLogger("torch._dynamo")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def allows_tf32() -> bool:
    """Whether float32 products or convolutions on a CUDA GPU may round their factors to 10-bit mantissas.

    The old switches cannot be read any more once somebody has turned the new ones, ``fp32_precision``.
    """
    backends = torch.backends
    try:
        return backends.cudnn.allow_tf32 or backends.cuda.matmul.allow_tf32
    except RuntimeError:
        with private("torch.backends.*.fp32_precision"):
            switches = (backends.cudnn.conv, backends.cudnn.rnn, backends.cuda.matmul)
            return any(switch.fp32_precision == "tf32" for switch in switches)


def keep_gpu_busy(cycles: int) -> None:
    """Let the current CUDA GPU count so many cycles, doing nothing else; nothing where this torch cannot."""
    getattr(torch.cuda, "_sleep", lambda _cycles: None)(cycles)


def reset_dynamo() -> None:
    """Forget every compiled graph of this process; Inductor's cache on disk stays."""
    with private("torch._dynamo.reset"):
        reset = torch._dynamo.reset
    reset()


def mark_dynamic(tensor: torch.Tensor, dim: int) -> None:
    """Tell the compiler that this size will change, so that it writes one code for all sizes from the start."""
    with private("torch._dynamo.maybe_mark_dynamic"):
        torch._dynamo.maybe_mark_dynamic(tensor, dim)


@contextlib.contextmanager
def captured_wrappers() -> Iterator[list[str]]:
    """Collect the wrapper code of every graph that Inductor builds or loads from its cache inside, in order.

    The hook is the one that ``torch._inductor.utils.run_and_get_code`` uses. That function keeps a set, so two equal
    graphs of one function (the halves around a graph break, say) would count once; here they count twice.
    """
    with private("torch._inductor.graph.GraphLowering.save_output_code"):
        from torch._inductor.graph import GraphLowering

        before = GraphLowering.save_output_code
    sources: list[str] = []
    GraphLowering.save_output_code = sources.append
    try:
        yield sources
    finally:
        GraphLowering.save_output_code = before


@contextlib.contextmanager
def captured_origins() -> Iterator[list[tuple[str, dict[str, list[str]]]]]:
    """Collect of every graph that Inductor builds inside: its wrapper code, and the Python stacks behind each kernel.

    The stacks stand under ``"name:number"``, counted in the order of launch. Graphs are built anew, past the caches of
    graphs (they keep no stacks); compiled kernels still come from the disk.
    """
    with private("torch._inductor.config.trace.provenance_tracking_level"):
        tracking = torch._inductor.config.patch({"trace.provenance_tracking_level": 1, "fx_graph_cache": False})
    with private("torch._functorch.config.enable_autograd_cache"):
        uncached = torch._functorch.config.patch(enable_autograd_cache=False)
    with private("torch._inductor.debug._inductor_kernel_stack_trace"):
        from torch._inductor import debug
        from torch._inductor.graph import GraphLowering

        before, _ = GraphLowering.save_output_code, debug._inductor_kernel_stack_trace
    found: list[tuple[str, dict[str, list[str]]]] = []
    GraphLowering.save_output_code = lambda code: found.append((code, dict(debug._inductor_kernel_stack_trace)))
    try:
        with tracking, uncached:
            yield found
    finally:
        GraphLowering.save_output_code = before


@contextlib.contextmanager
def same_randomness() -> Iterator[None]:
    """Compiled code draws the random numbers that eager would draw (slower, for checking only)."""
    with private("torch._inductor.config.fallback_random"):
        patched = torch._inductor.config.patch(fallback_random=True)
    with patched:
        yield


@contextlib.contextmanager
def roomy_dynamo() -> Iterator[None]:
    """Let Dynamo keep many versions of one function: past its limit it runs eager without a word.

    Old entries need not be thrown away then to compile copies of one model one after another, so each compiles once.
    """
    with private("torch._dynamo.config.recompile_limit"):
        patched = torch._dynamo.config.patch(recompile_limit=256, accumulated_recompile_limit=1024)
    with patched:
        yield


def allocations(profile) -> list[tuple[int, int]]:
    """(nanoseconds, bytes) of each allocation, and of each release with negative bytes, that a profile recorded."""
    with private("torch.profiler.profile.profiler.kineto_results"):
        events = profile.profiler.kineto_results.events()
        return sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")


def is_compiled(fn) -> bool:
    """Whether ``fn`` came out of ``torch.compile``."""
    with private("torch._dynamo.OptimizedModule"):
        from torch._dynamo import OptimizedModule
    return isinstance(fn, OptimizedModule) or hasattr(fn, "_torchdynamo_orig_callable")


def original(fn):
    """What ``torch.compile`` was given; ``fn`` itself where it was not compiled."""
    return getattr(fn, "_orig_mod", None) or getattr(fn, "_torchdynamo_orig_callable", fn)


def is_compiled_graph(name: str) -> bool:
    """Whether a global name in rewritten code is one of Dynamo's compiled graphs."""
    return name.startswith("__compiled_fn")


@contextlib.contextmanager
def compilations() -> Iterator[list]:
    """Collect Dynamo's record of every compilation inside (``CompilationMetrics``); the list is filled at the end."""
    with private("torch._dynamo.utils.get_compilation_metrics"):
        from torch._dynamo import utils

        utils.set_compilation_metrics_limit(_MANY)
        before = utils.get_compilation_metrics()
    records: list = []
    try:
        yield records
    finally:
        known = {id(record) for record in before}
        records += [record for record in utils.get_compilation_metrics() if id(record) not in known]
        utils.set_compilation_metrics_limit(utils.DEFAULT_COMPILATION_METRICS_LIMIT)


def graph_break_reasons() -> list:
    """Why and where graphs broke since the last reset: objects with ``reason`` and ``user_stack``.

    ``torch._dynamo.explain`` leaves out every break with no tensor operation before it.
    """
    with private("torch._dynamo.utils.graph_break_reasons"):
        from torch._dynamo.utils import graph_break_reasons as reasons
    return list(reasons)


def run_pass(graph, name: str):
    """Run the TorchScript pass ``name`` ("cse", "dce", …) on ``graph`` in place."""
    with private(f"torch._C._jit_pass_{name}"):
        run = getattr(torch._C, f"_jit_pass_{name}")
    run(graph)


def known_passes() -> list[str]:
    """Names of the TorchScript passes of this torch."""
    return sorted(name.removeprefix("_jit_pass_") for name in dir(torch._C) if name.startswith("_jit_pass_"))


@contextlib.contextmanager
def counted_collectives() -> Iterator[dict[str, int]]:
    """Count the collectives inside by ``CommDebugMode``: operator name -> calls; filled at the end."""
    with private("torch.distributed.tensor.debug.CommDebugMode"):
        from torch.distributed.tensor.debug import CommDebugMode

        mode = CommDebugMode()
    counts: dict[str, int] = {}
    with mode:
        yield counts
    counts.update({str(operator): count for operator, count in mode.get_comm_counts().items() if count})
