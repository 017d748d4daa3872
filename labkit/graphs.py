"""Facts about compiled code that can be counted: they do not depend on the clock, so a test may compare them.

Each function says what it runs and what it leaves behind. Counting resets Dynamo: functions that were compiled before
compile again at their next call (quickly, from Inductor's cache on disk). Inputs are cloned, a module's parameters,
buffers and gradients are put back, and so is the random state; what a plain function changes outside stays changed.
What is given a result instead of a function raises NotTimeableError, and says what to type.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator, Sequence

import torch
from torch.utils._pytree import tree_leaves

from labkit import _callables, _compiling, hardware
from labkit import _torch_private as private
from labkit._breaks import Break, Breaks, Recompile, Recompiles, break_from_stack, readable_guard, skipped_frame
from labkit._graph_values import Kernels
from labkit._lab_source import LabSource
from labkit._script_graphs import Nodes, PassResult, after_pass, fused_kinds, graph_text, nodes
from labkit._traffic import Operators, operators
from labkit._undisturbed import backward_of_sum, copied, undisturbed
from labkit._wrapper_code import read_wrapper

__all__ = [
    "Break", "Breaks", "Kernels", "LabSource", "Nodes", "Operators", "PassResult", "Recompile", "Recompiles",
    "after_pass", "breaks", "collectives", "compiled_regions", "copied", "fell_back", "fused_kinds", "generated_source",
    "graph_text", "kernels", "nodes", "operators", "recompiles", "watching",
]  # fmt: skip

# What torch calls a collective, by its path to it, and what everybody calls it.
_COLLECTIVES = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all"}


def kernels(fn, *args, backward: bool = False, as_is: bool = False, **compile_options) -> Kernels:
    """Count the kernel calls that ``torch.compile`` makes of ``fn(*args)``, generated ("fused") and library ("extern").

    ``fn`` is a function or module, and is compiled here with ``compile_options`` (``dynamic=``, ``mode=``, …), or
    something that came out of ``torch.compile``. ``backward=True`` also counts the backward of the sum of its floating
    outputs. ``as_is=True`` runs a plain ``fn`` that calls compiled parts itself, such as a whole training step.

    Counted in the wrapper code that Inductor generates, each compiled graph once: a graph that one call of ``fn`` runs
    five times still counts once. ``torch._inductor.metrics.generated_kernel_count`` and ``counters["inductor"]`` count
    something else, and differ between a cold and a warm cache.
    """
    _callables.require_countable(fn, "lab.graphs.kernels")
    device = _where(args)
    if device.type == "cuda":
        _compiling.fall_back_without_triton()
    call = fn if as_is or private.is_compiled(fn) else torch.compile(fn, **compile_options)
    # A second torch.compile of the same function must not find the first one's graphs, here or afterwards.
    private.reset_dynamo()
    try:
        with undisturbed(fn), private.quiet(), private.captured_wrappers() as wrappers:
            result = call(*copied(args))
            if backward:
                backward_of_sum(result)
    except Exception as error:
        if isinstance(error, ValueError) or hardware.can_compile(device):
            raise
        raise RuntimeError(_compiling.why_not(device)) from error
    finally:
        private.reset_dynamo()
    return Kernels(tuple(read_wrapper(code) for code in wrappers))


def _where(args) -> torch.device:
    """Where a call with ``args`` works: on their GPU, else their CPU; without tensors where the lab works."""
    devices = {x.device for x in tree_leaves(args) if isinstance(x, torch.Tensor)} or {hardware.device()}
    return max(devices, key=lambda device: device.type != "cpu")


def generated_source(fn, *args, backward: bool = False, as_is: bool = False, **compile_options) -> LabSource:
    """The C++ or Triton kernels that Inductor generates for ``fn(*args)``, shown readably. Arguments as `kernels`.

    The text depends on the processor's vector width: on another machine it may be another one.
    """
    _callables.require_countable(fn, "lab.graphs.generated_source")
    return kernels(fn, *args, backward=backward, as_is=as_is, **compile_options).source


def breaks(fn, *args) -> Breaks:
    """Run ``fn(*args)`` through Dynamo and say how many graphs it needed, where it broke off, and why.

    Nothing is generated or compiled to machine code unless ``fn`` came out of ``torch.compile``. Unlike
    ``torch._dynamo.explain`` this also counts breaks with no tensor operation before them, and functions given up
    as a whole.
    """
    _callables.require_countable(fn, "lab.graphs.breaks")
    _compiling.before_the_first_call(fn)
    call = fn if private.is_compiled(fn) else torch.compile(fn, backend="eager")
    private.reset_dynamo()
    try:
        with undisturbed(fn), private.quiet(), private.quiet_logs(), private.compilations() as records:
            call(*copied(args))
        reasons = [break_from_stack(one.reason, one.user_stack) for one in private.graph_break_reasons()]
    finally:
        private.reset_dynamo()
    skipped = [skipped_frame(record) for record in records if record.fail_type]
    graphs = sum(1 for record in records if not record.fail_type and record.graph_op_count)
    return Breaks(graphs, tuple(reasons + skipped))


def recompiles(fn, calls: Sequence[tuple], *, dynamic: bool | None = None) -> Recompiles:
    """Call ``fn(*args)`` for each ``args`` of ``calls`` and say which calls compiled again, and which guard failed.

    ``fn`` is compiled here with Dynamo alone (``backend="eager"``), or came out of ``torch.compile``. An entry of
    ``calls`` that is no tuple is the one argument.
    """
    _callables.require_countable(fn, "lab.graphs.recompiles", right="f, [x, y]")
    _compiling.before_the_first_call(fn)
    call = fn if private.is_compiled(fn) else torch.compile(fn, backend="eager", dynamic=dynamic)
    compiles, reasons, limit_reached = 0, [], False
    private.reset_dynamo()
    try:
        with undisturbed(fn), private.quiet(), private.quiet_logs():
            for number, args in enumerate(calls, 1):
                with private.compilations() as records:
                    call(*copied(args if isinstance(args, tuple) else (args,)))
                limit_reached = limit_reached or any(map(_is_limit, records))
                compiles += sum(1 for record in records if not record.fail_type)
                reasons += [
                    Recompile(number, record.co_name or "", readable_guard(record.recompile_reason))
                    for record in records
                    if record.recompile_reason and not record.fail_type
                ]
    finally:
        private.reset_dynamo()
    return Recompiles(len(calls), compiles, tuple(reasons), limit_reached)


@contextlib.contextmanager
def watching() -> Iterator[types.SimpleNamespace]:
    """Watch what Dynamo does inside, without resetting it. The value has, at the end of the block:

    ``compiles`` (graphs compiled), ``guards`` (of recompilations), ``limit_reached`` (Dynamo gave a function up after
    too many recompilations), ``skipped`` (reasons for which functions stay uncompiled).
    """
    seen = types.SimpleNamespace(compiles=0, guards=(), limit_reached=False, skipped=())
    with private.compilations() as records:
        yield seen
    seen.compiles = sum(1 for record in records if not record.fail_type and record.graph_op_count)
    seen.guards = tuple(readable_guard(record.recompile_reason) for record in records if record.recompile_reason)
    seen.limit_reached = any(map(_is_limit, records))
    seen.skipped = tuple(skipped_frame(r).reason for r in records if r.fail_type and not _is_limit(r))


def compiled_regions(fn, *args) -> int:
    """How many compiled pieces one call of ``fn(*args)`` enters on this thread; the call itself is real.

    Every compiled graph runs inside a Python frame that Dynamo rewrote; those frames are counted.
    """
    _callables.require_countable(fn, "lab.graphs.compiled_regions")
    entered = 0

    def note(frame, event, _arg):
        nonlocal entered
        entered += event == "call" and any(map(private.is_compiled_graph, frame.f_code.co_names))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        fn(*args)
    finally:
        sys.setprofile(before)
    return entered


def fell_back(fn, *args) -> bool:
    """Whether ``fn``, which should be compiled, runs eagerly: one more call enters no compiled region.

    Dynamo does so without a word once a function has been recompiled too often (eight times).
    """
    _callables.require_countable(fn, "lab.graphs.fell_back")
    return compiled_regions(fn, *args) == 0


def collectives(fn, *args) -> dict[str, int]:
    """Count the collectives of one real call of ``fn(*args)`` on this rank: ``{"all_reduce": 2}``, sorted by name.

    Needs a process group. Whether a collective is called functionally, in place or by DDP, it has one name here.
    """
    _callables.require_countable(fn, "lab.graphs.collectives")
    with private.quiet(), private.counted_collectives() as found:
        fn(*args)
    counts: dict[str, int] = {}
    for operator, count in found.items():
        name = collective_name(operator)
        counts[name] = counts.get(name, 0) + count
    return dict(sorted(counts.items()))


def collective_name(operator: str) -> str:
    """``c10d.allreduce_`` -> ``all_reduce``; ``c10d._allgather_base_`` -> ``all_gather``."""
    name = operator.removesuffix(".default").rpartition(".")[2].strip("_")
    for ending in ("_into_tensor", "_tensor", "_base", "_single", "_coalesced"):
        name = name.replace(ending, "")
    return _COLLECTIVES.get(name, name)


def _is_limit(record) -> bool:
    return bool(record.fail_type) and "limit exceeded" in (record.fail_reason or "")
