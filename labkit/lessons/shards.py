"""Data that does not fit: a folder of shards, a limit on memory that the system enforces, and a stream through it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from labkit.lessons.digits_net import CLASSES, PIXELS

ROWS, ROW_BYTES = 64, 2**16  # of a shard: 4 MiB
_ID_BYTES = 4


def write_shards(folder: str, shards: int = 12, *, seed: int = 0) -> int:
    """Write ``shards`` files of 64 made-up samples of 64 KiB each into an empty ``folder``; return the bytes in all."""
    shutil.rmtree(folder, ignore_errors=True)
    Path(folder).mkdir(parents=True)
    generator = np.random.default_rng(seed)
    for number in range(shards):
        rows = generator.integers(0, 256, size=(ROWS, ROW_BYTES), dtype=np.uint8)
        ids = np.arange(number * ROWS, (number + 1) * ROWS, dtype="<u4")
        rows[:, :_ID_BYTES] = ids.view(np.uint8).reshape(ROWS, _ID_BYTES)  # a sample knows its own number
        rows.tofile(Path(folder) / f"shard-{number:04d}.bin")
    return shards * ROWS * ROW_BYTES


def stream(folder: str, rank: int, ranks: int, *, done: int = 0, batch: int = 48) -> Iterator[torch.Tensor]:
    """This rank's samples as batches (batch, 65536), with one shard and one batch in memory, always the same.

    Shard k belongs to rank ``k % ranks``. The first ``done`` samples are skipped, whole shards without opening them.
    """
    shard = torch.empty((ROWS, ROW_BYTES), dtype=torch.uint8)
    rows, filled = torch.empty((batch, ROW_BYTES), dtype=torch.uint8), 0
    for path in sorted(Path(folder).glob("shard-*.bin"))[rank::ranks]:
        if done >= ROWS:
            done -= ROWS
            continue
        read(path, shard)
        fresh, done = shard[done:], 0
        while len(fresh):
            count = min(batch - filled, len(fresh))
            rows[filled : filled + count] = fresh[:count]
            filled, fresh = filled + count, fresh[count:]
            if filled == batch:
                yield rows
                filled = 0
    if filled:
        yield rows[:filled]


def read(path: Path, shard: torch.Tensor) -> None:
    """Fill ``shard`` from a file."""
    with path.open("rb") as file:
        file.readinto(shard.numpy())


def numbers(rows: torch.Tensor) -> list[int]:
    """The samples' own numbers: rows (batch, 65536)."""
    return np.ascontiguousarray(rows[:, :_ID_BYTES].numpy()).view("<u4")[:, 0].tolist()


def samples(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the small network learns from: x (batch, 64) between 0 and 1, y (batch,)."""
    x = rows[:, _ID_BYTES : _ID_BYTES + PIXELS].double() / 255
    return x, rows[:, _ID_BYTES + PIXELS].long() % CLASSES


def fits(folder: str) -> bool:
    """Whether all shards can be held in memory at once: tried, not guessed."""
    held = []
    try:
        for path in sorted(Path(folder).glob("shard-*.bin")):
            held.append(np.fromfile(path, dtype=np.uint8))
    except MemoryError:
        return False
    return True


@contextlib.contextmanager
def memory_cap(extra_mib: int) -> Iterator[bool]:
    """Let this process take at most ``extra_mib`` MiB more than it has now; yields whether the system enforces it.

    Linux only (``RLIMIT_DATA`` counts what a process may write to); elsewhere nothing is limited, nor where a GPU is in
    use, whose driver's own memory would count.
    """
    try:
        import resource

        if torch.cuda.is_initialized():
            raise OSError

        pages = int(Path("/proc/self/statm").read_text().split()[5])
        limit = pages * resource.getpagesize() + extra_mib * 2**20
        before = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, before[1]))
    except (ImportError, OSError, ValueError):
        yield False
        return
    try:
        yield True
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
