"""Lesson 11: one rung of the ladder after the other, each with its verdict; the whole of it as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from labkit import _enough_time, comparison, hardware, marks, plots, units
from labkit._cpp_kernels import patience
from labkit._enough_time import budget, timed
from labkit._figure import LabFigure
from labkit._peak_memory import peak_bytes
from labkit._verdict_view import label
from labkit.language import t
from labkit.lessons import name_batches as batches
from labkit.lessons.ladder import NAIVE, RUNGS, Run, Training, Way, train
from labkit.lessons.name_gpt import Size, network

BEFORE = "before"
# These cost accuracy, time for memory, a wait: they have to win.
PRICED = {"bf16", "recompute", "compiled", "together"}
_CLOSE, _CLOSE_BF16 = 1e-3, 0.05  # how far losses may differ, as a share


@dataclass(frozen=True)
class Rung:
    """One change, measured against the way that was kept until then."""

    name: str
    found: comparison.Comparison  # of "before" and the change
    way: Way
    peaks: tuple[int, int]  # bytes of a step: before, with the change
    so_far: float  # times as fast as the naive way, before this rung
    first_s: float = 0.0  # the first step, compiling included

    @property
    def kept(self) -> bool:
        """A change stays when it is faster by verdict; one that costs nothing also when it does not look slower."""
        verdict = self.found.verdict(self.name)
        free = self.name not in PRICED and verdict != "slower" and self.found.ratio(self.name).value >= 1
        return verdict == "faster" or free

    @property
    def price_s(self) -> float:
        """Seconds that the kept change costs once: its first step, where that compiled. Nothing for a dropped one."""
        return self.first_s if self.kept and self.way.compiled else 0.0

    @property
    def reaches(self) -> float:
        """Times as fast as the naive way with this change: the product of the ratios that were kept, and its own."""
        return self.so_far * self.found.ratio(self.name).value

    @property
    def standing(self) -> float:
        """Times as fast as the naive way with all that is kept up to here."""
        return self.reaches if self.kept else self.so_far

    def __str__(self) -> str:
        memory = t("peak memory of a step {before} -> {after}", before=units.size(self.peaks[0]),
                   after=units.size(self.peaks[1]))  # fmt: skip
        fate = t("Kept.") if self.kept else t("Not kept.")
        wait = " " + t("Its first step took {first}.", first=units.seconds(self.first_s)) if self.way.compiled else ""
        return f"{self.found.sentence(self.name)} {fate} {memory[0].upper()}{memory[1:]}.{wait}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return marks.box(str(self), "", "#1a7f37" if self.kept else "#9a6700")


@dataclass
class Ladder:
    """Tries changes one at a time on the same batch of names; what wins stays for the rungs above."""

    size: Size
    budget_s: float = 1.5
    way: Way = NAIVE
    numbers: Sequence[int] | None = None  # the names of the batch; the training's first batch, unless given
    rungs: list[Rung] = field(default_factory=list)
    _trained: dict = field(default_factory=dict)

    def way_with(self, name: str) -> Way:
        """The way so far with the changes of ``RUNGS[name]``; the same way where it has them already."""
        changes = RUNGS[name]
        return self.way.but(**(changes() if callable(changes) else changes))

    def climb(self, name: str) -> Rung:
        """Compare the way so far with the one that ``RUNGS[name]`` makes of it."""
        before, after = self.way, self.way_with(name)
        steps = {BEFORE: self.step(before), name: self.step(after)}
        with patience("torch.compile"):
            first_s = timed(steps[name])
        peaks = tuple(peak_bytes(step, hardware.device()) for step in steps.values())
        found = self._compare(steps, BEFORE, (before, after), self.budget_s)
        rung = Rung(name, found, after, peaks, self.rungs[-1].standing if self.rungs else 1.0, first_s)
        self.rungs.append(rung)
        if rung.kept:
            self.way = after
        return rung

    @property
    def price_s(self) -> float:
        """Seconds that compiling costs once on the last way: the first step of the last change kept, if it compiles."""
        return next((rung.price_s for rung in reversed(self.rungs) if rung.kept), 0.0)

    def total(self, *, budget_s: float = 3.0) -> comparison.Comparison:
        """The naive way against everything that was kept, interleaved: no product of short measurements."""
        steps = {"naive": self.step(NAIVE), "final": self.step(self.way)}
        return self._compare(steps, "naive", (NAIVE, self.way), budget_s)

    def step(self, way: Way):
        """A whole step of ``way`` as a function without arguments, batch and all; always the same names."""
        if way not in self._trained:
            self._trained[way] = Training(way, self.size), self.numbers or next(batches.plan(self.size.batch, 0))
        training, numbers = self._trained[way]
        return lambda: training.step(training.batch(numbers))

    def _compare(self, steps, baseline: str, ways: Sequence[Way], budget_s: float) -> comparison.Comparison:
        budget_s = budget(steps, budget_s)
        fresh = network(self.size).state_dict()
        for way in ways:  # the calls until here trained some longer than others: only equal weights have equal losses
            self._trained[way][0].model.load_state_dict(fresh)
        close = _CLOSE_BF16 if any(way.bf16 for way in ways) else _CLOSE
        return _enough_time.compare(steps, baseline=baseline, budget_s=budget_s,
                                    check=lambda one, other: abs(float(one) - float(other)) <= close * abs(float(one)))

    def __str__(self) -> str:
        return "\n".join("  ".join(row) for row in (_heads(), *self._rows()))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from labkit._graph_values import html_table

        return html_table(_heads(), self._rows())

    def _rows(self):
        for rung in self.rungs:
            ratio = rung.found.ratio(rung.name)
            yield (rung.name, f"{units.ratio(ratio.value)} ({units.ratio(ratio.low)}–{units.ratio(ratio.high)})",
                   label(rung.found.verdict(rung.name)), t("yes") if rung.kept else t("no"),
                   units.ratio(rung.standing), units.size(rung.peaks[1]))  # fmt: skip

    def figure(self) -> LabFigure:
        """Cumulative bars, and the peak memory of a step beside them."""
        return _figure(self.rungs)


def _heads() -> tuple[str, ...]:
    return (t("change"), t("times as fast as before"), t("verdict"), t("kept"), t("all kept so far"),
            t("peak memory of a step"))  # fmt: skip


def _figure(rungs: Sequence[Rung]) -> LabFigure:
    def draw(figure: LabFigure) -> None:
        speed, memory = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
        names = ["naive", *(rung.name for rung in rungs)]
        reached = [1.0, *(rung.reaches for rung in rungs)]
        peaks = [rungs[0].peaks[0], *(rung.peaks[1] for rung in rungs)]
        kept = [True, *(rung.kept for rung in rungs)]
        said = []
        for row, (name, value, bytes_, stays) in enumerate(zip(names, reached, peaks, kept, strict=True)):
            look = {"color": plots.COLOURS[0 if stays else 1], "hatch": "" if stays else "///", "edgecolor": "white"}
            speed.barh(row, value, height=0.65, **look)
            memory.barh(row, bytes_ / 1e6, height=0.65, **look)
            text = units.ratio(value) if stays else t("{ratio}, not kept", ratio=units.ratio(value))
            speed.annotate(text, (value, row), (5, 0), textcoords="offset points", va="center")
            memory.annotate(units.size(bytes_), (bytes_ / 1e6, row), (5, 0), textcoords="offset points", va="center")
            said.append(f"{name}: {text}, {units.size(bytes_)}")
        speed.axvline(1.0, color="#1f2328", linestyle="--", linewidth=1)
        speed.set_yticks(range(len(names)), names)
        speed.invert_yaxis()
        for axes, most in ((speed, max(reached)), (memory, max(peaks) / 1e6)):
            axes.grid(visible=False, axis="y")
            axes.set_xlim(0, 1.45 * most)
        speed.set_xlabel(t("times as fast as the naive way"))
        memory.set_xlabel(t("peak memory of a step (MB)"))
        figure.alt = t("Bars: how many times as fast as the naive way each rung is, and its peak memory. {rows}",
                       rows="; ".join(said))  # fmt: skip

    return LabFigure(draw, figsize=(7.4, 1.2 + 0.42 * (len(rungs) + 1)))


def whole(ladder: Ladder, size: Size, *, steps: int, every: int = 50, seed: int = 0) -> dict[str, Run]:
    """Train every rung that was kept, from the naive way on, until the naive way's last validation loss is reached."""
    first = train(NAIVE, size, steps=steps, every=every, seed=seed)
    kept = {rung.name: rung.way for rung in ladder.rungs if rung.kept}
    return {"naive": first} | {name: train(way, size, target=first.loss, steps=2 * steps, every=every, seed=seed)
                               for name, way in kept.items()}  # fmt: skip
