"""Where a call stands between this machine's ceilings: ``peaks()``, ``roofline()``, ``bytes_moved()``.

The model is the roofline (Williams, Waterman, Patterson 2009): a call takes at least its bytes over the memory
bandwidth, and at least its FLOPs over the arithmetic rate. Eager mode adds a third floor: its operators, each of which
costs time to start. Bytes and FLOPs are counted by the rules of `labkit._traffic`.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, replace

import torch

from labkit import _callables, _traffic, timing
from labkit import _torch_private as private
from labkit._graph_values import html_table
from labkit._peaks import Peaks, have_moved, peaks
from labkit.language import t
from labkit.units import bandwidth, flop_rate, ratio, seconds, significant, size

__all__ = ["Peaks", "Roofline", "bytes_moved", "compulsory_bytes", "flops", "peaks", "roofline", "roofline_figure"]

# Below the first share of every ceiling, or above the second of one, a call gives reason to doubt the ceilings.
_LOW, _HIGH = 0.5, 1.2
# log2(time / time of half the work): 1 when time follows the work, 0 when it does not care.
_FOLLOWS, _IGNORES = 0.8, 0.3


@dataclass(frozen=True, repr=False)
class Roofline:
    """One timed call between the ceilings. Seconds, bytes, FLOPs."""

    name: str
    time_s: float
    bytes_moved: int  # what the operators read and wrote; for compiled code the compulsory bytes
    compulsory_bytes: int  # inputs read once, outputs written once: the least that any fusing leaves
    flops: int
    product_flops: int  # the part done by matrix products, convolutions and attention
    dtype: str  # of most products
    dispatches: int  # operators started, views included; 0 for compiled code
    scaling: float | None  # log2(time / time of half the work); None when the inputs could not be halved
    is_compiled: bool
    peaks: Peaks

    @property
    def floors_s(self) -> dict[str, float]:
        """What each ceiling alone would take: ``memory``, ``compute``, ``overhead``."""
        top = self.peaks
        simple = self.flops - self.product_flops
        compute_s = self.product_flops / top.rate(getattr(torch, self.dtype)) + simple / top.flops_per_s["float32"]
        return {"memory": self.bytes_moved / top.copy_bytes_per_s, "compute": compute_s,
                "overhead": self.dispatches * top.dispatch_s}  # fmt: skip

    @property
    def shares(self) -> dict[str, float]:
        """Each floor as a share of the time taken: near 1 means that this ceiling is what the call waits for."""
        return {name: floor_s / self.time_s for name, floor_s in self.floors_s.items()}

    @property
    def regime(self) -> str:
        """``"memory-bound"``, ``"compute-bound"`` or ``"overhead-bound"``: the largest floor, checked by scaling.

        A call whose time does not care how much work it is given is overhead-bound whatever the floors say, and one
        whose time follows the work is not.
        """
        floors = dict(self.floors_s)
        if self.scaling is not None and self.scaling < _IGNORES:
            return "overhead-bound"
        if self.scaling is not None and self.scaling > _FOLLOWS:
            del floors["overhead"]
        return max(floors, key=floors.get) + "-bound"

    @property
    def is_in_cache(self) -> bool:
        """Whether everything the call touches fits in the last-level cache: then it may beat the copy ceiling."""
        return self.compulsory_bytes < self.peaks.cache_bytes

    @property
    def beats_ceilings(self) -> bool:
        """Whether it is clearly faster than arithmetic or memory allows: then that ceiling is too low."""
        return max(self.shares["compute"], 0.0 if self.is_in_cache else self.shares["memory"]) > _HIGH

    @property
    def intensity(self) -> float:
        """FLOPs per byte moved."""
        return self.flops / max(1, self.bytes_moved)

    @property
    def fusing_at_most(self) -> float:
        """How many times less the floors would be if every operator were fused into one: an upper bound."""
        floors = self.floors_s
        fused_s = max(self.compulsory_bytes / self.peaks.copy_bytes_per_s, floors["compute"], self.peaks.dispatch_s)
        return max(1.0, max(floors.values()) / fused_s)

    @property
    def bytes_per_s(self) -> float:
        return self.bytes_moved / self.time_s

    @property
    def flops_per_s(self) -> float:
        return self.flops / self.time_s

    def facts(self) -> dict:
        """For ``lab.compare(…, facts=…)``: bytes and regime."""
        return {"bytes": self.bytes_moved, "regime": self.regime}

    def sentence(self) -> str:
        """What the call waits for, in the current language."""
        said = {
            "memory-bound": t("{name} is memory-bound: it waits for data."),
            "compute-bound": t("{name} is compute-bound: it waits for arithmetic."),
            "overhead-bound": t("{name} is overhead-bound: starting the work takes longer than the work."),
        }
        return said[self.regime].format(name=self.name)

    def _rows(self):
        shares = {name: f"{significant(100 * share, 2)} %" for name, share in self.shares.items()}
        rows = [
            (t("time"), seconds(self.time_s), ""),
            (t("bytes moved"), size(self.bytes_moved), t("at least {bytes}", bytes=size(self.compulsory_bytes))),
            (t("memory traffic"), bandwidth(self.bytes_per_s),
             t("{share} of copy bandwidth", share=shares["memory"])),
            (t("arithmetic"), flop_rate(self.flops_per_s),
             t("{share} of the {dtype} rate", share=shares["compute"], dtype=self.dtype)),
            (t("FLOPs per byte"), ratio(self.intensity), t("balance here: {ridge}", ridge=ratio(self.peaks.ridge))),
        ]  # fmt: skip
        if not self.is_compiled:
            rows.append((t("operators started"), str(self.dispatches),
                         t("{share} of the time", share=shares["overhead"])))  # fmt: skip
        return rows

    def _notes(self):
        notes = [self.sentence()]
        if self.is_in_cache and self.shares["memory"] > 1:
            notes.append(t("Everything it touches fits in the cache, so it beats the copy ceiling of main memory."))
        if not self.is_compiled:
            notes.append(t("Fusing everything would gain at most {ratio} times.", ratio=ratio(self.fusing_at_most, 2)))
        return notes

    def figure(self):
        """This call on the roofline, as a `LabFigure`."""
        return roofline_figure(self)

    def card(self) -> dict:
        """Provenance as plain JSON values."""
        mine = {key: value for key, value in vars(self).items() if key != "peaks"}
        return {"format": 1, "kind": "roofline", **mine, "regime": self.regime, "peaks": self.peaks.card()}

    def __str__(self):
        rows = self._rows()
        width = max(len(row[0]) for row in rows)
        lines = [f"  {label:<{width}}  {value}" + (f"  ({more})" if more else "") for label, value, more in rows]
        return "\n".join([self.name, *lines, *self._notes()])

    __repr__ = __str__

    def _repr_html_(self):
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        return html_table((self.name, "", ""), self._rows()) + notes


def roofline(fn, *args, name: str | None = None, budget_s: float = 1.0) -> Roofline:
    """Time ``fn(*args)``, count its bytes, FLOPs and operators, and say which ceiling it waits for.

    The count runs ``fn`` once on clones of the inputs. Compiled code is counted as its eager original, and its bytes
    are then the compulsory ones. Where the tensors share their first dimension, the call is timed with half of it too:
    overhead-bound calls do not get faster. A machine slows down and recovers: where the call stays far below every
    ceiling, or beats the one of arithmetic or memory, a short look tells whether the ceilings are still what they were,
    and if not they are measured anew. Raises what ``lab.measure`` raises.
    """
    _callables.require_countable(fn, "lab.roofline")
    _callables.require_callable(fn, "lab.roofline")  # no generator, no coroutine
    _callables.require_repeatable(args, "lab.roofline")
    top = peaks()
    timed = timing.measure(fn, *args, name=name, budget_s=budget_s)  # first: it says best what is wrong with a call
    seen, is_compiled = _traffic.count(fn, *args), private.is_compiled(fn)
    dtype = max(seen.product_dtypes, key=seen.product_dtypes.get, default=torch.float32)
    call = Roofline(
        name=timed.name, time_s=timed.median_s, flops=seen.flops, product_flops=seen.product_flops,
        bytes_moved=seen.outside_bytes if is_compiled else max(seen.eager_bytes, seen.outside_bytes),
        compulsory_bytes=seen.outside_bytes, dtype=str(dtype).removeprefix("torch."),
        dispatches=0 if is_compiled else seen.dispatches, is_compiled=is_compiled, peaks=top,
        scaling=_scaling(fn, args, seen, timed.median_s, budget_s / 2))  # fmt: skip
    return replace(call, peaks=peaks(refresh=True)) if _is_doubtful(call) and have_moved(top) else call


def _is_doubtful(call: Roofline) -> bool:
    """Whether the ceilings may be those of another minute."""
    return call.beats_ceilings or max(call.shares.values()) < _LOW


def bytes_moved(fn, *args) -> int:
    """Bytes that ``fn(*args)`` reads and writes in eager mode, summed over its operators (rules: `labkit._traffic`).

    A function made of one hand-written kernel moves its inputs and outputs once. For what came out of
    ``torch.compile`` the generated wrapper's kernels are summed (``graphs.kernels(fn, *args).bytes_moved``).
    Raises NotTimeableError where ``fn`` is no function, as do `compulsory_bytes` and `flops`.
    """
    _callables.require_countable(fn, "lab.ceilings.bytes_moved")
    if private.is_compiled(fn):
        from labkit import graphs

        return graphs.kernels(fn, *args).bytes_moved
    seen = _traffic.count(fn, *args)
    return max(seen.eager_bytes, seen.outside_bytes)


def compulsory_bytes(fn, *args) -> int:
    """The least that any implementation moves: what comes from outside read once, what stays written once."""
    _callables.require_countable(fn, "lab.ceilings.compulsory_bytes")
    return _traffic.count(fn, *args).outside_bytes


def flops(fn, *args) -> int:
    """FLOPs of ``fn(*args)``: products by torch's ``FlopCounterMode``, other operators one an element."""
    _callables.require_countable(fn, "lab.ceilings.flops")
    return _traffic.count(fn, *args).flops


