"""The marking process: imports torch and labkit once, then forks a fresh, closed-in copy of itself for every exercise,
and for every training of the project.

``python -m labkit._classroom_judge`` reads one JSON line a job from standard input and answers with one JSON line. The
copy inherits everything that was imported, so an exercise takes tenths of a second, and cannot change its parent.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import secrets
import select
import signal
import sys
import tempfile
import time
from pathlib import Path

from labkit import _classroom_answers, _classroom_guard
from labkit import _classroom_sandbox as sandbox

LONGEST_BYTES = 8_000_000  # of what one exercise may say


def main() -> int:
    """Serve jobs until standard input ends."""
    # torch._dynamo replaces functions of torch when it is first imported: that must not look like an answer's doing.
    for name in ("torch._dynamo", "IPython.core.interactiveshell", "labkit.exercises", "labkit.comparison",
                 "labkit.hardware", "labkit.language", "babel.messages.pofile"):
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    try:
        for line in sys.stdin:
            print(json.dumps(_judged(json.loads(line))), file=answers, flush=True)
    except BrokenPipeError:  # whoever asked was killed
        os.dup2(os.open(os.devnull, os.O_WRONLY), answers.fileno())
    return 0


def _judged(job: dict) -> dict:
    """Run one exercise. ``job``: folder, lesson, exercise (ours, theirs, test, keep), limits, nobody; or one training,
    with ``training`` (see ``_project_run.training``) instead of lesson and exercise."""
    with contextlib.suppress(ImportError):
        importlib.import_module("labkit._project_run" if "training" in job else f"labkit.lessons.l{job['lesson'][:2]}")
    limits = sandbox.Limits(**job["limits"])
    reader, writer = os.pipe()
    token, began = secrets.token_hex(16), time.monotonic()
    keeper = os.fork()
    if keeper == 0:
        os.close(reader)
        _keep(job, limits, writer, token)
    os.close(writer)
    with contextlib.suppress(ProcessLookupError):
        os.setpgid(keeper, keeper)
    lines, in_time = _read(reader, began + limits.seconds)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(keeper, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1])
    os.close(reader)
    said = [part[1] for part in lines if isinstance(part, list) and len(part) == 2 and part[0] == token]
    result = next((part for part in reversed(said) if {"points", "error", "weights"} & set(part)), {})
    forged = len(said) != len(lines)
    return {  # what was seen from here stands last: nothing that the copy says replaces it
        **result, "seconds": time.monotonic() - began, "timeout": not in_time, "code": code, "forged": forged,
        "contained": next((part["contained"] for part in said if "contained" in part), None),
    }


def _read(reader: int, until: float) -> tuple[list, bool]:
    """What the copy says, line by line, until it ends or its time is up."""
    text, size = b"", 0
    while (left := until - time.monotonic()) > 0:
        if not select.select([reader], [], [], left)[0]:
            break
        piece = os.read(reader, 1 << 16)
        size += len(piece)
        if not piece or size > LONGEST_BYTES:
            return _parsed(text), True
        text += piece
        if b'"last"' in piece:  # what the copy started may live on and hold the pipe open
            return _parsed(text), True
    return _parsed(text), False


def _parsed(text: bytes) -> list:
    found = []
    for line in text.split(b"\n")[:-1]:
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            found.append(None)
    return found


def _keep(job: dict, limits: sandbox.Limits, writer: int, token: str):
    """Between the judge and the copy: leave the shared namespaces, start process 1 there, wait for it."""
    os.setpgid(0, 0)
    sandbox.die_with_parent()
    contained = sandbox.Contained()
    if sys.platform == "linux":
        sandbox.leave(contained, job["nobody"])
        sandbox.die_with_parent()  # again: a change of user forgets it
    first = os.fork()
    if first == 0:
        sandbox.die_with_parent()
        worker = os.fork()  # not process 1 itself: signals would mean something else to it
        if worker == 0:
            try:
                _work(job, limits, contained, writer, token)
            finally:
                os._exit(0)
        os.close(writer)
        os._exit(_exit_code(worker))
    os.close(writer)
    os._exit(_exit_code(first))


def _exit_code(child: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _work(job: dict, limits: sandbox.Limits, contained: sandbox.Contained, writer: int, token: str) -> None:
    folder = Path(job["folder"])
    writer = _only(writer)
    _settle(folder)
    sandbox.close_in(folder, limits, contained, was_root=bool(job["nobody"]), hide_data="training" in job)

    def say(**words) -> None:
        os.write(writer, json.dumps([token, words]).encode() + b"\n")

    say(contained=sandbox.described(contained))
    if "training" in job:
        from labkit import _project_run

        say(**_project_run.training(job["training"]), last=True)
        return
    from labkit import _classroom_run

    _classroom_answers.honest()
    say(**_classroom_run.exercise(job["exercise"], _classroom_guard.Tripwire), last=True)


def _only(writer: int) -> int:
    """Close every file of the judge but the way out; what is printed past the shell goes nowhere."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.dup2(writer, 3)
    os.closerange(4, 1024)
    return 3


def _settle(folder: Path) -> None:
    """An own home, an own place for temporary files and caches, and none of the instructor's variables."""
    for name in ("home", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "PYTHONPATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES",
                                             "GOMP_SPINCOUNT", "OMP_WAIT_POLICY") if key in os.environ}
    os.environ.clear()
    os.environ.update(kept | {"HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "USER": "learner",
                              "LOGNAME": "learner", "MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1"})
    tempfile.tempdir = None
    os.chdir(folder)


if __name__ == "__main__":
    sys.exit(main())
