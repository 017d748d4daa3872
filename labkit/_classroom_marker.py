"""Hand exercises to marking processes, and put what they came to into words."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from labkit import _classroom_plan as plan
from labkit._classroom_sandbox import Limits
from labkit._classroom_words import here, in_both
from labkit.language import t

NOBODY = 64_100  # and above: user ids without a name, for the code that a root who insisted lets run
_STARTING_S = 120.0  # importing torch on a slow disk


@dataclasses.dataclass
class Mark:
    """One exercise of one submission. ``points`` is None when it could not be marked, which is nobody's zero."""

    exercise: str
    points: float | None
    max_points: float
    seconds: float
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)  # in each language; empty for a plain mark
    suspicious: bool = False
    outputs: list = dataclasses.field(default_factory=list)
    contained: dict | None = None

    @property
    def reason(self) -> str:
        return here(self.reasons)


class Judge:
    """One marking process, started when first needed and again when it died. Use it from one thread."""

    def __init__(self, *, slot: int = 0):
        self._nobody = NOBODY + slot if hasattr(os, "getuid") and os.getuid() == 0 else 0
        self._process: subprocess.Popen | None = None

    def mark(self, exercise: plan.Exercise, lesson: str, limits: Limits) -> Mark:
        """Run one exercise and put what it came to into words."""
        cells = {"ours": exercise.ours, "theirs": exercise.theirs, "test": exercise.test, "keep": sorted(exercise.keep)}
        return _mark(exercise, self._in_folder({"lesson": lesson, "exercise": cells}, limits), limits)

    def train(self, job: dict, limits: Limits) -> dict:
        """Run one training of the project, closed in and without the data files; see ``_project_run.training``."""
        return self._in_folder({"training": job}, limits)

    def _in_folder(self, what: dict, limits: Limits) -> dict:
        """Have ``what`` done in a folder of its own, which is removed afterwards."""
        folder = Path(tempfile.mkdtemp(prefix="labkit-mark-"))
        try:
            if self._nobody:
                os.chown(folder, self._nobody, self._nobody)
            job = {"folder": str(folder.resolve()), "limits": dataclasses.asdict(limits), "nobody": self._nobody}
            return self._ask(job | what, limits.seconds)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End the process and whatever it runs."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None

    def _ask(self, job: dict, limit_s: float) -> dict:
        fresh = self._process is None
        if fresh:
            self._process = self._started()
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
            patience_s = limit_s + 30.0 + (_STARTING_S if fresh else 0.0)
            if select.select([self._process.stdout], [], [], patience_s)[0]:
                return json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            pass
        self.close()
        return {"seconds": 0.0, "lost": True}

    @staticmethod
    def _started() -> subprocess.Popen:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("LABKIT_", "JUPYTER", "NB"))}
        clone = str(Path(__file__).resolve().parent.parent)
        kept["PYTHONPATH"] = os.pathsep.join([clone, *filter(None, [os.environ.get("PYTHONPATH")])])
        # Threads of the marking process would not survive its forks.
        kept |= {"OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"}
        # Two are marked at a time: a waiting thread of one that spins would hold the core that the other one needs.
        kept = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"} | kept
        return subprocess.Popen([sys.executable, "-m", "labkit._classroom_judge"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, env=kept, start_new_session=True)


def _mark(exercise: plan.Exercise, said: dict, limits: Limits) -> Mark:
    points, suspicious = said.get("points"), False
    if said.get("lost") or said.get("where") == "ours":
        points = None
    elif said.get("timeout"):
        points = 0.0
    elif said.get("forged") or said.get("tampered") or "points" not in said:
        points, suspicious = 0.0, True
    elif points is None:
        points, suspicious = 0.0, said.get("status") == "passed"
    reasons = {} if points == exercise.points else in_both(lambda: _reason(said, limits))
    return Mark(exercise.id, points, exercise.points, float(said.get("seconds", 0.0)), reasons, suspicious,
                said.get("outputs") or [], said.get("contained"))


def _reason(said: dict, limits: Limits) -> str:
    """Why these marks, where the verdict of the check does not say it; empty where it does."""
    error = said.get("error") or ""
    if said.get("lost") or said.get("where") == "ours":
        return t("Could not be marked: {error}. Grade again.", error=error or t("the marking process was lost"))
    if said.get("timeout"):
        return t("Not finished after {seconds:g} seconds.", seconds=limits.seconds)
    if said.get("forged") or said.get("tampered"):
        what = ", ".join(said.get("tampered") or ["stdout"])
        return t("Changes or looks into what marks it ({what}). Read the code and decide.", what=what)
    if "points" not in said:
        return t("The answer ended its own process, so there was nothing to mark.")
    if said.get("points") is None and said.get("status") == "passed":
        return t("Right for the instant check, wrong for the hidden tests.")
    return error if said.get("where") == "theirs" or said.get("points") is None else ""
