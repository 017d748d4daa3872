"""One Triton kernel, run once: the only answer to "does Triton work here" that can be believed.

It stands in a file of its own because Triton reads a kernel's source, and because importing it imports Triton.
"""

from __future__ import annotations

import os


def runs(device: str) -> bool:
    """Add one to four numbers on ``device`` (``"cuda"``, or ``"cpu"`` under Triton's interpreter)."""
    import torch

    before = os.environ.get("TRITON_INTERPRET")
    if device == "cpu":
        # Triton decides when the kernel is decorated, not when it is imported.
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        import triton
        import triton.language as tl

        @triton.jit
        def add_one(pointer, n: tl.constexpr):
            offsets = tl.arange(0, n)
            tl.store(pointer + offsets, tl.load(pointer + offsets) + 1.0)

        values = torch.zeros(4, device=device)
        add_one[(1,)](values, 4)
        return values.sum().item() == 4.0
    except Exception:  # a probe answers; whatever went wrong, Triton is not usable here
        return False
    finally:
        if device == "cpu":
            os.environ.pop("TRITON_INTERPRET") if before is None else os.environ.update(TRITON_INTERPRET=before)
