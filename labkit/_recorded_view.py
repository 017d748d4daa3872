"""How recorded runs are shown beside the reader's own: a table in a notebook, a few indented lines in plain text."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

from labkit._lab_controls import Choice
from labkit._lab_table import Table
from labkit._recorded import Recording, recording, recordings
from labkit._verdict_view import label
from labkit.language import t
from labkit.units import ratio

_PACKAGES = {"torch": "PyTorch", "triton": "Triton", "mxnet": "MXNet"}


@dataclass(frozen=True)
class Beside:
    """The reader's run of ``lab`` and those ``others`` that were recorded, in the language of now."""

    lab: object
    own: Recording
    others: list[Recording]

    def html(self) -> str:
        heads = [t("machine"), t("versions"), t("date"), t("controls"), t("beside this run"),
                 t("ratio (interval), verdict")]  # fmt: skip
        return Table(heads, self._rows(), caption=t("Recorded elsewhere")).html()

    def __str__(self):
        lines = [t("Recorded elsewhere")]
        for where, versions, date, controls, beside, found in self._rows():
            lines.append("  " + "; ".join(text for text in (where, versions, date) if text))
            lines += [f"    {text}" for text in (controls, beside, found) if text]
        return "\n".join(lines)

    def _rows(self) -> list[list[str]]:
        return [self._row(self.own), *map(self._row, self.others)]

    def _row(self, run: Recording) -> list[str]:
        mine = run is self.own
        where, beside = machine(run), "" if mine else self._beside(run)
        controls = "; ".join(f"{self._labels[name]}: {text}" for name, text in self._texts(run).items())
        return [t("this run: {machine}", machine=where) if mine else where, self._versions(run), run.utc[:10],
                controls, beside, self._found(run)]  # fmt: skip

    def _versions(self, run: Recording) -> str:
        names = [name for name in self.lab.packages if run.machine.get(name)]
        return "; ".join(f"{_PACKAGES[name]} {run.machine[name]}" for name in names)

    @functools.cached_property
    def _controls(self) -> dict:
        return {control.name: control for control in self.lab.controls()}

    @functools.cached_property
    def _labels(self) -> dict[str, str]:
        """Control -> what it is called; one that this lab does not have keeps its name."""
        names = {name: name for run in (self.own, *self.others) for name in run.controls}
        return names | {name: control.label for name, control in self._controls.items()}

    def _texts(self, run: Recording) -> dict[str, str]:
        """Control -> its value in words."""
        here = run is self.own
        return {name: _value(self._controls.get(name), value, here=here) for name, value in run.controls.items()}

    def _beside(self, run: Recording) -> str:
        """Whether it is the same experiment: which controls differ, and which nobody has written down."""
        own, other = self.own.controls, run.controls
        differ = [self._labels[name] for name in other if name not in own or own[name] != other[name]]
        unknown = [self._labels[name] for name in own if name not in other]
        said = [t("not the same, other values of: {controls}", controls=", ".join(differ))] if differ else []
        said += [t("not on the card: {controls}", controls=", ".join(unknown))] if unknown else []
        return "; ".join(said) or t("the same controls")

    def _found(self, run: Recording) -> str:
        texts = [f"{self.lab.named(name)} {ratio(value)} ({ratio(low)} – {ratio(high)}), {label(run.verdicts[name])}"
                 for name, (value, low, high) in run.ratios.items()]  # fmt: skip
        return "; ".join([t("baseline: {name}", name=self.lab.named(run.baseline)), *texts])


def runs(result) -> tuple[Recording, list[Recording]] | None:
    """A result of a lab, and the runs of that lab that were recorded; None where there are none."""
    lab, names = result.lab, list(result.settings)
    others = recordings(type(lab).__name__, names)
    if not others:
        return None
    card = result.card()
    own = recording(card["result"], card["controls"], names, {})
    return None if own is None else (dataclasses.replace(own, utc=result.utc), others)


def machine(run: Recording) -> str:
    """The GPU where one was measured, else the CPU; and how many processors there are."""
    name, gpus = run.machine["cpu"], run.machine.get("gpus")
    if gpus and run.device.startswith(("cuda", "gpu")):
        name = gpus[0] if len(gpus) == 1 else f"{len(gpus)} × {gpus[0]}"
    return t("{name}; processors: {cpus}", name=name, cpus=run.machine["cpus"])


def _value(control, value, *, here: bool) -> str:
    """A control's value in the lab's words. On a GPU a lab may offer sizes that it does not offer here."""
    if not isinstance(control, Choice):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if value in control.options or type(value) in {int, float} & set(map(type, control.options)):
        return (control.show if here or control.elsewhere is None else control.elsewhere)(value)
    return str(value)
