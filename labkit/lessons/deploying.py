"""Take a model out of Python: a C++ program against the libtorch inside the torch package, and an AOTInductor package.

Both take a compiler 10 to 60 seconds, so both are kept in torch's extension cache, named by everything that they
depend on: source or graph and weights, torch, processor. Without a compiler the lesson goes on in Python and says so.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from labkit import _probes, hardware
from labkit._cpp_kernels import CompileError, patience
from labkit._torch_private import private, quiet
from labkit.attempts import captured
from labkit.language import t

BUILD_LIMIT_S = 300
RUN_LIMIT_S = 120

# Loads a TorchScript file, runs it on raw float32 numbers, writes raw float32 numbers. Not a line of Python in it.
RUN_CPP = """#include <torch/script.h>
#include <fstream>

int main(int count, char** words) {  // model.pt, input, output, shape of the input
  torch::NoGradGuard no_grad;
  auto model = torch::jit::load(words[1]);
  std::vector<int64_t> shape;
  int64_t numbers = 1;
  for (int i = 4; i < count; ++i) {
    shape.push_back(std::stoll(words[i]));
    numbers *= shape.back();
  }
  auto x = torch::from_file(words[2], false, numbers).view(shape);
  auto y = model.forward({x}).toTensor().contiguous();
  std::ofstream file(words[3], std::ios::binary);
  file.write(static_cast<char*>(y.data_ptr()), y.nbytes());
  return file.good() ? 0 : 1;
}"""


class ProgramError(RuntimeError):
    """The compiled C++ program stopped with an error."""


class CppProgram:
    """A compiled program like `RUN_CPP`: ``program(model_path, x)`` runs it as a process of its own.

    ``x``: float32 on the CPU, any shape. Returns what the program wrote as a flat float32 tensor. Raises ProgramError
    with the program's last line when it fails.
    """

    def __init__(self, path: Path):
        self.path = path

    def __call__(self, model_path, x: torch.Tensor) -> torch.Tensor:
        with tempfile.TemporaryDirectory() as folder:
            given, written = Path(folder, "input"), Path(folder, "output")
            given.write_bytes(x.detach().contiguous().numpy().tobytes())
            command = [str(self.path), str(model_path), str(given), str(written), *map(str, x.shape)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_LIMIT_S)
            if done.returncode:
                said = (done.stderr or done.stdout).strip().splitlines() or [str(done.returncode)]
                raise ProgramError(t(
                    "The C++ program stopped: {said}. Was the model saved with `torch.jit.save`, and does it take this "
                    "input? Nothing else is affected; mend it and run this cell again.", said=said[0]))
            return torch.frombuffer(bytearray(written.read_bytes()), dtype=torch.float32)

    def __repr__(self):
        return "<C++ program>"


def in_python(model_path, x: torch.Tensor) -> torch.Tensor:
    """What the C++ program does, by Python: its place holder where there is no compiler."""
    with quiet(), torch.no_grad():
        return torch.jit.load(model_path, map_location="cpu")(x).flatten()


def cpp_program(source: str) -> Callable:
    """Build ``source`` with the C++ compiler against libtorch, and return it as a `CppProgram`; built once.

    Without a working compiler a line says so and `in_python` is returned. Raises CompileError with the compiler's first
    complaint.
    """
    if not hardware.has_compiler():
        print(t("There is no working C++ compiler here, so no C++ program was built; Python loads the file in its "
                "place. On Ubuntu or Debian type `sudo apt install g++`, on macOS `xcode-select --install`; then "
                "restart the kernel and run this lesson again."))
        return in_python
    path = _cache() / f"program_{_fingerprint(source)}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with patience(t("the C++ compiler")), tempfile.TemporaryDirectory(dir=path.parent) as folder:
            (Path(folder) / "program.cpp").write_text(source)
            done = subprocess.run(_build_command("program.cpp", "program"), cwd=folder, capture_output=True, text=True,
                                  timeout=BUILD_LIMIT_S)
            if done.returncode:
                raise CompileError(t("The C++ compiler refused this program: {complaint}.",
                                     complaint=_complaint(done.stderr)))
            os.replace(Path(folder) / "program", path)  # in one go: another kernel may be building the same
    return CppProgram(path)


def _build_command(source: str, target: str) -> list[str]:
    """The compiler's command line, as one would type it."""
    from torch.utils.cpp_extension import include_paths, library_paths

    libraries = [f"-L{folder}" for folder in library_paths()]
    run_paths = [f"-Wl,-rpath,{folder}" for folder in library_paths()]
    # A CUDA build of libtorch_cpu needs NVIDIA's libraries, which it finds by itself when the program starts.
    lenient = [] if sys.platform == "darwin" else ["-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    headers = [f"-I{folder}" for folder in include_paths()]
    return [_probes.compiler_command(), "-std=c++20", "-O1", abi, *headers, source, "-o", target, *libraries,
            *run_paths, *lenient, "-ltorch_cpu", "-lc10"]


def aot_package(exported, *, name: str = "model") -> Callable:
    """Compile an exported program ahead of time into one ``.pt2`` file, and load it: a function of the same inputs.

    By ``torch._inductor.aoti_compile_and_package`` and ``aoti_load_package``; compiled once. Without a working C++
    compiler a line says so, and the exported program itself, which Python runs, is returned.
    """
    if not hardware.has_compiler():
        print(t("There is no working C++ compiler here, so nothing was compiled ahead of time; Python runs the "
                "exported program in its place."))
        return exported.module()
    with private("torch._inductor.aoti_compile_and_package"):
        from torch._inductor import aoti_compile_and_package, aoti_load_package
    path = _cache() / f"{name}_{_fingerprint(_content(exported))}.pt2"
    page = sys.stdout  # what the compiler prints is caught below; the seconds are for the learner

    def say(text):
        print(text, file=page, flush=True)

    with patience(t("the AOTInductor compiler"), say=say), captured(), quiet():
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                built = aoti_compile_and_package(exported, package_path=str(Path(folder) / path.name))
                os.replace(built, path)
        return aoti_load_package(str(path))


def _content(exported) -> str:
    """What an exported program is made of: its graph, the shapes that enter it, and its weights."""
    weights = io.BytesIO()
    torch.save({name: value.cpu() for name, value in exported.state_dict.items()}, weights)
    shapes = [str(getattr(node.meta.get("val"), "shape", "")) for node in exported.graph.nodes]
    return "\n".join([exported.graph_module.code, *shapes, hashlib.sha256(weights.getvalue()).hexdigest()])


def _cache() -> Path:
    """Where torch keeps compiled extensions, in a folder of our own."""
    from torch.utils.cpp_extension import get_default_build_root

    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root()) / "labkit"


def _fingerprint(content: str) -> str:
    """Another name for another content, torch or processor: a home folder may be shared by unlike machines."""
    parts = (content, torch.__version__, torch.__file__, *sorted(_probes.cpu_flags()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _complaint(log: str) -> str:
    """The first error of a compiler's log, without file names."""
    found = re.search(r"^[^\s:]+:(\d+):(?:\d+:)? (?:fatal )?error: (.+)$", log, re.MULTILINE)
    if found:
        return t("line {line}: {text}", line=found[1], text=found[2].strip())
    return (log.strip().splitlines() or ["?"])[-1]