def roofline_figure(*calls: Roofline):
    """The roof of this machine with every call as a point; a `LabFigure`."""
    from labkit._roofline_plot import draw_roofline

    return draw_roofline(calls)


def _scaling(fn, args, whole: _traffic.Count, whole_s: float, budget_s: float) -> float | None:
    """log2(time / time of half the work), or None when there is no way to give ``fn`` half the work."""
    for half in _halved(args):
        try:
            seen = _traffic.count(fn, *half)
            work = [(seen.outside_bytes, whole.outside_bytes), (seen.flops, whole.flops)]
            # Half of the inputs must be about half of the work, or the times say nothing.
            if not any(b and 0.4 < a / b < 0.65 for a, b in work):
                continue
            # In turns, the best of each: a disturbance that hits one of them alone must not look like scaling.
            half_s = timing.measure(fn, *half, budget_s=budget_s / 3).median_s
            whole_s = min(whole_s, timing.measure(fn, *args, budget_s=budget_s / 3).median_s)
            half_s = min(half_s, timing.measure(fn, *half, budget_s=budget_s / 3).median_s)
        except Exception:  # the function does not take such inputs: then there is no scaling test
            continue
        return math.log2(whole_s / half_s)
    return None


def _halved(args):
    """The arguments with half of the first dimension: of every tensor that shares it, then of the first alone."""
    tensors = [x for x in args if isinstance(x, torch.Tensor) and x.dim() and x.shape[0] > 1]
    if not tensors:
        return
    batch = tensors[0].shape[0]

    def cut(x, wanted):
        return x[: batch // 2].detach().clone().requires_grad_(x.requires_grad) if wanted else x

    def shares(x):
        return isinstance(x, torch.Tensor) and x.dim() > 0 and x.shape[0] == batch

    yield tuple(cut(x, shares(x)) for x in args)
    if sum(map(shares, args)) > 1:
        yield tuple(cut(x, x is tensors[0]) for x in args)
