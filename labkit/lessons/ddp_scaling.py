"""Scaling efficiency of data parallelism: a step of one rank against a step of several, measured in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit import launch
from labkit.comparison import Comparison, Ratio
from labkit.language import t
from labkit.lessons.fusion import Sentence
from labkit.lessons.rank_turns import comparison
from labkit.units import ratio, seconds, significant, size

ONE, DDP, SILENT, AFTER = "one rank", "DDP", "no sync", "sync after"
WAYS = {ONE: "one_rank", DDP: "all_ranks", SILENT: "without_communication", AFTER: "communication_afterwards"}


@dataclass(frozen=True)
class Scaling:
    """Steps of ``ranks`` ranks beside those of one, each rank with a batch as large (weak scaling).

    ``speed`` compares seconds per batch: its ratio says how many times as many batches all ranks get done together.
    ``step_s`` is the median time of one step of each way.
    """

    ranks: int
    speed: Comparison
    step_s: Mapping[str, float]
    gradient_bytes: int

    @property
    def efficiency(self) -> Ratio:
        """Share of the ideal that is reached: 1 when ``ranks`` ranks get ``ranks`` times as much done."""
        r = self.speed.ratio(DDP)
        return Ratio(r.value / self.ranks, r.low / self.ranks, r.high / self.ranks, r.rounds)

    @property
    def overlap(self) -> float | None:
        """Share of the communication that hides behind the backward pass; None where there is hardly any to hide."""
        if not {SILENT, AFTER} <= set(self.step_s):
            return None
        silent, ddp, after = (self.step_s[name] for name in (SILENT, DDP, AFTER))
        return (after - ddp) / (after - silent) if after > 1.02 * silent else None

    def sentence(self) -> Sentence:
        """Efficiency and overlap in words."""
        e = self.efficiency
        text = t("{ranks} ranks get {ratio} times as much done as one: efficiency {efficiency}% (probably between "
                 "{low}% and {high}%).", ranks=self.ranks, ratio=ratio(e.value * self.ranks),
                 efficiency=_percent(e.value), low=_percent(e.low), high=_percent(e.high))
        if self.overlap is not None:
            hidden = min(1.0, max(0.0, self.overlap))
            text += " " + t("Of the communication of {size} of gradients, about {percent}% was hidden behind the "
                            "backward pass.", size=size(self.gradient_bytes), percent=_percent(hidden))
        return Sentence(text)

    def rows(self) -> list[tuple[str, str]]:
        return [(name, seconds(step_s)) for name, step_s in self.step_s.items()]

    def card(self) -> dict:
        return {"format": 1, "kind": "ddp scaling", "ranks": self.ranks, "gradient_bytes": self.gradient_bytes,
                "step_s": dict(self.step_s), "speed": self.speed.card()}


def _percent(share: float) -> str:
    return significant(100 * share, 2)


def of(results: Sequence[Mapping], *, names: Sequence[str] = (ONE, DDP, SILENT, AFTER), weak: bool = True,
       repeat: Callable | None = None) -> Scaling:
    """What ``take_turns()`` reported, as a ``Scaling``. ``weak=False``: the ranks share one batch between them."""
    ranks = len(results)
    work = {name: ranks if weak and name != ONE else 1 for name in names}
    found = comparison(results, baseline=ONE, names=names, work=work, repeat=repeat)
    step_s = {name: median * work[name] for name, median in found.medians_s.items()}
    return Scaling(ranks, found, {name: step_s[name] for name in names}, results[0].get("gradient_bytes", 0))


def measure(*, width: int, batch: int, ranks: int = 2, layers: int = 6, rounds: int = 5, threads: int | None = None,
            ways: Sequence[str] = (ONE, DDP, SILENT, AFTER), timeout_s: float = 120.0) -> Scaling:
    """Launch ``ranks`` ranks that train ``layers`` linear layers, and time the ``ways`` in turns.

    ``batch`` rows on each rank; ``threads`` for each rank, by default the cores are shared out.
    """
    values = {"width": width, "layers": layers, "batch": batch, "rounds": rounds,
              "ways": {name: WAYS[name] for name in ways}}
    script = Path(__file__).with_name("ddp_rank.py")

    def once():
        return launch.torchrun(script, ranks, values=values, threads=threads, timeout_s=timeout_s, show=False)

    return of(once(), names=ways, repeat=once)
