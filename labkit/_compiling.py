"""``torch.compile`` on a machine that cannot compile: say what it lacks, and let compiled code run eager.

On a CPU torch writes C++ and needs a compiler; on a CUDA GPU it writes Triton. Without them the first call of compiled
code raises. `labkit.hardware.can_compile` says beforehand whether it would.
"""

from __future__ import annotations

import logging
import sys

from labkit import hardware
from labkit.language import t

WAITED_FOR = "torch.compile"  # what `patience` is told when compiled code is about to be called for the first time


def why_not(device=None) -> str:
    """Why ``torch.compile`` does not work for ``device`` (default: ``lab.device()``), and what to type next."""
    if hardware.kind_of(device) == "cuda":
        return t("torch.compile needs Triton on this GPU, and Triton does not work here. lab.machine() says what is "
                 "missing and how to get it; then restart the kernel and run this cell again.")
    return t("torch.compile needs a C++ compiler here, and none works. lab.machine() says what is missing and how "
             "to get it; then restart the kernel and run this cell again.")


def lacks(device=None) -> str:
    """The same in a few words, for a table."""
    if hardware.kind_of(device) == "cuda":
        return t("torch.compile needs Triton on a GPU, and it does not work here")
    return t("torch.compile needs a C++ compiler here")


def let_it_fall_back() -> None:
    """What cannot be compiled runs eager from now on, without the compiler's long log."""
    import torch._dynamo

    torch._dynamo.config.suppress_errors = True
    for name in ("torch._dynamo", "torch._inductor"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def fall_back_without_triton(*, say=print) -> None:
    """Before compiled code is called on a GPU: without a working Triton let it run eager, and say so, once a process.

    Code for the CPU still compiles. A Triton that is there and broken would fail late, in a kernel's launch, where
    torch no longer falls back: so torch is told that there is none.
    """
    if not hardware.has_cuda() or hardware.can_compile("cuda"):
        return
    import torch._inductor.config as inductor
    from torch.utils._triton import has_triton

    if inductor.triton_disable_device_detection:
        return
    inductor.triton_disable_device_detection = True
    has_triton.cache_clear()
    let_it_fall_back()
    say(t("torch.compile needs Triton on this GPU, and Triton does not work here, so what you compile runs eager: "
          "answers stay right, but nothing gets faster, no generated kernels are counted, and claims about them will "
          "not hold. lab.machine() says what is missing and how to get it."))


def before_the_first_call(fn) -> None:
    """`fall_back_without_triton` where ``fn`` came out of ``torch.compile``; a look-up and nothing else elsewhere."""
    if "torch._dynamo" in sys.modules:  # nothing has been compiled before it is loaded
        from labkit._torch_private import is_compiled

        if is_compiled(fn):
            fall_back_without_triton()
