"""What can be timed, and what the learner is told when something cannot."""

from __future__ import annotations

import collections.abc
import inspect
import math

from labkit import _compiling, hardware
from labkit.language import t
from labkit.units import seconds


class NotTimeableError(TypeError):
    """The thing to time or to count is no plain function."""


class BudgetTooSmallError(ValueError):
    """The time budget cannot hold what was asked for; ``needed_s`` could."""

    def __init__(self, message: str, needed_s: float = math.nan):
        super().__init__(message)
        self.needed_s = needed_s


class ClockError(RuntimeError):
    """The clock does not go forward."""


class CallFailedError(RuntimeError):
    """The learner's function raised; the original exception is the ``__cause__``."""


def name_of(fn) -> str:
    """A short printable name for a callable, without an address."""
    target = getattr(fn, "func", fn)  # functools.partial
    name = getattr(target, "__name__", None) or type(target).__name__
    return "f" if name == "<lambda>" else name


def kind_of(thing) -> str:
    """What a learner would call this object: a tensor, an array, or its class name."""
    kind = type(thing).__name__
    if kind in ("Tensor", "Parameter", "NDArray"):
        return t("a tensor")
    return {"ndarray": t("an array"), "str": t("a text")}.get(kind, kind)


def require_callable(fn, tool: str) -> None:
    """Raise NotTimeableError unless ``fn`` can be called again and again; ``tool`` is what the learner called."""
    if not callable(fn):
        if inspect.isgenerator(fn) or inspect.iscoroutine(fn) or inspect.isasyncgen(fn):
            raise NotTimeableError(_only_once(tool, type(fn).__name__))
        raise NotTimeableError(
            t("`{tool}` needs a function but was given {kind}. You probably wrote `{tool}(f(x))`. Python then runs "
              "`f(x)` first and passes on only the result, so nothing is left to time. Nothing was recorded; earlier "
              "results are safe. Give the function and its input separately: `lab.measure(f, x)`, or "
              '`lab.compare({{"eager": f, "fused": g}}, x)`. With extra arguments, write `lambda: f(x, scale=2.0)`. '
              "Then run this cell again; no need to rerun the notebook.", tool=tool, kind=kind_of(fn)))
    target = inspect.unwrap(fn) if hasattr(fn, "__wrapped__") else fn
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise NotTimeableError(_only_once(tool, "generator"))
    if inspect.iscoroutinefunction(target):
        raise NotTimeableError(_only_once(tool, "coroutine"))


def require_countable(fn, tool: str, right: str = "f, x") -> None:
    """Raise NotTimeableError unless ``fn`` is something that ``tool`` can call and count; ``right``: what to pass."""
    if not callable(fn):
        raise NotTimeableError(
            t("`{tool}` needs a function but was given {kind}. You probably wrote `{tool}(f(x))`. Python then runs "
              "`f(x)` first and passes on only the result, so nothing is left to count. Give the function and its "
              "input separately: `{tool}({right})`. Then run this cell again.",
              tool=tool, kind=kind_of(fn), right=right))


def require_repeatable(args, tool: str) -> None:
    """Refuse arguments that one call uses up (generators, ``map``, open iterators)."""
    for arg in args:
        if isinstance(arg, collections.abc.Iterator):
            raise NotTimeableError(
                t("`{tool}` was given an argument of type `{kind}`, which the first call uses up; every later call "
                  "would see it empty. Turn it into a list first: `items = list(items)`, then pass `items`.",
                  tool=tool, kind=type(arg).__name__))


def require_result(result, tool: str) -> None:
    """Refuse results that are only a promise to work later."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise NotTimeableError(_only_once(tool, "generator"))
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()  # else Python complains on stderr that it was never awaited
        raise NotTimeableError(_only_once(tool, "coroutine"))


def require_budget(budget_s) -> None:
    """Raise BudgetTooSmallError unless ``budget_s`` is a positive, finite number of seconds."""
    try:
        good = math.isfinite(budget_s) and budget_s > 0
    except TypeError:
        good = False
    if not good:
        raise BudgetTooSmallError(
            t("`budget_s` is the time to spend on measuring, in seconds, and must be above zero; it was {budget!r}. "
              "Write for example `budget_s=1.0`.", budget=budget_s))


def budget_too_small(budget_s: float, needed_s: float, call_s: float) -> BudgetTooSmallError:
    """The error for a budget that is over before there is anything to say."""
    return BudgetTooSmallError(
        t("One call takes about {call}, so a budget of {budget} ends before there is anything to compare it with. "
          "Either make the input smaller, or allow more time: `budget_s={needed}`.",
          call=seconds(call_s), budget=seconds(budget_s), needed=f"{needed_s:.2g}"), needed_s)


def call_failed(name: str, error: Exception) -> CallFailedError:
    """Wrap what the learner's function raised; use with ``raise … from error``."""
    if is_out_of_memory(error):
        return CallFailedError(
            t("The memory ran out in {name}, so nothing was timed. Choose a smaller input, close other programs, and "
              "run this cell again.", name=f"`{name}`"))
    if type(error).__module__.startswith("torch._") and not hardware.can_compile():
        return CallFailedError(_compiling.why_not())
    return CallFailedError(
        t("{name} stopped with {kind}: {text}. Nothing was timed. Call it once by itself with the same inputs to see "
          "where; when that works, measure again.",
          name=f"`{name}`", kind=type(error).__name__, text=str(error).strip()[:300].rstrip(".")))


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out: torch has a class of its own for a GPU's, and says it in words on a CPU."""
    kind = type(error).__name__
    return isinstance(error, MemoryError) or kind == "OutOfMemoryError" or "allocate memory" in str(error)


def _only_once(tool: str, kind: str) -> str:
    return t("`{tool}` cannot time a {kind}: calling it does no work yet, the work happens later, when someone asks "
             "for the values. Wrap it in a function that does all of it: `lambda: list(f(x))` for a generator, "
             "`lambda: asyncio.run(f(x))` for a coroutine.", tool=tool, kind=kind)


def require_cache(cache: str) -> None:
    if cache not in ("warm", "cold"):
        raise ValueError(t('`cache` is "warm" (call again and again) or "cold" (empty the cache before each run), not '
                           '{cache!r}.',
                           cache=cache))
