"""Which of several things is faster that all ranks do together: they take turns, as in ``compare()``, but in step.

``compare()`` lets each process decide by its own clock how often to repeat, and ranks that decide differently wait for
each other for ever. So here rank 0 counts, everybody follows, and the times go home as numbers:

    lab.report(**take_turns({"one rank": alone, "two ranks": together}))                     # in the ranks
    comparison(results, baseline="one rank", work={"one rank": 1, "two ranks": 2})           # in the notebook
"""

from __future__ import annotations

import datetime
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence

from labkit.language import t

_BLOCK_S = 0.02  # shorter calls are timed several in a row, so that the barrier's own cost does not count
_WARM_UP = 2
_MOST_CALLS = 1000


def take_turns(candidates: Mapping[str, Callable[[], object]], *, rounds: int = 9, **more) -> dict:
    """In every rank at once: time each candidate in ``rounds`` rounds A B B A, everybody starting together.

    A candidate in which only rank 0 works is ``lambda: rank or step()``: the others wait at the next barrier, without
    using the processor. Returns what ``comparison()`` takes: rank 0's seconds per call, (rounds, 2) for each name, and
    ``more``.
    """
    from labkit import _stopwatch, launch

    calls, first_s = {}, {}
    for name, fn in candidates.items():
        first_s[name] = _block(fn, 1)
        call_s = min(_block(fn, 1) for _ in range(_WARM_UP))
        calls[name] = _agreed(min(_MOST_CALLS, max(1, math.ceil(_BLOCK_S / call_s))))
    times, order, first = {name: [] for name in candidates}, list(candidates), []
    shuffle = random.Random(0).shuffle  # the same on every rank
    for _ in range(rounds):
        halves = [{name: _block(candidates[name], calls[name]) for name in names} for names in (order, order[::-1])]
        for name in candidates:
            times[name].append([half[name] for half in halves])
        first.append(list(order))
        shuffle(order)
    return {"times": times, "first_s": first_s, "calls": calls, "orders": first, "threads": _stopwatch.threads(),
            "device": launch.rank_device().type, **more}


def _block(fn: Callable, calls: int) -> float:
    """Seconds per call of ``calls`` calls in a row that all ranks begin together."""
    import torch.distributed as dist

    from labkit import hardware, launch

    device = launch.rank_device()
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        fn()
    hardware.sync(device)
    return (time.perf_counter() - start) / calls


def _agreed(number: int) -> int:
    """Rank 0's number, on every rank."""
    import torch
    import torch.distributed as dist

    from labkit import launch

    told = torch.tensor([number], device=launch.rank_device())
    dist.broadcast(told, 0)
    return int(told)


def comparison(
    results: Sequence[Mapping],
    *,
    baseline: str,
    names: Sequence[str] | None = None,
    work: Mapping[str, float] | None = None,
    facts: Mapping | None = None,
    margin: float = 0.03,
    repeat: Callable[[], Sequence[Mapping]] | None = None,
):
    """A ``Comparison`` of what rank 0 took down; ``names`` picks some of the candidates.

    ``work`` says how much one call gets done (2 where two ranks each do a batch): times are per unit of it, so that the
    ratio is one of throughput. ``repeat`` launches the ranks again, for a claim that is still undecided.
    """
    from labkit import _statistics
    from labkit.comparison import Comparison

    found = results[0]
    names = list(names or found["times"])
    if baseline not in names:
        raise ValueError(t("The baseline {baseline!r} is not among the functions: {names}. Name one of them: "
                           "`baseline={first!r}`.", baseline=baseline, names=", ".join(map(repr, names)),
                           first=names[0]))
    work = dict.fromkeys(names, 1.0) | dict(work or {})
    pairs = {name: [[half / work[name] for half in pair] for pair in found["times"][name]] for name in names}
    before = {name: [order.index(baseline) < order.index(name) for order in found["orders"]] for name in names}
    ratios = {name: _statistics.ratio_interval(pairs[baseline], pairs[name], before[name])
              for name in names if name != baseline}
    seconds = sum(sum(map(sum, found["times"][name])) * found["calls"][name] for name in found["times"])

    def again(budget_s: float, old) -> Comparison:
        return comparison(repeat(), baseline=baseline, names=names, work=work, facts=facts, margin=margin,
                          repeat=repeat) if repeat else old

    return Comparison({name: _measurement(name, pairs[name], found, work[name]) for name in names}, ratios, baseline,
                      margin, max(seconds, 1e-9), True, dict(facts or {}), again)


def _measurement(name: str, pairs, found: Mapping, work: float):
    from labkit.timing import Measurement

    return Measurement(
        name=name, times_s=tuple(half for pair in pairs for half in pair), first_s=found["first_s"][name] / work,
        device=found["device"], threads=found["threads"], calls=found["calls"][name], cache="warm",
        stopped="settled", inputs=(), utc=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))
