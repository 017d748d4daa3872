"""How a Measurement is shown: one line of text, a small HTML table, and its warnings."""

from __future__ import annotations

import html

from labkit import _statistics
from labkit.language import t
from labkit.units import seconds, significant

# The theme's text colour in JupyterLab, the page's own elsewhere.
TEXT = "color:var(--jp-content-font-color1,inherit)"
CELL = f"padding:.25em .75em;text-align:left;{TEXT}"


def as_text(m) -> str:
    line = t("{name}: {median} (IQR {iqr}, {n} runs of {calls} calls, first call {first})", name=m.name,
             median=seconds(m.median_s), iqr=seconds(m.iqr_s), n=m.n, calls=m.calls, first=seconds(m.first_s))
    return "\n".join([line, *(f"! {warning}" for warning in warnings(m))])


def warnings(m) -> tuple[str, ...]:
    found = []
    percent = significant(100 * m.spread, 2)
    if m.spread > _statistics.VERY_NOISY:
        found.append(t("The middle half of the runs spreads over {percent}% of the median: something else uses this "
                       "machine, and the number is not to be trusted. Close other programs and measure again.",
                       percent=percent))
    elif m.is_noisy:
        found.append(t("The middle half of the runs spreads over {percent}% of the median. Small differences cannot "
                       "be seen here; measure again with a larger `budget_s`.", percent=percent))
    if m.stopped == "budget" and m.n < 10:
        found.append(t("The time budget ended after {n} runs; ten or more are better. Allow more: `budget_s={needed}`.",
                       n=m.n, needed=f"{12 * m.median_s * m.calls:.2g}"))
    elif m.stopped == "budget":
        found.append(t("The time budget ended before the spread was small enough."))
    if m.slowdown > 1:
        found.append(slower_and_slower(m.slowdown, on_battery="battery" in m.noted))
    return (*found, *disturbances(m.noted))


def slower_and_slower(ratio: float, *, on_battery: bool) -> str:
    """What it means when the last runs take longer than the first."""
    text = t("The last runs took {ratio} times as long as the first: the processor gets slower while it works, as it "
             "does when it is hot or saves power.", ratio=f"{ratio:.1f}")  # fmt: skip
    if on_battery:
        return text + " " + t("This machine runs on its battery: plug it in, then measure again.")
    return text + " " + t("Let it cool, or choose full power in its settings, then measure again. A comparison by "
                          "`lab.compare` takes turns, so this hits both sides alike.")  # fmt: skip


def disturbances(noted) -> list[str]:
    """Sentences for what `labkit._stopwatch.noted` found."""
    found = []
    if "beside" in noted:
        found.append(t("Another notebook measured on this machine at the same time, and this one has waited in vain. "
                       "Let the other one finish, or shut its kernel down, then measure again."))  # fmt: skip
    if "clock" in noted:
        found.append(t("One run took far longer than all the others: the machine slept, its clock jumped, or the "
                       "function did something else once, such as compiling. The median does not feel it."))
    return found


def as_html(m) -> str:
    rows = [
        (t("Median of a call"), seconds(m.median_s)),
        (t("Spread (IQR)"), f"{seconds(m.iqr_s)} ({significant(100 * m.spread, 2)}%)"),
        (t("Runs × calls"), f"{m.n} × {m.calls}"),
        (t("First call"), seconds(m.first_s)),
    ]
    if m.device_median_s is not None:
        rows.append((t("On the GPU alone"), seconds(m.device_median_s)))
    rows.append((t("Device, threads, cache"), f"{m.device}, {m.threads}, {m.cache}"))
    cells = "".join(f'<tr><th scope="row" style="{CELL}">{html.escape(label)}</th>'
                    f'<td style="{CELL}">{html.escape(value)}</td></tr>' for label, value in rows)
    notes = "".join(f"<p>⚠ {html.escape(warning)}</p>" for warning in warnings(m))
    return (f'<div style="{TEXT}"><table style="border-collapse:collapse"><caption style="{CELL}">{html.escape(m.name)}'
            f"</caption>{cells}</table>{notes}</div>")
