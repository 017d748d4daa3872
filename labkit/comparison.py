"""Which of several functions is faster, and how sure that is: ``compare()`` and ``claim()``."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from labkit import _callables, _facts, _statistics, _stopwatch, timing
from labkit._claims import Claim, claim
from labkit._correctness import Gate
from labkit._statistics import Ratio
from labkit.language import t
from labkit.timing import Measurement, measurement

__all__ = ["Claim", "Comparison", "Ratio", "claim", "compare"]

FEWEST_ROUNDS = 3


@dataclass(frozen=True, repr=False)
class Comparison:
    """Interleaved times of several functions, and what they say. Ratios are baseline / candidate: above 1 is faster."""

    measurements: dict[str, Measurement]
    ratios: dict[str, Ratio]
    baseline: str
    margin: float
    budget_s: float
    checked: bool  # whether there were results to compare
    facts: dict = field(default_factory=dict)
    _repeat: Callable | None = field(default=None, compare=False)

    @property
    def names(self) -> list[str]:
        """Baseline first, then the candidates in the order given."""
        return [self.baseline, *(name for name in self.measurements if name != self.baseline)]

    @property
    def medians_s(self) -> dict[str, float]:
        return {name: m.median_s for name, m in self.measurements.items()}

    def ratio(self, name: str) -> Ratio:
        """Baseline time / time of ``name``, with its 95 % interval. Raises KeyError for an unknown name."""
        if name == self.baseline:
            return Ratio(1.0, 1.0, 1.0)
        if name not in self.ratios:
            raise KeyError(t("There is no candidate {name!r} here; there are: {names}.", name=name,
                             names=", ".join(self.names)))
        return self.ratios[name]

    def verdict(self, name: str) -> str:
        """``"faster"``, ``"slower"``, ``"same"`` (the interval lies inside the margin) or ``"undecided"``."""
        return _statistics.verdict(self.ratio(name), self.margin)

    def sentence(self, name: str) -> str:
        """The verdict as a sentence in the current language."""
        from labkit._verdict_view import sentence

        return sentence(self, name)

    def why(self, name: str) -> str:
        """What was counted about ``name`` beside the baseline, and when its first call has paid for itself."""
        from labkit._verdict_view import why

        return why(self, name)

    def again(self, budget_s: float | None = None) -> Comparison:
        """Time the same functions once more, without the first call; ``budget_s`` as before unless given."""
        return self._repeat(budget_s or self.budget_s, self)

    def card(self) -> dict:
        """Provenance as plain JSON values: every measurement's card, ratios, verdicts, counted facts."""
        from labkit import hardware

        cards = {name: m.card() for name, m in self.measurements.items()}
        for card in cards.values():
            del card["machine"]
        return {
            "format": 1, "kind": "comparison", "baseline": self.baseline, "margin": self.margin,
            "budget_s": self.budget_s, "checked": self.checked, "measurements": cards,
            "ratios": {name: [r.value, r.low, r.high] for name, r in self.ratios.items()},
            "verdicts": {name: self.verdict(name) for name in self.ratios},
            "facts": {name: _facts.of(self.facts, name) for name in self.facts}, "machine": hardware.provenance(),
        }

    def __str__(self) -> str:
        from labkit._verdict_view import as_text

        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from labkit._verdict_view import as_html

        return as_html(self)


