"""What a forward pass keeps for its backward pass: counted on paper, and measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import torch


def activation_numbers(batch: int, seq: int, width: int, heads: int) -> int:
    """Numbers that one ``transformer.Block`` keeps of an input (batch, seq, width).

    16 tensors of the input's size (the inputs of both norms, of the four attention products and of the MLP, where the
    widened ones count four times), the attention weights (batch, heads, seq, seq), and mean and deviation of each row
    for both norms. Without dropout this is Korthikanti et al. 2022, arXiv 2205.05198, equation 1.
    """
    return 16 * batch * seq * width + batch * heads * seq * seq + 4 * batch * seq


def alive_bytes(fn: Callable[[], object], device: torch.device | str = "cpu") -> int:
    """Bytes of tensors that ``fn()`` made and that are still there when it returns, its result included.

    CPU: the sum of torch's own allocator events, as the profiler records them. CUDA: ``memory_allocated``, which
    rounds every tensor up to 512 bytes.
    """
    from labkit._profiling import recorded
    from labkit._torch_private import allocations

    device = torch.device(device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        kept = fn()
        found = torch.cuda.memory_allocated(device) - before
    else:
        with recorded(profile_memory=True) as profile:
            kept = fn()
        found = sum(change for _when_ns, change in allocations(profile))
    del kept
    return found


class Kept:
    """Counts the bytes that autograd keeps for backward passes: ``now``, and ``most`` at any time.

    A context manager around forward passes. Each storage is counted once, the ``parameters`` not at all: they are
    there anyway. Bytes leave the count when the backward pass lets go of them.
    """

    def __init__(self, parameters: Iterable[torch.Tensor] = ()):
        self._own = {p.untyped_storage().data_ptr() for p in parameters}
        self._users: Counter[int] = Counter()
        self.now = self.most = 0
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda held: held.tensor)

    def __enter__(self) -> Kept:
        self._hooks.__enter__()
        return self

    def __exit__(self, *problem) -> None:
        self._hooks.__exit__(*problem)

    def _pack(self, tensor: torch.Tensor) -> _Held:
        return _Held(self, tensor.detach())  # the tensor itself would keep its own graph alive in a circle

    def taken(self, storage, change: int) -> None:
        """One more (1) or one less (-1) saved tensor lives in this storage."""
        key = storage.data_ptr()
        if key in self._own:
            return
        self._users[key] += change
        if self._users[key] == max(change, 0):  # the first one came, or the last one went
            self.now += change * storage.nbytes()
            self.most = max(self.most, self.now)


class _Held:
    """A saved tensor; when autograd drops it, its bytes are given back."""

    def __init__(self, kept: Kept, tensor: torch.Tensor):
        self.kept, self.tensor = kept, tensor
        kept.taken(tensor.untyped_storage(), 1)

    def __del__(self):
        self.kept.taken(self.tensor.untyped_storage(), -1)
