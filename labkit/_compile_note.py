"""What to know about a compiled candidate after its first call: graph breaks, or that it runs eager all along."""

from __future__ import annotations

import torch

from labkit._torch_private import private
from labkit.language import t


def forget_compile_counts() -> None:
    """Start counting anew; `compile_note` then speaks of what was compiled since."""
    with private("torch._dynamo.utils.counters"):
        counters = torch._dynamo.utils.counters
    counters.clear()


def compile_note() -> str:
    """Graph breaks with the first reason, or that nothing was compiled; empty when all is well."""
    with private("torch._dynamo.utils.counters"):
        counters = torch._dynamo.utils.counters
    graphs, breaks = counters["stats"]["unique_graphs"], dict(counters["graph_break"])
    if not graphs:
        return t("torch.compile found nothing to compile: this ran eager")
    if breaks:
        reason = next(iter(breaks)).strip().splitlines()[0]
        return t("{count} graph break(s): {reason}", count=sum(breaks.values()), reason=reason)
    return ""
