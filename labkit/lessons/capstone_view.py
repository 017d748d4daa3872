"""What lesson 11 says in the end: losses against seconds as a picture, and the claims answered from one's own runs."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labkit import cost, plots, units
from labkit._figure import LabFigure
from labkit.comparison import Comparison
from labkit.language import t
from labkit.lessons.climbing import Ladder, Rung
from labkit.lessons.ladder import Run


def race(runs: Mapping[str, Run]) -> LabFigure:
    """Validation loss against the seconds since the start, one line a run, with the loss that both must reach."""

    def draw(figure: LabFigure) -> None:
        axes = figure.subplots()
        said = []
        for index, (name, run) in enumerate(runs.items()):
            _, after_s, losses = zip(*run.history, strict=True)
            look = plots._style(index)
            axes.plot(after_s, losses, markersize=5, label=name, **look)
            said.append(t("{name}: {seconds}, loss {loss}", name=name, seconds=units.seconds(run.total_s),
                          loss=units.significant(run.loss)))  # fmt: skip
        goal = next(iter(runs.values())).loss
        axes.axhline(goal, color="#1f2328", linestyle=":", linewidth=1)
        axes.set_xlim(left=0)
        axes.set_xlabel(t("seconds since the start"))
        axes.set_ylabel(t("validation loss"))
        axes.legend()
        figure.alt = t("Lines: validation loss against seconds. {rows}", rows="; ".join(said))

    return LabFigure(draw)


@dataclass(frozen=True)
class Answers:
    """This lesson's part of the claims, answered by what was measured here."""

    ladder: Ladder
    total: Comparison
    ranked: Comparison  # "one process" against "two ranks"
    runs: Sequence[Run]  # the naive one and the final one
    rentals: Sequence[cost.Rental]  # of the same two

    def sentences(self) -> list[str]:
        naive, final = self.runs
        ratio = self.total.ratio("final")
        kept = [rung.name for rung in self.ladder.rungs if rung.kept]
        slower = [rung.name for rung in self.ladder.rungs if rung.found.verdict(rung.name) == "slower"]
        by_name = {rung.name: rung for rung in self.ladder.rungs}
        compiled, together = by_name.get("compiled"), by_name.get("together")
        found = [
            t('"2 to 3 times faster": a step of the last way is {ratio} times as fast as one of the first (probably '
              "between {low} and {high}). Kept: {kept}.", ratio=units.ratio(ratio.value), low=units.ratio(ratio.low),
              high=units.ratio(ratio.high), kept=", ".join(kept) or "-"),
            t("Popular, and slower here: {slower}.", slower=", ".join(slower) or t("none")),
            t('"The hardware you own can give more": on this same machine the naive way took {naive} to its last loss, '
              "and the last way {final} to the same loss, compiling included.", naive=units.seconds(naive.total_s),
              final=_time(final.seconds_to(naive.loss + TIE))),
            _money(*self.rentals),
            t("Data parallel on top: {sentence}", sentence=self.ranked.sentence("two ranks")),
        ]  # fmt: skip
        if compiled is not None:
            found.insert(1, _compilers_part(compiled, together))
        return found

    def __repr__(self):
        return "\n".join(self.sentences())

    def _repr_html_(self):
        return "<ul>" + "".join(f"<li>{html.escape(line, quote=False)}</li>" for line in self.sentences()) + "</ul>"


def _compilers_part(compiled: Rung, together: Rung | None) -> str:
    """What the compiler alone has brought, and what it has brought with the changes that need it."""
    own = units.ratio(compiled.found.ratio("compiled").value)
    team = units.ratio(together.found.ratio("together").value) if together and together.kept else ""
    if compiled.kept and team:
        return t("The compiler's own part of that: {ratio} times; with the changes that need it, another {team} times. "
                 "The rest came from changes that no compiler makes.", ratio=own, team=team)  # fmt: skip
    if compiled.kept:
        return t("The compiler's own part of that: {ratio} times. The rest came from changes that no compiler makes.",
                 ratio=own)  # fmt: skip
    if team:
        return t("Alone, nothing showed that the compiler makes a step faster ({ratio} times). Together with the "
                 "changes that need it: {team} times.", ratio=own, team=team)  # fmt: skip
    return t("The compiler has no part in that: nothing showed that it makes a step faster ({ratio} times), so it was "
             "dropped.", ratio=own)  # fmt: skip


TIE = 0.01  # losses this close count as the same: rounding, in fp32 and more in bf16, moves them about


def _time(value_s: float) -> str:
    return t("never") if value_s == float("inf") else units.seconds(value_s)


def _money(naive: cost.Rental, final: cost.Rental) -> str:
    saved = final.saved_against(naive)
    amounts = {"naive": f"{naive.money:,.2f}", "final": f"{final.money:,.2f}", "currency": naive.currency,
               "saved": f"{abs(saved):,.2f}"}  # fmt: skip
    if saved > 0:
        return t('"Time and money are saved": the training costs {naive} {currency} the first way and {final} '
                 "{currency} the last: {saved} {currency} saved, at the rate you typed.", **amounts)  # fmt: skip
    return t('"Time and money are saved": not in this training. It costs {naive} {currency} the first way and {final} '
             "{currency} the last, compiling included, at the rate you typed.", **amounts)  # fmt: skip
