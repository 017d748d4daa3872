"""Run on a machine with a CUDA GPU what other machines cannot: python -m tests.gpu [--folder DIR] [--skip bench]

The GPU tests, every lesson of both editions from top to bottom, the three labs whose runs README tells of, and the
benches. Writes one JSON card to ``data/measurements/``: the machine and the versions, then what each part came to and
how long it took; ``runs`` and ``cards`` are the labs', as in ``findings.json``. Counts and claims that depend on the
back end are chosen by it inside the lessons, so here a lesson passes when every cell runs; its outputs are not compared
with the committed ones, which were made on a CPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

from labkit._kernel_sockets import unix_sockets
from tests import lanes

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("tests", "lessons", "labs", "bench")
EDITIONS = ("bn", "en")
# How the line begins that lab.claim() prints, in the language of the edition.
CLAIMS = ("Holds: ", "Does not hold here: ", "দাবিটি খাটে: ", "দাবিটি এখানে খাটে না: ")
NO_GPU = """\
এখানে PyTorch কোনো CUDA GPU পাচ্ছে না, তাই মাপার কিছু নেই। যে মেশিনে GPU আছে, সেখানে লিখুন make gpu। এই মেশিনেই GPU থাকলে সম্ভবত
GPU ছাড়া PyTorch ইনস্টল হয়েছে: make clean, তারপর TORCH_INDEX ছাড়া make gpu লিখুন। মেশিনের নিজের PyTorch যদি GPU পায়, লিখুন:
make gpu TORCH=installed
PyTorch finds no CUDA GPU here, so there is nothing to measure. Where there is a GPU, type make gpu. If this machine has
one, PyTorch was probably installed without GPU support: type make clean, then make gpu without TORCH_INDEX. If the
machine's own PyTorch finds the GPU, type:
make gpu TORCH=installed"""


def gpu_tests() -> dict:
    outcome = lanes.run(lanes.LANES["gpu"], lanes.allowed_skips())
    return {"passed": outcome.passed, "failed": outcome.failed, "seconds": round(outcome.seconds, 1), "ok": outcome.ok}


def run_lesson(path: Path) -> dict:
    """Run one committed notebook in its own folder, as a learner's Run All would."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    began, error = time.monotonic(), ""
    try:
        with unix_sockets(client):
            client.execute()
    except Exception as failure:  # whatever stops a lesson belongs on the card; the next lesson still runs
        # nbclient answers SIGINT and SIGTERM by ending the kernel, and leaves no other trace of them than this.
        if hasattr(client, "_async_cleanup_kernel_future"):
            raise KeyboardInterrupt from None
        error = re.sub(r"\x1b\[[0-9;]*m", "", str(failure)).strip().splitlines()[-1]
    printed = [o["text"] for c in notebook.cells for o in c.get("outputs", []) if o.output_type == "stream"]
    claims = [line for text in printed for line in text.splitlines() if line.startswith(CLAIMS)]
    return {"seconds": round(time.monotonic() - began, 1), "ok": not error, "error": error, "claims": claims}


def lessons() -> dict:
    """Every lesson of both editions, by names such as ``bn/01_measuring``."""
    found = {}
    for edition in EDITIONS:
        for path in sorted((ROOT / "notebooks" / edition).glob("[0-9][0-9]_*.ipynb")):
            name = f"{edition}/{path.stem}"
            found[name] = run_lesson(path)
            print(f"{name}: {found[name]['seconds']} s {found[name]['error']}", flush=True)
    both = {name.partition("/")[0] for name in found} == set(EDITIONS)
    return {"lessons": found, "ok": both and all(lesson["ok"] for lesson in found.values())}


def labs() -> dict:
    """``runs`` and ``cards`` by lab, and what went wrong: a lab that fails leaves the others to be run."""
    findings, runs, cards, errors, began = _findings(), {}, {}, {}, time.monotonic()
    for name, controls in findings.RUNS.items():
        try:
            runs[name], cards[name] = findings.run(name, controls)
        except Exception as failure:  # it belongs on the card
            errors[name] = f"{type(failure).__name__}: {failure}"
            print(errors[name], flush=True)
    return {"runs": runs, "cards": cards, "errors": errors, "seconds": round(time.monotonic() - began, 1),
            "ok": bool(cards) and not errors}


def _findings() -> types.ModuleType:
    """``notebooks/findings.py``, which is no part of a package."""
    spec = importlib.util.spec_from_file_location("findings", ROOT / "notebooks/findings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def benches() -> dict:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.json"
        code = subprocess.run([sys.executable, "-m", "tests.bench", "--json", str(table)], cwd=ROOT).returncode
        return {**(json.loads(table.read_text()) if table.exists() else {}), "ok": code == 0}


def card_name(machine: dict) -> str:
    """A file name from the GPU's name and the date: gpu-nvidia-t4-2026-01-31.json."""
    name = re.sub(r"[^a-z0-9]+", "-", str(machine["gpu"]).lower()).strip("-")
    return f"gpu-{name}-{machine['utc'][:10]}.json"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "data/measurements")
    parser.add_argument("--skip", default="", metavar="PART,…", help=f"of {', '.join(PARTS)}")
    options = parser.parse_args(arguments)
    if not lanes.has_gpu():
        print(NO_GPU)
        return 1
    import torch

    from labkit import hardware

    os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", "")
    card = {"machine": {"gpu": torch.cuda.get_device_name(), **hardware.provenance()}}
    work = {"tests": gpu_tests, "lessons": lessons, "labs": labs, "bench": benches}
    path = options.folder / card_name(card["machine"])
    for part in PARTS:
        if part not in options.skip.split(","):
            print(f"\n== {part}", flush=True)
            card[part] = work[part]()
            # Where findings.json has them too: labs show recorded runs from there.
            card.update({key: card[part].pop(key) for key in ("runs", "cards") if part == "labs" and key in card[part]})
            # After each part: a machine that is rented by the hour may be gone before the last one ends.
            path.write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"\nWrote {path}")
    return 0 if all(card[part]["ok"] for part in PARTS if part in card) else 1


if __name__ == "__main__":
    sys.exit(main())
