"""The rows of ``lab.machine()``: one probe each, and a probe that fails is a row that says so."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from labkit import _folders, _machine_view, _probes, _repairs, hardware
from labkit._readiness import Readiness, readiness
from labkit.language import t
from labkit.units import size

OLDEST_FOR_TRITON = (7, 0)  # compute capability
GOOD, PARTLY, MISSING, PLAIN, UNKNOWN = "good", "partly", "missing", "plain", "unknown"


@dataclass(frozen=True, repr=False)
class Machine:
    """What ``lab.machine()`` gives. ``facts`` is the same in every language and can be written as JSON."""

    rows: tuple[Row, ...]
    lessons: tuple[Readiness, ...]
    facts: dict

    def __str__(self) -> str:
        return _machine_view.as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _machine_view.as_html(self)


def report() -> Machine:
    """Ask everything once. Takes a few seconds the first time: a compiler and, where there is one, a GPU are tried."""
    found = rows()
    lessons = readiness({row.key: row for row in found})
    facts = {
        "states": {row.key: row.state for row in found},
        "lessons": {lesson.number: lesson.state for lesson in lessons},
    }
    try:
        facts = {**hardware.provenance(), **facts}
    except Exception as error:  # as for a row: the report stands without it
        facts["provenance"] = type(error).__name__
    return Machine(tuple(found), tuple(lessons), facts)


@dataclass(frozen=True)
class Row:
    """One line of the report. ``repair`` is a command or a short instruction, empty where nothing is amiss."""

    key: str
    label: str
    text: str
    state: str = PLAIN
    repair: str = ""


def rows() -> list[Row]:
    """Every row, in reading order; never raises."""
    found = [_safely(key, probe) for key, probe in _PROBES.items()]
    return [row for row in found if row is not None]


def _safely(key: str, probe) -> Row | None:
    try:
        return probe(key)
    except Exception as error:  # whatever breaks here is news about the machine, not the end of the report
        return Row(key, key, t("could not be found out ({error})", error=type(error).__name__), UNKNOWN)


def _place(key: str) -> Row:
    name = {"colab": "Colab", "kaggle": "Kaggle", "local": t("your own machine")}[_probes.place()]
    return Row(key, t("Where"), f"{name}, {platform.system()} {platform.machine()}")


def _python(key: str) -> Row:
    known = (3, 11) <= sys.version_info[:2] <= (3, 13)
    repair = "" if known else t("labkit is tested with Python 3.11, 3.12 and 3.13: make setup PYTHON=python3.12")
    return Row(key, "Python", platform.python_version(), GOOD if known else PARTLY, repair)


def _torch(key: str) -> Row:
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else t("built for CPUs")
    return Row(key, "PyTorch", f"{torch.__version__}, {build}", GOOD)


def _cpu(key: str) -> Row:
    import torch

    text = t("{name}; {cpus} processors, {threads} threads in use", name=_probes.cpu_name(), cpus=_probes.cpus(),
             threads=torch.get_num_threads())
    return Row(key, "CPU", f"{text}; {torch.backends.cpu.get_cpu_capability()}")


def _memory(key: str) -> Row:
    total = _probes.memory_bytes()
    return Row(key, t("Memory"), size(total) if total else t("unknown"))


def _gpu(key: str) -> Row:
    import torch

    if not torch.cuda.is_available():
        if shutil.which("nvidia-smi") and not torch.version.cuda:
            text = t("there is one, but this PyTorch is built for CPUs")
            return Row(key, "GPU", text, MISSING, _repairs.torch_cuda())
        return Row(key, "GPU", t("none; every lab runs on the CPU too"))
    count = torch.cuda.device_count()
    major, minor = torch.cuda.get_device_capability()
    memory = size(torch.cuda.get_device_properties(0).total_memory)
    text = f"{count} × {torch.cuda.get_device_name()}, sm_{major}{minor}, {memory}"
    if hardware.has_cuda():
        return Row(key, "GPU", text, GOOD)
    if hardware.is_hidden():
        return Row(key, "GPU", t("{gpu}: left aside, because LABKIT_DEVICE says cpu", gpu=text))
    known = " ".join(torch.cuda.get_arch_list())
    why = t("{gpu}: this PyTorch cannot use it (built for {known})", gpu=text, known=known)
    return Row(key, "GPU", why, MISSING, _repairs.torch_cuda())


def _bf16(key: str) -> Row:
    device = hardware.pick(cpu="CPU", gpu="GPU")
    if hardware.bf16_native():
        return Row(key, "bfloat16", t("native on {device}", device=device), GOOD)
    return Row(key, "bfloat16", t("emulated on {device}: right, but not faster", device=device), PARTLY)


def _compiler(key: str) -> Row:
    works, detail = _probes.compiler()
    if not works:
        reasons = {
            "not found": t("not found"),
            "no Python.h": t("there, but Python's header files are missing"),
            "does not compile": t("there, but a small program does not compile"),
        }
        return Row(key, t("C++ compiler"), reasons.get(detail, detail), MISSING, _repairs.compiler(detail))
    if not shutil.which("ninja"):
        text = t("{name}, but ninja is not on the PATH", name=detail)
        return Row(key, t("C++ compiler"), text, PARTLY, _repairs.ninja())
    return Row(key, t("C++ compiler"), detail, GOOD)


def _triton(key: str) -> Row:
    if hardware.has_triton():
        how = t("on the GPU") if hardware.has_cuda() else t("in its interpreter, without a GPU")
        return Row(key, "Triton", f"{_probes.version('triton') or ''} {how}".strip(), GOOD)
    if _probes.installed("triton"):
        text = t("installed, but a small kernel does not run here")
        return Row(key, "Triton", text, PARTLY, _mend_triton() if hardware.has_cuda() else "")
    return Row(key, "Triton", t("not installed"), PARTLY, _repairs.triton())


def _mend_triton() -> str:
    """For a Triton that is there and does not run on the GPU. It calls a C compiler, and it leaves old GPUs aside."""
    import torch

    if torch.cuda.get_device_capability() < OLDEST_FOR_TRITON:
        return t("none: Triton needs a newer GPU (sm_70); every lab runs without it")
    works, detail = _probes.compiler()
    return _repairs.triton(anew=True) if works else _repairs.compiler(detail)


def _compile(key: str) -> Row:
    """What makes its code, the C++ compiler or Triton, has a row of its own, with the command that gets it."""
    device = hardware.pick(cpu="CPU", gpu="GPU")
    if hardware.can_compile():
        return Row(key, "torch.compile", t("works on the {device}", device=device), GOOD)
    if hardware.has_cuda():
        text = t("not on this GPU, for Triton does not work: what you compile runs eager")
        return Row(key, "torch.compile", text, PARTLY, _triton("triton").repair)
    return Row(key, "torch.compile", t("not here: it needs a C++ compiler"), MISSING, _compiler("compiler").repair)


def _ranks(key: str) -> Row:
    import torch.distributed as dist

    if not dist.is_available():
        text = t("this PyTorch is built without them")
        return Row(key, t("Several ranks"), text, MISSING, t("use Linux, WSL or Colab for lessons 07 and 08"))
    there = {"gloo": dist.is_gloo_available(), "nccl": dist.is_nccl_available() and hardware.has_cuda()}
    return Row(key, t("Several ranks"), ", ".join(name for name, here in there.items() if here), GOOD)


def _mxnet(key: str) -> Row:
    found = _probes.version("mxnet")
    if found is None:
        return Row(key, "MXNet", t("not installed"), PARTLY, _repairs.mxnet())
    return Row(key, "MXNet", found, GOOD)


def _bengali(key: str) -> Row:
    from labkit._figure import bengali_text

    how = bengali_text()
    text = {
        "shaped": t("drawn by matplotlib"),
        "browser": t("set by the browser (this matplotlib cannot)"),
        "english": t("not possible here: figures are in English"),
    }[how]
    repair = {"shaped": "", "browser": "", "english": _repairs.labkit()}[how]
    return Row(key, t("Bengali in figures"), text, {"shaped": GOOD, "browser": PARTLY, "english": MISSING}[how], repair)


def _page_font(key: str) -> Row:
    """Where the browser runs beside the kernel, the system's fonts are the browser's."""
    label = t("Bengali on the page")
    if _probes.place() != "local" or not shutil.which("fc-list"):
        return Row(key, label, t("with your browser's own font"))
    asked = subprocess.run(["fc-list", ":lang=bn", "family"], capture_output=True, text=True, timeout=20)
    if asked.stdout.strip():
        return Row(key, label, asked.stdout.splitlines()[0].split(",")[0], GOOD)
    return Row(key, label, t("no Bengali font on this system"), PARTLY, _repairs.font())


def _power(key: str) -> Row | None:
    """A row only where there is something to say."""
    if not _probes.on_battery():
        return None
    text = t("on battery: the processor may get slower while it works")
    return Row(key, t("Power"), text, PARTLY, t("plug it in before you measure"))


def _folder(key: str) -> Row | None:
    """A row only where this folder or the home folder is read-only."""
    label, home = t("Folders"), Path.home()
    if not _folders.writable(Path.cwd()):
        text = t("this folder cannot be written to: results and changed notebooks cannot be saved here")
        return Row(key, label, text, MISSING, t("copy the notebooks into a folder of your own and open them there"))
    if not _folders.writable(home):
        text = t("your home folder cannot be written to: what is compiled is kept only until the machine restarts")
        return Row(key, label, text, PARTLY, t("ask whoever looks after this machine for a home folder"))
    return None


_PROBES = {
    "place": _place,
    "python": _python,
    "torch": _torch,
    "cpu": _cpu,
    "memory": _memory,
    "power": _power,
    "folder": _folder,
    "gpu": _gpu,
    "bf16": _bf16,
    "compiler": _compiler,
    "triton": _triton,
    "compile": _compile,
    "ranks": _ranks,
    "mxnet": _mxnet,
    "bengali": _bengali,
    "page_font": _page_font,
}
