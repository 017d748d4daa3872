"""torch's profiler, without what its C++ part writes to standard error: in a notebook that would look like a fault."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from labkit._torch_private import quiet
from labkit.attempts import captured


@contextlib.contextmanager
def recorded(**options) -> Iterator[torch.profiler.profile]:
    """A profile of what runs inside on the CPU; ``options`` as for ``torch.profiler.profile``."""
    with captured(), quiet(), torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], **options
    ) as profile:  # fmt: skip
        yield profile


def runs_compiled(step: Callable[[], object]) -> bool:
    """Whether ``step()`` runs any compiled code: the profiler sees a region of it. Calls it once."""
    with recorded() as profile:
        step()
    return any(event.name.startswith("Torch-Compiled Region") for event in profile.events())
