"""Compile a C++ loop in a second or two and call it on tensors.

torch's usual ``load_inline(…, functions=[…])`` reads ``torch/extension.h``, which alone takes a compiler half a minute:
too long for someone who learns by changing a line and looking. So the loop here takes plain pointers, includes only
``ATen/Parallel.h``, and is called through ctypes.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from labkit import _compiling, _probes, hardware
from labkit.language import t

QUIET_S = 3.0  # a wait shorter than this needs no explanation
EVERY_S = 5.0
STALE_S = 90.0  # a compile here takes seconds


class CompileError(ValueError):
    """The C++ compiler refused the learner's source."""


class CppFunction:
    """A compiled ``void name(const float* in, …, float* out, int64_t n)``, called with as many tensors of ``n`` floats.

    Returns the last tensor, which the loop has filled. Raises TypeError for a tensor that the pointers cannot stand
    for: another dtype or device, or elements that do not lie one after the other.
    """

    def __init__(self, name: str, path: str, tensors: int):
        self.name, self.tensors = name, tensors
        self._call = getattr(ctypes.CDLL(path), name)
        self._call.argtypes = [ctypes.c_void_p] * tensors + [ctypes.c_int64]
        self._call.restype = None

    def __call__(self, *tensors):
        import torch

        if len(tensors) != self.tensors:
            raise TypeError(t("`{name}` takes {wanted} tensors, the output last; it was given {got}.", name=self.name,
                              wanted=self.tensors, got=len(tensors)))
        n = tensors[-1].numel()
        for x in tensors:
            if x.dtype != torch.float32 or x.device.type != "cpu" or x.numel() != n or not x.is_contiguous():
                raise TypeError(t(
                    "`{name}` needs float32 tensors of one size on the CPU, their elements one after the other in "
                    "memory; it was given {dtype} on {device} with {count} elements. Use `.float()`, `.cpu()`, "
                    "`.contiguous()`.", name=self.name, dtype=str(x.dtype), device=str(x.device), count=x.numel()))
        self._call(*(x.data_ptr() for x in tensors), n)
        return tensors[-1]

    def __repr__(self):
        return f"<C++ {self.name}>"


def cpp_function(name: str, source: str, *, otherwise: Callable | None = None, say=None) -> Callable:
    """Compile ``source`` with ``load_inline`` and return its function ``name``, callable on float32 CPU tensors.

    The number of tensors is read from the ``float*`` parameters in the source. What was compiled once is found again in
    torch's extension cache. Without a working C++ compiler the lesson goes on: a line says so, and ``otherwise`` (a
    Python function with the same arguments) is returned in its place; where there is none, RuntimeError. ``say`` gets
    what a long wait has to tell, and prints unless given.

    Raises CompileError with the compiler's first complaint.
    """
    if not hardware.has_compiler():
        text = t("There is no working C++ compiler here, so `{name}` was not compiled. On Ubuntu or Debian type `sudo "
                 "apt install g++`, on macOS `xcode-select --install`; then restart the kernel and run this lesson "
                 "again.", name=name)
        if otherwise is None:
            raise RuntimeError(text)
        _compiling.let_it_fall_back()  # torch.compile needs the same compiler
        print(text, t("Until then the unfused Python function takes its place: answers stay right, but nothing gets "
                      "faster, and claims about it will not hold."))
        return otherwise
    from torch.utils.cpp_extension import load_inline

    _find_ninja()
    unique = f"{name}_{_fingerprint(source)}"
    try:
        with patience(t("the C++ compiler"), say=say):
            _wait_for_others(unique)
            path = load_inline(unique, [source], extra_cflags=flags(), no_implicit_headers=True, is_python_module=False)
    except RuntimeError as error:
        raise CompileError(t(
            "The C++ compiler refused `{name}`: {complaint}. Look for a missing semicolon, a bracket that stays open, "
            "a wrong name. Mend the source and run this cell again.", name=name, complaint=_complaint(str(error)))
        ) from None
    head = re.search(rf"\b{name}\s*\(([^)]*)\)", source)
    return CppFunction(name, path, len(re.findall(r"float\s*\*", head[1])) if head else 2)


def _wait_for_others(name: str, *, stale_s: float = STALE_S) -> None:
    """Wait while another process compiles ``name``; a lock older than ``stale_s`` was left by one that was killed.

    torch itself waits for such a lock for ever.
    """
    from torch.utils.cpp_extension import _get_build_directory

    lock = Path(_get_build_directory(name, verbose=False)) / "lock"
    with contextlib.suppress(FileNotFoundError):
        while time.time() - lock.stat().st_mtime < stale_s:
            time.sleep(0.2)
        lock.unlink()


def _fingerprint(source: str) -> str:
    """Another name for another source, torch or processor.

    torch's extension cache goes by the name alone. A home folder may be shared by machines of which one lacks the
    vector instructions of the other, and by environments that would rebuild each other's library while it is in use.
    """
    import torch

    parts = (source, *flags(), torch.__version__, torch.__file__, *sorted(_probes.cpu_flags()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def flags() -> list[str]:
    """Compiler flags that let a plain loop use every core and the processor's wide instructions.

    ``-fno-trapping-math``: without it GCC may not turn ``v < 0 ? 0 : v`` into a vector instruction, because a
    comparison might raise a floating-point exception flag that someone reads; the loop is then twice as slow. (With the
    masks of AVX-512 it does so even without.) Apple's compiler has no OpenMP, so there the loop runs on one core.
    """
    return ["-O3", "-march=native", "-fno-trapping-math", *([] if sys.platform == "darwin" else ["-fopenmp"])]


@contextlib.contextmanager
def patience(what: str, *, clock=time.monotonic, say=None) -> Iterator[None]:
    """Say what a long wait is for, and count the seconds; a wait under three seconds stays silent.

    Whoever waits for ``"torch.compile"`` on a GPU without a working Triton is told, and what was compiled runs eager.
    """
    say = say or (lambda text: print(text, flush=True))
    begin, over, spoke = clock(), threading.Event(), threading.Event()

    def report():
        wait_s = QUIET_S
        while not over.wait(wait_s):
            if not spoke.is_set():
                say(t("Waiting for {what}. The first time this takes up to a minute; later it comes from the cache.",
                      what=what))
                spoke.set()
            say(t("… {seconds:.0f} s", seconds=clock() - begin))
            wait_s = EVERY_S

    thread = threading.Thread(target=report, daemon=True, name="labkit-patience")
    thread.start()
    try:
        if what == _compiling.WAITED_FOR:
            _compiling.fall_back_without_triton(say=say)
        yield
    finally:
        over.set()
        thread.join()
        if spoke.is_set():
            say(t("Ready after {seconds:.0f} s.", seconds=clock() - begin))


def _find_ninja() -> None:
    """Put the ninja of this environment on PATH: a notebook's kernel may run in an environment nobody activated."""
    if shutil.which("ninja") is None:
        import ninja

        os.environ["PATH"] = ninja.BIN_DIR + os.pathsep + os.environ.get("PATH", "")


def _complaint(log: str) -> str:
    """The first error of a compiler's log, without file names: ``line 7: 'v' was not declared in this scope``."""
    found = re.search(r"^[^\s:]+:(\d+):(?:\d+:)? (?:fatal )?error: (.+)$", log, re.MULTILINE)
    return t("line {line}: {text}", line=found[1], text=found[2].strip()) if found else log.strip().splitlines()[-1]
