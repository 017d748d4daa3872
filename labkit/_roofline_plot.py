"""The roofline picture: FLOP/s against FLOPs per byte, both logarithmic, with the measured roof."""

from __future__ import annotations

from collections.abc import Sequence

from labkit._figure import LabFigure
from labkit.language import t
from labkit.units import flop_rate, significant

_ROOF = "#1f2328"
_POINTS = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#56b4e9", "v"), ("#555555", "P"))
_DASHES = ("-", "--", ":")


def draw_roofline(calls: Sequence) -> LabFigure:
    """One point a call (a `labkit.ceilings.Roofline`), under the roof that was measured last.

    A dotted line leads from a memory-bound call to where it would stand if it moved only its compulsory bytes.
    """

    def draw(figure: LabFigure) -> None:
        axes = figure.subplots()
        top = max((call.peaks for call in calls), key=lambda peaks: peaks.utc)  # the last measured
        points = [(max(call.intensity, 1e-3), max(call.flops_per_s, 1.0)) for call in calls]
        low = min(0.02, *(x / 3 for x, _ in points))
        high = max(1000.0, *(x * 3 for x, _ in points))
        for dash, (dtype, rate) in zip(_DASHES, top.flops_per_s.items(), strict=False):
            ridge = rate / top.copy_bytes_per_s
            axes.plot([low, ridge, high], [low * top.copy_bytes_per_s, rate, rate], dash, color=_ROOF, linewidth=1.4)
            axes.annotate(dtype, (high, rate), (-2, 3), textcoords="offset points", ha="right", fontsize=8.5)
        said = []
        for (colour, marker), call, (x, y) in zip(_POINTS * len(calls), calls, points, strict=False):
            axes.plot([x], [y], marker, color=colour, markersize=8, label=call.name)
            if call.regime == "memory-bound" and not call.is_compiled:
                fused = max(call.flops / max(1, call.compulsory_bytes), x)
                roof = min(fused * top.copy_bytes_per_s, top.flops_per_s["float32"])
                axes.plot([x, fused], [y, max(y, min(y * fused / x, roof))], ":", color=colour, linewidth=1.4)
            said.append(f"{call.name}: {significant(x, 2)} FLOP/B, {flop_rate(y)}, {call.regime}")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(low, high)
        axes.set_ylim(min(low * top.copy_bytes_per_s, *(y / 3 for _, y in points)), 3 * max(top.flops_per_s.values()))
        axes.xaxis.set_major_formatter(lambda value, _position: f"{value:g}")
        axes.yaxis.set_major_formatter(lambda value, _position: flop_rate(value, 2))
        axes.minorticks_off()
        axes.set_xlabel(t("FLOPs per byte moved"))
        axes.set_ylabel(t("FLOPs a second"))
        axes.legend(loc="lower right", fontsize=8.5)
        figure.alt = t("Roofline of this machine. {rows}", rows="; ".join(said))

    return LabFigure(draw, figsize=(6.4, 3.8))
