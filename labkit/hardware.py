"""What this machine is and what works on it: one report, and the small questions that other modules ask.

Labs run on a CPU or on a CUDA GPU. Every answer that costs more than a look-up is kept for the process's life.
"""

from __future__ import annotations

import datetime
import functools
import os
import platform
import sys

import labkit
from labkit import _probes


def is_hidden() -> bool:
    """Whether ``LABKIT_DEVICE=cpu`` tells the labs to leave the GPU aside."""
    return os.environ.get("LABKIT_DEVICE", "").lower() == "cpu"


@functools.cache
def has_cuda() -> bool:
    """Whether a CUDA GPU is there *and* the installed torch can run a kernel on it.

    A wheel built without the GPU's compute capability sees the device and fails at the first launch, so launch one.
    ``LABKIT_DEVICE=cpu`` hides the GPU.
    """
    import torch

    if is_hidden() or not torch.cuda.is_available():
        return False
    try:
        return torch.ones(2, device="cuda").add_(1).sum().item() == 4.0
    except RuntimeError:
        return False


def device():
    """The ``torch.device`` the labs use: ``cuda`` where a GPU works, else ``cpu``."""
    import torch

    return torch.device("cuda" if has_cuda() else "cpu")


def sync(device=None) -> None:
    """Wait until ``device`` (default: ``lab.device()``) has finished all work given to it; in torch a CPU always has.

    ``device`` is a ``torch.device``, its name, or a tensor. MXNet also works on behind your back on a CPU: its array
    is waited for, and without ``device`` its whole engine where it is loaded.
    """
    if hasattr(device, "wait_to_read"):
        device.wait_to_read()
        return
    mxnet = sys.modules.get("mxnet")
    if device is None and hasattr(mxnet, "nd"):
        mxnet.nd.waitall()
    import torch

    target = _device() if device is None else torch.device(getattr(device, "device", device))
    if target.type == "cuda":
        torch.cuda.synchronize(target)
    elif target.type == "mps":
        torch.mps.synchronize()


_device = device  # sync() has a parameter of that name


def kind_of(device=None) -> str:
    """``"cpu"``, ``"cuda"``, …: of a ``torch.device``, its name, or a tensor; of ``lab.device()`` without one."""
    import torch

    return (_device() if device is None else torch.device(getattr(device, "device", device))).type


def pick(*, cpu, gpu):
    """``gpu`` where ``lab.device()`` is a GPU, else ``cpu``: one line that sizes a lab to the machine.

    >>> n = pick(cpu=2**20, gpu=2**26)
    """
    return gpu if has_cuda() else cpu


@functools.cache
def bf16_native() -> bool:
    """Whether ``lab.device()`` computes in bfloat16 itself, rather than by way of float32.

    GPU: compute capability 8.0 or newer. CPU: AVX512-BF16, AMX or Arm's BF16 instructions.
    """
    if has_cuda():
        import torch

        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(_probes.cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"})


def has_compiler() -> bool:
    """Whether a C++ compiler is there and works: ``load_inline`` needs one. For ``torch.compile``: `can_compile`."""
    return _probes.compiler()[0]


@functools.cache
def has_triton() -> bool:
    """Whether a Triton kernel really runs here: on the GPU, or under Triton's interpreter on a CPU."""
    from labkit import _triton_probe

    return _probes.installed("triton") and _triton_probe.runs(device().type)


def can_compile(device=None) -> bool:
    """Whether ``torch.compile`` works here for ``device`` (default: ``lab.device()``; its name or a tensor will do).

    It writes C++ for a CPU, which takes a compiler, and Triton for a CUDA GPU. Other devices are not judged: True.
    """
    kind = kind_of(device)
    if kind == "cuda":
        return has_cuda() and has_triton()
    return has_compiler() if kind == "cpu" else True


@functools.cache
def _fixed_facts() -> dict:
    """The part of a provenance card that does not change while the process lives."""
    facts = {
        "cpu": _probes.cpu_name(),
        "cpus": _probes.cpus(),
        "memory_bytes": _probes.memory_bytes(),
        "os": f"{platform.system()} {platform.machine()}",
        "place": _probes.place(),
        "python": platform.python_version(),
        "labkit": labkit.__version__,
    }
    for package in ("torch", "numpy", "triton", "mxnet"):
        facts[package] = _probes.version(package)
    facts["device"] = device().type
    facts["bf16_native"] = bf16_native()
    if has_cuda():
        import torch

        facts["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        facts["compute_capability"] = "{}.{}".format(*torch.cuda.get_device_capability())
        facts["cuda"] = torch.version.cuda
    return facts


def provenance() -> dict:
    """Where and with what a number was measured: JSON-able, fresh each call, no host's, user's or folder's name."""
    import torch

    now = datetime.datetime.now(datetime.UTC)
    return {**_fixed_facts(), "threads": torch.get_num_threads(), "utc": now.strftime("%Y-%m-%dT%H:%M:%SZ")}


def machine():
    """What this machine is, what works on it, and which lessons run fully, smaller, or need something.

    Shows itself as tables in the current language; ``str()`` is the same as text, ``.facts`` a JSON-able dict, the same
    in every language. Tries the compiler and Triton for real, so the first call takes some seconds. Never raises: what
    cannot be found out is a row that says so.
    """
    from labkit import _machine

    return _machine.report()
