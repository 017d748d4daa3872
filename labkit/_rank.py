"""One process of a launched script: ``python -m labkit._rank SCRIPT [ARGUMENT…]``.

Runs the script as ``__main__``, exactly as ``python SCRIPT`` would, and leaves notes about it in the run's folder (see
``_run_files``): how it ended, and while it runs, at which line it is. Torch is not imported here; the script does that.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
import traceback
import types
from pathlib import Path

from labkit import _guard, _run_files

# The other processes get this long to note their own error before this one's end stops them.
_LINGER_S = 0.5
_SAMPLE_S = 0.5
# Less processor time than this since the wait began means that nothing has moved since then.
_IDLE_CPU_S = 0.1
# A main thread whose innermost Python frame is in one of these files waits for another process.
_WAITING_FILES = (
    "torch/distributed/distributed_c10d.py",
    "torch/distributed/rendezvous.py",
    "mxnet/kvstore/base.py",
    "mxnet/kvstore/kvstore.py",
    "mxnet/ndarray/ndarray.py",  # where MXNet's engine is waited for, which waits for the servers
)
# Decorators stand between the script and the call it made; their names say nothing.
_WRAPPERS = {"wrapper", "inner", "_wrapped", "decorate_context"}
_is_done = [False]  # whether the script came to a good end


def main() -> None:
    os.environ.setdefault(_run_files.NAME, f"rank{os.environ.get('RANK', '0')}")
    parent = int(os.environ[_run_files.PARENT])
    if os.environ.pop(_run_files.TIDY, ""):
        _guard.tidy_up_after(parent, os.environ[_run_files.FOLDER])
    else:  # SIGKILL: whoever starts ranks stops them in order; without it there is nothing left to be orderly about
        _guard.end_with(parent, signal.SIGKILL)
    begin()
    atexit.register(_leave)  # the first to register is the last to run
    script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    sys.path[0] = os.environ.get(_run_files.IMPORTS) or str(Path(script).resolve().parent)
    threading.Thread(target=_note_where, args=(script,), daemon=True).start()
    run(script)


def begin() -> None:
    """Print into this process's own files from here on, and leave its first note: its process id."""
    for stream, kind in ((1, "out"), (2, "err")):
        file = os.open(_run_files.mine(kind), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, stream)
        os.close(file)
    for kind in ("state", "where", "report"):  # of an earlier try, when torchrun starts the ranks again
        _run_files.mine(kind).unlink(missing_ok=True)
    _run_files.write(_run_files.mine("pid"), os.getpid())


def run(script: str) -> None:
    """Run the file as ``__main__`` and note how it ended; exceptions become exit code 1, as in plain Python."""
    module = types.ModuleType("__main__")
    module.__file__ = script
    sys.modules["__main__"] = module
    atexit.register(_let_go, module)
    code = compile(Path(script).read_bytes(), script, "exec")
    try:
        exec(code, module.__dict__)
    except SystemExit as stop:
        failed = stop.code not in (None, 0)
        _note("exited" if failed else "finished", script, stop, message=str(stop.code) if failed else "")
        if failed:
            time.sleep(_LINGER_S)
        raise
    except BaseException as error:  # torch.distributed.checkpoint's CheckpointException is no Exception
        _note("raised", script, error, message=_message(error), type=type(error).__name__)
        traceback.print_exception(type(error), error, error.__traceback__.tb_next)
        sys.stderr.flush()
        time.sleep(_LINGER_S)
        sys.exit(1)
    _note("finished", script, None)


def _leave() -> None:
    """End a process whose script is done and has closed its process group, before Python takes itself apart.

    The threads of gloo, of autograd and of a checkpoint still live then, and one that asks for the interpreter at the
    wrong moment aborts the process: a rank that did everything right would be reported as crashed. One that has not
    closed its process group, or that uses MXNet, ends as plain Python would end it.
    """
    distributed = sys.modules.get("torch.distributed")
    is_open = distributed and distributed.is_available() and distributed.is_initialized()
    if not _is_done[0] or is_open or "mxnet" in sys.modules:
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)  # what C++ printed
    os._exit(0)


def _let_go(module: types.ModuleType) -> None:
    """Free the script's objects while MXNet is still whole. A worker takes leave of the others when its kvstore is
    freed; later, when Python has begun to take MXNet apart, nobody is told and the process aborts. It comes to that
    when MXNet knows a class of the script's, such as an optimizer of its own."""
    if "mxnet" in sys.modules:
        vars(module).clear()
        gc.collect()


def _note(kind: str, script: str, error: BaseException | None, **more) -> None:
    """``frames``: the script's own lines, outermost first, as [line, function, source text]."""
    steps = traceback.extract_tb(error.__traceback__) if error is not None else []
    frames = [[step.lineno, step.name, step.line or ""] for step in steps if step.filename == script]
    _run_files.write(_run_files.mine("state"), {"kind": kind, "frames": frames, "time": time.monotonic(), **more})
    _is_done[0] = kind == "finished"


def _message(error: BaseException) -> str:
    """The error's text; for torch's CheckpointException, that of the errors it carries, which its own leaves out."""
    inner = getattr(error, "failures", None)
    if isinstance(inner, dict) and inner:
        causes = [cause[0] if isinstance(cause, tuple) else cause for cause in inner.values()]
        return "; ".join(dict.fromkeys(f"{type(cause).__name__}: {cause}" for cause in causes))
    return str(error)


def _note_where(script: str) -> None:
    """Every half second, note the script's current line, the call it is in, and how long it has idled there."""
    since, cpu_then, then = time.monotonic(), time.process_time(), None
    while True:
        time.sleep(_SAMPLE_S)
        now = position(sys._current_frames().get(threading.main_thread().ident), script)
        if now != then or not now["waits"] or time.process_time() - cpu_then > _IDLE_CPU_S or _gpu_may_work():
            since, cpu_then, then = time.monotonic(), time.process_time(), now
        try:
            _run_files.write(_run_files.mine("where"), now | {"idle_s": time.monotonic() - since})
        except OSError:  # the folder went away, or the disk is full: this note is not worth an error
            continue


def _gpu_may_work() -> bool:
    """A rank with a GPU may wait without using the processor while the GPU still computes: then nothing is known."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and hasattr(cuda, "is_initialized") and cuda.is_initialized():
        return True
    context = getattr(sys.modules.get("mxnet"), "context", None)
    return hasattr(context, "num_gpus") and context.num_gpus() > 0


def position(frame: types.FrameType | None, script: str) -> dict:
    """``line`` of the script, the ``call`` it made from there (None: its own code), ``waits`` for other processes."""
    waits = frame is not None and frame.f_code.co_filename.replace(os.sep, "/").endswith(_WAITING_FILES)
    call = None
    while frame is not None and frame.f_code.co_filename != script:
        if frame.f_code.co_name not in _WRAPPERS:
            call = frame.f_code.co_name
        frame = frame.f_back
    return {"line": frame.f_lineno if frame else None, "call": call if frame else None, "waits": waits}


if __name__ == "__main__":
    main()