def compare(candidates, *args, baseline="eager", budget_s=3.0, margin=0.03, check=None, tolerance=None, cache="warm",
            facts=None, clock=None) -> Comparison:
    """Compare the speed of functions that compute the same thing, each called as ``fn(*args)``.

    **Correctness first.** Outputs, and the gradients that a training step leaves, must agree within a dtype's
    tolerance, and a second call must give the first one's answer; otherwise nothing is timed. A gradient may be further
    off where rounding alone moves it further, as behind a ReLU: the baseline with its weights nudged shows how far.
    ``tolerance`` sets another relative tolerance; ``check(baseline_output, candidate_output) -> bool`` replaces the
    rule. Each call of this check starts from the same inputs, weights, optimiser state and random numbers; at the end
    they are put back.

    **Then time.** After warm-up the functions take turns in short blocks, in rounds A B B A or B A A B drawn at random,
    until ``budget_s`` seconds are over (for all candidates together), so that whatever disturbs the machine hits all
    alike. The ratio is the median of the log ratios of all pairs within a round; its 95 % interval is a bootstrap over
    20 stretches of consecutive rounds (sources in ``labkit._statistics``). The verdict is ``faster`` or ``slower`` when
    the interval lies wholly beyond ``margin`` and, widened to 99.9 %, still on its side of 1; ``same`` when it lies
    wholly inside; else ``undecided``. With ``margin=0``, any difference at all, the 95 % interval decides by itself.

    ``facts={"fused": {"bytes": n, "kernels": k}}`` gives ``why()`` and ``claim()`` something to say; a value may also
    be a function that returns such a dict. ``cache`` and ``clock`` as in ``measure()``.

    Raises NotTimeableError, CallFailedError, BudgetTooSmallError, ResultsDifferError, InputsChangedError,
    DevicesDifferError, ValueError.
    """
    _require_candidates(candidates, baseline)
    _callables.require_repeatable(args, "lab.compare")
    _callables.require_budget(budget_s)
    _callables.require_cache(cache)
    if not margin >= 0:
        raise ValueError(
            t("`margin` is the difference that counts as none, such as 0.03; it was {margin!r}.", margin=margin))
    gate = Gate(candidates, args, baseline=baseline, check=check, tolerance=tolerance)
    watches: dict[str, _stopwatch.Stopwatch] = {}
    steady = _stopwatch.Clock(clock)

    def again(budget_s: float, before: Comparison | None = None) -> Comparison:
        with gate:
            with _stopwatch.undisturbed(clock) as disturbed:
                runs, calls, orders = _interleaved(watches, budget_s)
            gate.confirm(watches)
        ratios = {name: _statistics.ratio_interval(
            _walls(runs[baseline]), _walls(runs[name]), [order.index(baseline) < order.index(name) for order in orders])
            for name in candidates if name != baseline}
        stopped = "budget" if len(orders) < timing.MIN_RUNS else "settled"
        measurements = {name: measurement(watches[name], [run for half in runs[name] for run in half],
                                          calls=calls[name], cache=cache, stopped=stopped, disturbed=disturbed)
                        for name in candidates}
        return Comparison(measurements, ratios, baseline, margin, budget_s, gate.compared, dict(facts or {}), again)

    with gate:
        for name in [baseline, *(name for name in candidates if name != baseline)]:
            watches[name] = gate.open(name, lambda keep, name=name: _stopwatch.Stopwatch(
                candidates[name], args, name=name, tool="lab.compare", cache=cache, clock=steady, keep=keep))
    return again(budget_s)


def _require_candidates(candidates, baseline) -> None:
    """Raise a helpful error unless ``candidates`` maps two or more names, ``baseline`` among them, to functions."""
    if not isinstance(candidates, Mapping):
        raise _callables.NotTimeableError(
            t("`lab.compare` needs a dict that gives each function a name, but was given {kind}. Write "
              '`lab.compare({{"eager": f, "fused": g}}, x)`.', kind=_callables.kind_of(candidates)))
    for fn in candidates.values():
        _callables.require_callable(fn, "lab.compare")
    if len(candidates) < 2:
        raise ValueError(
            t("`lab.compare` needs two functions or more and was given {count}. For the time of one function use "
              '`lab.measure(f, x)`; to compare write `lab.compare({{"eager": f, "fused": g}}, x)`.',
              count=len(candidates)))
    if baseline not in candidates:
        raise ValueError(
            t("The baseline {baseline!r} is not among the functions: {names}. Name one of them: `baseline={first!r}`.",
              baseline=baseline, names=", ".join(map(repr, candidates)), first=next(iter(candidates))))


def _interleaved(watches: dict, budget_s: float):
    """ABBA rounds until the budget ends: runs by name, a pair a round; calls a block by name; each round's order."""
    call_s, calls = {}, {}
    for name, watch in watches.items():
        call_s[name], calls[name] = watch.warm_up(budget_s / len(watches))
        usual = calls[next(iter(watches))]
        if 0.8 <= calls[name] / usual <= 1.25:
            calls[name] = usual  # near-equal functions get equal blocks, so that block length favours neither
    round_s = 2 * sum(call_s[name] * calls[name] for name in watches)
    if round_s > budget_s:
        raise _callables.budget_too_small(budget_s, 6 * round_s, max(call_s.values()))
    runs = {name: [] for name in watches}
    order, orders, clock = list(watches), [], next(iter(watches.values())).clock
    shuffle = random.Random(0).shuffle
    begin_s = clock.now_s()
    while clock.now_s() - begin_s < budget_s or len(runs[order[0]]) < FEWEST_ROUNDS:
        first = {name: watches[name].block(calls[name]) for name in order}
        second = {name: watches[name].block(calls[name]) for name in reversed(order)}
        for name in order:
            runs[name].append((first[name], second[name]))
        orders.append(tuple(order))
        shuffle(order)  # a fixed pattern can fall into step with the scheduler's time slices
        _stopwatch.tidy()
    return runs, calls, orders


def _walls(runs):
    """Wall seconds of each half of each round: (rounds, 2)."""
    return [[half[0] for half in pair] for pair in runs]
