"""Run a cell or a file as N processes that work together, see what they print, get their values, lose none of them.

In a notebook::

    %%torchrun -n 2
    import torch.distributed as dist
    import labkit as lab
    dist.init_process_group(lab.launch.backend())
    lab.report(rank=dist.get_rank())
    dist.barrier()
    dist.destroy_process_group()

In a program: ``labkit.launch.torchrun("ddp.py", nproc=2)``. The script needs nothing of this module: the same file runs
under plain ``torchrun`` on one machine or on many. ``%%mxnet_ps -w 2 -s 1`` and ``labkit.launch.mxnet`` do the same for
the workers of MXNet's parameter server.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from labkit import (
    _cell_script,
    _launch_setup,
    _mxnet_hosts,
    _mxnet_launch,
    _run_files,
    _torch_launch,
    _torchrun_agent,
    hardware,
    mx,
)
from labkit._launch_errors import BadLaunchError, LaunchError, RankError, RankTimeoutError
from labkit._launched import FAILED_S, Launched, RankResults, last_log
from labkit._report import plain, report, value
from labkit.language import t

_CHECKPOINTS = ["latest_checkpoint", "load_checkpoint", "save_checkpoint"]
__all__ = [
    "BadLaunchError", "LaunchError", "RankError", "RankResults", "RankTimeoutError", "backend", "log", "mxnet",
    "rank_device", "register_magics", "report", "torchrun", "value", *_CHECKPOINTS,
]  # fmt: skip


def torchrun(
    path: str | os.PathLike,
    nproc: int = 2,
    *,
    arguments: Sequence[str] = (),
    values: Mapping[str, object] | None = None,
    timeout_s: float = 120.0,
    stall_s: float | None = 8.0,
    expect_fail: bool = False,
    max_restarts: int = 0,
    threads: int | None = None,
    port: int = 0,
    show: bool = True,
    import_from: str | os.PathLike | None = None,
    folder: Path | None = None,
) -> RankResults:
    """Run the script ``path`` as ``nproc`` ranks of torch.distributed on this machine; return one dict a rank.

    ``values`` reach the ranks' ``lab.launch.value(name)``. ``threads`` for each rank: by default the cores are shared
    out, at least one each. Nothing listens outside 127.0.0.1; ``port`` 0 takes a free one. ``stall_s``: end the run
    when every rank has waited this long for the others, in torch's own blocking calls and without using the processor
    (not where ranks use a GPU, which may still compute; ``timeout_s`` ends those).
    ``expect_fail``: a failure is shown and returned (``.error``), and success is the error. ``import_from``: the folder
    first on the ranks' import path, by default the script's. ``folder``: an empty one for the run's notes, removed
    when the caller dies; by default a temporary one, removed in any case.

    ``max_restarts``: how often torchrun's own agent starts all ranks again after a failure, in a process of its own.

    Raises RankError (a rank failed), RankTimeoutError (no end within ``timeout_s`` seconds, or a stall),
    BadLaunchError (nothing was started). Whatever happens, also on an interrupt, no process is left.
    """
    script, source = _script(path)
    _launch_setup.check_number(nproc)
    handed_over = {name: plain(item, name) for name, item in (values or {}).items()}
    with contextlib.ExitStack() as stack:
        folder = folder or stack.enter_context(_run_files.temporary())
        _run_files.hand_over(folder, handed_over)
        launched = Launched(
            folder,
            [f"rank{rank}" for rank in range(nproc)],
            lambda name: t("Rank {number}", number=name.removeprefix("rank")),
            show=show,
            timeout_s=timeout_s,
            stall_s=stall_s,
            failed_s=FAILED_S if max_restarts == 0 else float("inf"),  # torchrun may be starting them again
        )
        base = _launch_setup.environment(nproc, folder, threads=threads, import_from=import_from)
        job = _torch_launch.Job(script.resolve(), arguments, base, port, source.splitlines(), expect_fail)
        if max_restarts:
            return _torchrun_agent.launch(launched, job, max_restarts)
        return _torch_launch.run(launched, job)


def mxnet(
    path: str | os.PathLike,
    workers: int = 2,
    servers: int = 1,
    *,
    arguments: Sequence[str] = (),
    values: Mapping[str, object] | None = None,
    timeout_s: float = 120.0,
    stall_s: float | None = 8.0,
    expect_fail: bool = False,
    threads: int | None = None,
    port: int = 0,
    show: bool = True,
    import_from: str | os.PathLike | None = None,
    folder: Path | None = None,
    here: str = "",
    root: str = "",
    address: str = "",
) -> RankResults:
    """Run the script ``path`` as ``workers`` workers of MXNet's parameter server on this machine; one dict a worker.

    A scheduler and ``servers`` servers are started beside them, every one a process of its own. In the script,
    ``kv = mx.kv.create("dist_sync")`` (or ``"dist_async"``) joins them; ``kv.rank`` is the worker's number, and the
    results come in that order. The parameters are as in ``torchrun``; ``port``: the scheduler's.

    MXNet reports no process that is gone, its peers just wait. The launcher watches its children instead: when one of
    them dies, all are ended at once, with an error that names it. ``stall_s``: end the run when every worker has waited
    this long and no server has worked either, as after unequal numbers of batches.

    **On several machines** the same file runs unchanged. On 10.0.0.1, and then on 10.0.0.2::

        python -m labkit.launch mxnet -w 2 -s 1 --root 10.0.0.1:9091 \\
            --address 10.0.0.1 --here scheduler,server,worker job.py
        python -m labkit.launch mxnet -w 2 -s 1 --root 10.0.0.1:9091 --address 10.0.0.2 --here worker job.py

    ``here``: this machine's processes; ``root``: the scheduler's address and port; ``address``: this machine's own, the
    only one that is listened on. Each machine gets its own workers' results, ``kv.rank`` counts through all. A machine
    or process that sends no sign of life for 5 s ends the run everywhere. (Without labkit, plain MXNet runs the file
    as well: ``DMLC_ROLE=worker DMLC_PS_ROOT_URI=… DMLC_PS_ROOT_PORT=… DMLC_NUM_WORKER=… DMLC_NUM_SERVER=…``, but then
    nobody watches.)

    Raises RankError (a process failed; ``.role``, ``.rank`` say which), RankTimeoutError (no end within ``timeout_s``
    seconds, or a stall), BadLaunchError (nothing was started). Whatever happens, also on an interrupt, no process is
    left.
    """
    script, _ = _script(path)
    if not mx.is_available():
        raise BadLaunchError(mx.how_to_get_it())
    place = _mxnet_hosts.place(workers, servers, port=port, here=here, root=root, address=address)
    handed_over = {name: plain(item, name) for name, item in (values or {}).items()}
    try:
        return _mxnet_launch.run(
            script,
            place,
            workers=workers,
            servers=servers,
            arguments=arguments,
            values=handed_over,
            threads=threads,
            import_from=import_from,
            folder=folder,
            expect_fail=expect_fail,
            timeout_s=timeout_s,
            stall_s=None if here else stall_s,  # workers elsewhere may still work
            show=show,
        )
    except LaunchError as error:
        place.at_failure(str(error))
        raise


def _script(path: str | os.PathLike) -> tuple[Path, str]:
    """The file and its text, checked as far as that goes without running it."""
    script = Path(path)
    if not script.is_file():
        raise BadLaunchError(
            t("There is no file {path} to run. The folder looked in is {folder}.", path=path, folder=Path.cwd())
        )
    source = script.read_text(encoding="utf-8")
    _cell_script.check_source(source)
    return script, source


def backend() -> str:
    """In a rank: "nccl" when every rank of this machine has its own GPU, else "gloo". ``LABKIT_BACKEND`` overrules,
    and ``LABKIT_DEVICE=cpu`` leaves GPUs aside here too."""
    import torch

    if os.environ.get("LABKIT_BACKEND"):
        return os.environ["LABKIT_BACKEND"]
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    enough = not hardware.is_hidden() and torch.cuda.is_available() and torch.cuda.device_count() >= ranks
    return "nccl" if enough and torch.distributed.is_nccl_available() else "gloo"


def rank_device():
    """In a rank: the ``torch.device`` that goes with ``backend()``: this rank's own GPU, made current, or the CPU."""
    import torch

    if backend() != "nccl":
        return torch.device("cpu")
    own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(own)
    return own


def log() -> str:
    """Everything that the last launch printed, warnings included: print it to read it."""
    return last_log()


def register_magics(shell) -> None:
    """Make ``%%torchrun`` and ``%%mxnet_ps`` known to an IPython shell. Doing it twice does no harm."""
    from labkit import _magics

    _magics.register(shell)


def __getattr__(name: str):
    """The checkpoint functions, for ranks: they need torch, which the launching side does not load."""
    if name in _CHECKPOINTS:
        from labkit import _checkpoint

        return getattr(_checkpoint, name)
    raise AttributeError(f"module 'labkit.launch' has no attribute {name!r}")


if __name__ == "__main__":
    from labkit import _mxnet_command

    command, *rest = sys.argv[1:] or [""]
    if command != "mxnet":
        sys.exit("python -m labkit.launch mxnet -w 2 -s 1 job.py")
    sys.exit(_mxnet_command.main(rest))
