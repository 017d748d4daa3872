"""Peak memory of one call: what the call itself allocates at most, above what was allocated before it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from labkit._profiling import recorded
from labkit._torch_private import allocations


def peak_bytes(fn: Callable[[], object], device: torch.device | None = None) -> int:
    """Most bytes of tensors alive at once during ``fn()``, above those alive before it.

    CUDA: ``torch.cuda.max_memory_allocated``. CPU: the running sum of torch's own allocator events, as the profiler
    records them; compiled kernels allocate through the same allocator.
    """
    device = device or torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        fn()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with recorded(profile_memory=True, record_shapes=False) as profile:
        kept = fn()
    del kept
    alive = peak = 0
    for _when_ns, change in allocations(profile):
        alive += change
        peak = max(peak, alive)
    return peak
