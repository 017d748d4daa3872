"""Checkpoints that survive faults: written by all ranks together, complete or ignored, loaded without running code.

A thin layer over ``torch.distributed.checkpoint`` (DCP), which shards the work and can load with another number of
ranks, for four things it leaves to its user: a folder whose save was cut short (it has no ``.metadata``) is never
resumed from; a full disk is called a full disk; reading unpickles nothing but DCP's own records, where DCP itself calls
``pickle.load`` and ``torch.load(weights_only=False)``; and a checkpoint is named by its step.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pickle
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from labkit._report import plain
from labkit.language import t

_NAME = re.compile(r"step_(\d+)")
_COMPLETE = ".metadata"  # DCP writes it last, by renaming
_NO_SPACE = re.compile(r"no space left|errno 28|file write failed|unexpected pos \d+ vs", re.IGNORECASE)
_RECORDS = {
    "torch.distributed.checkpoint.metadata": None,  # None: every class of that module
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "pathlib": {"PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"},
    "pathlib._local": {"PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"},
    "collections": {"OrderedDict"},
}


def save_checkpoint(
    folder: str | os.PathLike, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, **more
) -> Path:
    """Write ``folder/step_00000020``, all ranks together (each its own part); return that path.

    ``model`` may be plain, DDP, FSDP2 or tensor parallel; the names in the file are those of the plain model. ``more``:
    what ``report()`` can carry (tensors come back as lists), equal on all ranks. The folder must be one that every
    rank sees. Raises OSError (ENOSPC) on every rank when a disk is full.
    """
    path = Path(folder) / f"step_{step:08d}"
    if _first():
        path.mkdir(parents=True, exist_ok=True)
        (path / _COMPLETE).unlink(missing_ok=True)  # else a cut-short rewrite would look complete
    _together()
    state = {**_state(model, optimizer), "more": json.dumps(plain({"step": step, **more}, "more"))}
    try:
        with _quiet():
            dcp.save(state, checkpoint_id=str(path))
    except BaseException as error:  # CheckpointException is no Exception
        if _disk_was_full(error, path):
            raise OSError(
                errno.ENOSPC,
                t(
                    "no space left on the disk of {path}. The checkpoint of step {step} is incomplete and will be"
                    " ignored; the last complete one is still good. Delete what you do not need, or give another"
                    " folder.",
                    path=folder,
                    step=step,
                ),
            ) from error
        raise
    return path


def latest_checkpoint(folder: str | os.PathLike) -> Path | None:
    """The complete checkpoint of the highest step in ``folder``, or None when there is none to resume from."""
    found = []
    for path in Path(folder).glob("step_*"):
        match = _NAME.fullmatch(path.name)
        if match and (path / _COMPLETE).is_file():
            found.append((int(match[1]), path))
    return max(found)[1] if found else None


def load_checkpoint(
    path: str | os.PathLike, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> dict:
    """Load into ``model`` and ``optimizer``, all ranks together, however many saved it; return ``step`` and the rest.

    Raises FileNotFoundError for a checkpoint that is not there or not complete, pickle.UnpicklingError for one that
    holds anything but tensors and plain values.
    """
    path = Path(path)
    if not (path / _COMPLETE).is_file():
        raise FileNotFoundError(
            t(
                "{path} is not a complete checkpoint: its .metadata file is missing, so its writing was cut short."
                " lab.launch.latest_checkpoint(folder) finds the newest complete one.",
                path=path,
            )
        )
    reader, state = _PlainReader(str(path)), {**_state(model, optimizer), "more": ""}
    reader.read_metadata()  # DCP would wrap its complaint in a CheckpointException
    try:
        with _quiet():
            dcp.load(state, storage_reader=reader, planner=_PlainPlanner())
    except dcp.CheckpointException as error:
        for cause, _ in error.failures.values():
            if isinstance(cause, pickle.UnpicklingError):
                raise cause from error
        raise
    set_state_dict(
        model,
        optimizer if optimizer is not None else (),
        model_state_dict=state["model"],
        optim_state_dict=state.get("optimizer", {}),
    )
    return json.loads(state["more"])


class _PlainReader(FileSystemReader):
    """Reads DCP's ``.metadata`` without letting it run anything."""

    def read_metadata(self, *args, **kwargs) -> Metadata:
        with (Path(self.path) / _COMPLETE).open("rb") as file:
            metadata = _RecordsOnly(file).load()
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class _RecordsOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str):
        if module in _RECORDS and (_RECORDS[module] is None or name in _RECORDS[module]):
            return super().find_class(module, name)
        if module == "torch" and (name in ("Size", "device") or isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(
            t(
                "This checkpoint asks for {name}, which no honest checkpoint needs: loading it could run somebody's"
                " code. Nothing was loaded. Use checkpoints only from people you trust.",
                name=f"{module}.{name}",
            )
        )


class _PlainPlanner(DefaultLoadPlanner):
    """Values other than sharded tensors, too, are read with ``weights_only``."""

    def load_bytes(self, read_item, value) -> None:
        plain = torch.load(value, weights_only=True)
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[read_item.dest_index.fqn], plain)
        else:
            self.state_dict[read_item.dest_index.fqn] = plain


def _state(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> dict:
    of_model, of_optimizer = get_state_dict(model, optimizer if optimizer is not None else ())
    return {"model": of_model, "optimizer": of_optimizer} if optimizer is not None else {"model": of_model}


def _disk_was_full(error: BaseException, path: Path) -> bool:
    """DCP says only that writing failed, and hides the cause in ``failures``: rank -> (exception, traceback)."""
    causes = [error, *(cause[0] for cause in getattr(error, "failures", {}).values())]
    if any(getattr(cause, "errno", None) == errno.ENOSPC or _NO_SPACE.search(str(cause)) for cause in causes):
        return True
    with contextlib.suppress(OSError):
        return shutil.disk_usage(path).free == 0
    return False


def _first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def _together() -> None:
    if dist.is_initialized():
        dist.barrier()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warnings that a single process saves and loads alone, which is what was asked for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.distributed is (disabled|unavailable).*")
        yield
