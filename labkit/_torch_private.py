"""Every private torch API that labkit reads, each wrapped once.

Private APIs move. A wrapper here turns that into one clear error instead of an AttributeError somewhere in a lesson,
and is the one place to mend. Tried with torch 2.13, read in the sources of 2.9 to 2.12.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import torch

from labkit.language import t

OLDEST = (2, 9)
NEWEST_KNOWN = "2.13"


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


def reset_dynamo() -> None:
    """Forget every compiled graph of this process; Inductor's cache on disk stays."""
    with private("torch._dynamo.reset"):
        reset = torch._dynamo.reset
    reset()


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


def is_compiled(fn) -> bool:
    """Whether ``fn`` came out of ``torch.compile``."""
    with private("torch._dynamo.OptimizedModule"):
        from torch._dynamo import OptimizedModule
    return isinstance(fn, OptimizedModule) or hasattr(fn, "_torchdynamo_orig_callable")
