"""What a launched process finds around it: its environment, its share of the cores, loopback, this labkit."""

from __future__ import annotations

import contextlib
import os
import socket
import sysconfig
from pathlib import Path

from labkit import _run_files
from labkit._launch_errors import BadLaunchError
from labkit.language import current_language, t

# A machine with 2 cores can still show 8 ranks taking turns; beyond that only waiting is left to see.
_RANKS_PER_CORE, _RANKS_ANYWHERE = 4, 8


def cores() -> int:
    """Cores this process may use."""
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def most_processes() -> int:
    """How many processes of one run still make sense on this machine."""
    return max(_RANKS_ANYWHERE, _RANKS_PER_CORE * cores())


def check_number(processes: int) -> None:
    """Refuse numbers of ranks that cannot be or that make no sense here."""
    most = most_processes()
    if not isinstance(processes, int) or isinstance(processes, bool) or processes < 1:
        raise BadLaunchError(
            t("The number of ranks must be a whole number from 1 upwards, not {number}.", number=repr(processes))
        )
    if processes > most:
        raise BadLaunchError(
            t(
                "{number} ranks are more than this machine can usefully run: it has {cores} cores, and each rank is a"
                " whole Python with its own copy of torch. Take at most {most}.",
                number=processes,
                cores=cores(),
                most=most,
            )
        )


def environment(
    processes: int, folder: Path, *, threads: int | None = None, import_from: str | os.PathLike | None = None
) -> dict[str, str]:
    """The whole environment of one of ``processes`` equal processes whose notes go to ``folder``."""
    share = max(1, cores() // processes)
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdecimal() and int(told):
        share = min(share, int(told))
    loopback = loopback_name()
    own = {
        _run_files.FOLDER: str(folder),
        _run_files.PARENT: str(os.getpid()),
        _run_files.IMPORTS: str(Path(import_from).resolve()) if import_from else "",
        "LABKIT_LANG": current_language(),
        "OMP_NUM_THREADS": str(threads or share),
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        "PYTHONPATH": _python_path(),
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "3",
    }
    whole = {**os.environ, **own}
    whole.pop(_run_files.NAME, None)  # a launch from inside a rank starts afresh
    return whole


def loopback_name() -> str:
    """The interface of 127.0.0.1: "lo" on Linux, "lo0" on macOS."""
    with contextlib.suppress(OSError, AttributeError):
        return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "lo")
    return "lo"


def _python_path() -> str:
    """So that the processes find this labkit also where it is not installed, such as in a fresh checkout."""
    told = os.environ.get("PYTHONPATH", "")
    home = Path(__file__).resolve().parent.parent
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return told if home in installed else os.pathsep.join(part for part in (str(home), told) if part)
