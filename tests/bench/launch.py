"""What ``%%torchrun`` costs beside bare ``torchrun``, for ranks that only print and for ranks that meet once."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from labkit import launch
from tests.bench import Case, Outcome
from tests.bench._machine import Others

MOST = 1.1
PRINTS = 'import os\nprint("rank", os.environ["RANK"])\n'
MEETS = """\
import torch.distributed as dist

dist.init_process_group("gloo")
print("rank", dist.get_rank())
dist.barrier()
dist.destroy_process_group()
"""


def _bare(script: Path) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(script.parent)},
        capture_output=True, check=True,
    )  # fmt: skip
    return time.perf_counter() - start


def _ours(script: Path) -> float:
    start = time.perf_counter()
    launch.torchrun(script, 2, show=False)
    return time.perf_counter() - start


def _case(label: str, text: str) -> Case:
    def run(quick: bool) -> Outcome:
        with tempfile.TemporaryDirectory() as folder, Others() as others:
            script = Path(folder) / "job.py"
            script.write_text(text)
            _bare(script), _ours(script)  # files into the cache
            pairs = []
            for number in range(3 if quick else 11):  # interleaved, the order turned round every time
                if number % 2:
                    ours, bare = _ours(script), _bare(script)
                else:
                    bare, ours = _bare(script), _ours(script)
                pairs.append((ours, bare))
        ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(one / other for one, other in pairs)
        return Outcome(f"{ratio:.2f}x ({ours:.2f} s against {bare:.2f} s; {others.text})", ratio <= MOST)

    return Case(label, f"at most {MOST}x bare torchrun", run)


def cases() -> list[Case]:
    return [_case("two ranks that print", PRINTS), _case("two ranks that meet once", MEETS)]
