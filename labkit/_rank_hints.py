"""Likely cause and next step for errors that ranks commonly end with."""

from __future__ import annotations

import re

from labkit.language import t


def hint_for(kind: str, message: str) -> str:
    """Advice for an exception (its type's name and its text) or a signal ("SIGKILL"); "" when there is none."""
    text = f"{kind}: {message}"
    for pattern, advice in _table():
        if re.search(pattern, text, re.IGNORECASE):
            return advice
    return ""


def _table() -> tuple[tuple[str, str], ...]:
    return (
        (
            r"no space left|errno 28|ENOSPC|file write failed|PytorchStreamWriter|unexpected pos \d+ vs",
            t("There is no space left on the disk that the file was being written to. Delete old checkpoints or write"
              " to another folder; the half-written checkpoint has no .metadata file and must not be loaded."),
        ),
        (
            r"EADDRINUSE|address already in use",
            t("Another program already uses that port. Leave out init_method=…, MASTER_ADDR and MASTER_PORT:"
              " dist.init_process_group(lab.launch.backend()) is enough, the launcher has chosen a free port."),
        ),
        (
            r"duplicate gpu",
            t("NCCL allows one rank per GPU, and there are more ranks than GPUs. Write"
              " dist.init_process_group(lab.launch.backend()), which takes gloo in that case."),
        ),
        (
            r"out of memory|allocate memory|MemoryError",
            t("The memory of the device is full; ranks on one device share it. Make the batch or the model smaller, or"
              " start fewer ranks."),
        ),
        (
            r"process group has not been initialized",
            t("Call dist.init_process_group(lab.launch.backend()) before anything that talks to other ranks."),
        ),
        (
            r"op\.preamble\.length|op\.nbytes|tensor sizes? (?:do not|must) match|received data size doesn't match",
            t("The ranks gave tensors of different sizes to the same collective. Print tensor.shape on every rank just"
              " before that line; uneven last batches are the commonest cause."),
        ),
        (
            r"timed out",
            t("A collective waited too long. One rank probably made another call, or none: every rank must make the"
              " same collective calls in the same order."),
        ),
        (
            r"expected to have finished reduction|unused parameters|find_unused_parameters",
            t("Some parameters took no part in the loss. Use them, or build"
              " DistributedDataParallel(…, find_unused_parameters=True)."),
        ),
        (
            r"NameError",
            t("The ranks run only this cell. Import and define in it everything it uses."),
        ),
        (
            r"ModuleNotFoundError",
            t("The ranks run with this notebook's Python, in this notebook's folder. Check the spelling, or install"
              " the package with %pip install."),
        ),
        (
            r"SIGKILL",
            t("Somebody killed it. If nobody did so on purpose, the machine probably ran out of memory: make the batch"
              " smaller or start fewer ranks."),
        ),
        (
            r"SIGSEGV|SIGBUS|SIGILL|SIGABRT",
            t("The crash happened in compiled code, not in Python. print(lab.launch.log()) shows its last words."),
        ),
    )
