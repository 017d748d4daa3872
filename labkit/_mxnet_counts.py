"""What MXNet does, counted: calls into its engine, calls of a kvstore, contexts that work, nodes of a symbol."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from dataclasses import dataclass

from labkit import mx


def contexts() -> list:
    """Two contexts: two GPUs where this MXNet sees as many, else ``[cpu(0), cpu(1)]``, which share the cores."""
    module = mx.load()
    return [module.gpu(0), module.gpu(1)] if module.context.num_gpus() > 1 else [module.cpu(0), module.cpu(1)]


@dataclass(frozen=True)
class EngineCalls:
    """How often Python called into MXNet's engine: single ``operations``, and whole ``graphs`` of a hybridized net."""

    operations: int
    graphs: int


def engine_calls(fn, *args) -> EngineCalls:
    """Run ``fn(*args)`` once and count its calls into the engine. The first call of a hybridized net builds its graph
    and is not the usual one: call it once before."""
    library, seen = mx.load().base._LIB, Counter()
    names = {"MXImperativeInvokeEx": "operations", "MXInvokeCachedOpEx": "graphs"}
    originals = {name: getattr(library, name) for name in names}

    def counting(name):
        def call(*arguments):
            seen[names[name]] += 1
            return originals[name](*arguments)

        return call

    try:
        for name in names:
            setattr(library, name, counting(name))
        fn(*args)
    finally:
        for name, original in originals.items():
            setattr(library, name, original)
    return EngineCalls(seen["operations"], seen["graphs"])


@contextlib.contextmanager
def kvstore_calls():
    """A Counter that grows while the block runs: how often a kvstore's methods were called, by name."""
    store, seen = mx.load().kvstore.KVStore, Counter()
    originals = {name: getattr(store, name) for name in ("broadcast", "pushpull", "push", "pull")}

    def counting(name):
        def method(self, *arguments, **named):
            seen[name] += 1
            return originals[name](self, *arguments, **named)

        return method

    try:
        for name in originals:
            setattr(store, name, counting(name))
        yield seen
    finally:
        for name, original in originals.items():
            setattr(store, name, original)


@contextlib.contextmanager
def contexts_at_work(net):
    """A Counter that grows while the block runs: samples that went through ``net``, by context ("cpu(0)")."""
    seen = Counter()

    def note(block, inputs, output):
        seen[str(inputs[0].context)] += inputs[0].shape[0]

    handle = net.register_forward_hook(note)
    try:
        yield seen
    finally:
        handle.detach()


def node_kinds(symbol) -> dict[str, int]:
    """How many nodes of each kind a symbol's graph has, without its variables, in order of first appearance."""
    nodes = json.loads(symbol.tojson())["nodes"]
    return dict(Counter(node["op"] for node in nodes if node["op"] != "null"))


def same_everywhere(net) -> bool:
    """Whether every parameter has the same bits on all of its contexts."""
    return all(
        (first.asnumpy() == copy.asnumpy()).all()
        for first, *copies in (p.list_data() for p in net.collect_params().values())
        for copy in copies
    )
