'''Exercises that answer at once: ``lab.check("03-1", answer)`` shows a verdict, marks, a hint; never stops a notebook.

The checks of lesson NN live in ``labkit/lessons/lNN.py``; ``check()`` finds that file by the number. A whole one::

    """Checks of lesson 03, kernel fusion."""

    from labkit.exercises import exercise
    from labkit.language import t


    @exercise("03-2", points=5)
    def bytes_moved(task):
        cases = [(task.rng.randint(2, 9), task.rng.randint(3, 10_000), task.rng.choice([2, 4, 8])) for _ in range(6)]
        got = [task.number(*case) for case in cases]      # runs the learner's function on each fresh input
        truth = [_traffic(*case) for case in cases]       # counted by a small simulation here, not a stored answer
        if all(2 * g == w for g, w in zip(got, truth)):   # a common wrong answer, recognised by a property
            task.fail(t("Exactly half of the right number: you left out the writes."))
        with task.part(3, t("one operation")):            # parts give partial marks and must add up to points
            one = task.number(1, 1000, 4)
            task.expect(one == _traffic(1, 1000, 4), t("Take one operation: how much is read, how much written?"))
        with task.part(2, t("a chain of operations")):
            task.expect(got == truth, t("Each operation has its own kernel, so each reads and writes again."))
        task.cost(task.number(4, 1000, 4), "bytes")       # optional: a score, smaller is better, own best is kept

- ``task.answer`` is what the learner handed in; ``task.rng`` is a ``random.Random`` with a new ``task.seed`` each time.
- ``task.call(*args, returns=type)`` runs the learner's function. Raising, hanging, returning None ("not yet", for the
  untouched stub), a wrong type or NaN ends the check with a kind verdict. ``task.number(*args)`` also wants one finite
  number and returns it as a Python number. Neither copies arguments: work out what you compare with first, or pass
  copies.
- ``task.given_number()`` is the answer itself where the exercise asks for a number and not for a function.
- ``task.expect(condition, hint)`` and ``task.fail(hint)`` end the check (or the part) with a hint. Without parts a
  check gives all its points or none. An exception of the check itself is told as "could not use your answer", and
  raised under ``LABKIT_STRICT=1``.
- Against cheats: test properties on inputs from ``task.rng``. For a function that may remember its result, call it
  again with the same object changed in place. For one that may return the reference's result, count (kernels, calls).
- Everything printed is caught, also by C++ code and children; logging is off. ``@exercise(…, limit_s=60)`` raises the
  time limit of the whole check (20 s), for instance for one that compiles.

In the source of the notebook the graded pair is a stub (grade id ``ex-03-2``) and a test cell (``test-03-2``) whose
last line is ``lab.check("03-2", bytes_moved).points``: nbgrader takes a number there as partial credit.
'''

from __future__ import annotations

import importlib
import os
import random
import re
from dataclasses import dataclass

from labkit import attempts
from labkit.language import t
from labkit.marks import CheckResult, show
from labkit.tasks import End, Task

_UNGIVEN = object()
_best_cost: dict[str, float] = {}  # the learner's own best in this session, by exercise


class ExerciseError(AssertionError):
    """An answer that does not earn full marks, raised only under ``LABKIT_STRICT=1``."""


@dataclass(frozen=True)
class Exercise:
    """What ``@exercise`` makes of a check: ``fn(task)`` judges one answer."""

    id: str
    points: int
    limit_s: float
    fn: object


def exercise(exercise_id: str, *, points: int, limit_s: float = 20.0):
    """Mark a function of ``labkit/lessons/lNN.py`` as the check of ``exercise_id``, for instance ``"03-1"``.

    ``limit_s`` bounds the whole check, in seconds. Raises ValueError when the id is not two digits, a hyphen, a number.
    """
    if not re.fullmatch(r"[0-9]{2}-[0-9]+", exercise_id):
        raise ValueError(f"an exercise's id looks like '03-1', not {exercise_id!r}")
    return lambda fn: Exercise(exercise_id, points, limit_s, fn)


def check(exercise_id: str, answer=_UNGIVEN, *, seed: int | None = None) -> CheckResult:
    """Judge ``answer``, show the verdict, return it. Never raises, unless ``LABKIT_STRICT=1`` and it is not right.

    ``seed`` repeats one set of inputs; a failed result carries the seed it used.
    """
    found, known = _find(exercise_id)
    if found is None:
        hint = t("There is no exercise {id}. This lesson has: {known}.", id=exercise_id, known=", ".join(known) or "-")
        return _close(CheckResult(exercise_id, 0, 0, "error", hint), None)
    if answer is _UNGIVEN:
        hint = t('Give your answer as the second argument: lab.check("{id}", answer)', id=exercise_id)
        return _close(CheckResult(exercise_id, 0, found.points, "error", hint), None)
    task = Task(answer, random.SystemRandom().getrandbits(31) if seed is None else seed)
    cause = None
    with attempts.captured() as printed:
        try:
            if answer is None or answer is Ellipsis:
                raise End("todo", "")
            attempts.run_limited(lambda: found.fn(task), found.limit_s)
            status, hint, points = _outcome(found, task)
        except End as end:
            status, hint, points, cause = end.status, end.hint, 0, end
        except attempts.TimeUpError:
            hint = t(
                "Not finished after {limit:g} seconds, so it was stopped. Perhaps a loop never ends: look at its"
                " condition.",
                limit=found.limit_s,
            )
            status, points = "error", 0
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit, and what torch.distributed derives from BaseException
            text = f"{type(error).__name__}: {error}"
            hint = t("Your answer could not be used: {error}. Compare it with what the exercise asks for.", error=text)
            status, points, cause = "error", 0, error
        text = printed()
    result = CheckResult(
        exercise_id, points, found.points, status, hint, seed=task.seed, parts=tuple(task.parts), printed=text,
        last_call="" if status in ("passed", "todo") else task.last_call, cost=_scored(exercise_id, status, task),
    )
    return _close(result, cause)


def _find(exercise_id):
    """The exercise of this id, or None, and the ids that its lesson has."""
    match = re.fullmatch(r"([0-9]{2})-[0-9]+", str(exercise_id))
    name = f"labkit.lessons.l{match[1]}" if match else ""
    try:
        module = importlib.import_module(name) if match else None
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        module = None
    here = [value for value in vars(module).values() if isinstance(value, Exercise)] if module else []
    return next((e for e in here if e.id == exercise_id), None), sorted(e.id for e in here)


def _outcome(found, task):
    """Status, hint and points of a check that ran to its end."""
    if not task.parts:
        return "passed", "", found.points
    if sum(points for points, _, _ in task.parts) != found.points:
        raise ValueError(f"the parts of exercise {found.id} do not add up to its {found.points} points")
    hint = next((hint for _, _, hint in task.parts if hint), "")
    if not hint:
        return "passed", "", found.points
    return ("partial" if task.points else "wrong"), hint, task.points


def _scored(exercise_id, status, task):
    """(value, unit, best so far) of an answer that passed and was scored."""
    if task.cost_of is None or status != "passed":
        return None
    value, unit = task.cost_of
    _best_cost[exercise_id] = min(value, _best_cost.get(exercise_id, value))
    return value, unit, _best_cost[exercise_id]


def _close(result, cause):
    show(result)
    if os.environ.get("LABKIT_STRICT") == "1" and not result.passed:
        raise ExerciseError(str(result)) from cause
    return result
