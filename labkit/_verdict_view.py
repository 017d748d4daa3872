"""How a Comparison is shown: a sentence a candidate, plain text, and a table with bars."""

from __future__ import annotations

import html
import math

from labkit import _facts
from labkit._measurement_view import CELL, TEXT, disturbances
from labkit.language import t
from labkit.units import ratio as shown_ratio
from labkit.units import seconds


def sentence(c, name: str) -> str:
    """The verdict as one sentence; for a slower candidate the ratio is turned over."""
    r, verdict = c.ratio(name), c.verdict(name)
    if name == c.baseline:
        return t("{name} is the baseline.", name=name)
    if verdict == "slower":
        return t("{name} is slower: the same work takes {ratio} times as long (probably between {low} and {high} "
                 "times).",
                 name=name, ratio=shown_ratio(1 / r.value), low=shown_ratio(1 / r.high), high=shown_ratio(1 / r.low))
    values = {"name": name, "ratio": shown_ratio(r.value), "low": shown_ratio(r.low), "high": shown_ratio(r.high)}
    if verdict == "faster":
        return t("{name} is {ratio} times as fast as the baseline (probably between {low} and {high} times).", **values)
    if verdict == "same":
        return t("There is no difference worth mentioning between {name} and the baseline: ratio {ratio} ({low} to "
                 "{high}).",
                 **values)
    if r.low > 1:
        return t("{name} may be faster: ratio {ratio}, probably between {low} and {high}. That is not sure enough for "
                 "a verdict; measure for longer.", **values)
    if r.high < 1:
        return t("{name} may be slower: ratio {ratio}, probably between {low} and {high}. That is not sure enough for "
                 "a verdict; measure for longer.", **values)
    return t("Whether {name} is faster or slower cannot be said yet: ratio {ratio}, but anything from {low} to {high} "
             "is possible. Close other programs and measure for longer.", **values)


def label(verdict: str) -> str:
    """The verdict as one word for a table."""
    return {"faster": t("faster"), "slower": t("slower"), "same": t("same"), "undecided": t("undecided")}[verdict]


def why(c, name: str) -> str:
    """Counted facts first; then what the first call costs and when it has paid for itself."""
    parts = _facts.reasons(_facts.of(c.facts, c.baseline), _facts.of(c.facts, name))
    c.ratio(name)  # an unknown name raises
    text = t("{name}: {facts}.", name=name, facts="; ".join(parts)) if parts else t(
        "Nothing was counted for {name}. Give facts to compare: `facts={example}`.", name=name,
        example='{"' + name + '": {"bytes": ..., "kernels": ...}}')
    extra_s = c.measurements[name].first_s - c.measurements[c.baseline].first_s
    gain_s = c.medians_s[c.baseline] - c.medians_s[name]
    if c.verdict(name) == "faster" and extra_s > 10 * gain_s:
        text += " " + t("Its first call took {extra} longer; after about {calls} calls that is earned back.",
                        extra=seconds(extra_s), calls=math.ceil(extra_s / gain_s))
    return text


def notes(c) -> list[str]:
    """What to doubt about this comparison."""
    found = []
    if not c.checked:
        found.append(t("The functions return nothing, so their results could not be compared."))
    if min(m.n for m in c.measurements.values()) < 10:
        found.append(t("The budget held only {n} runs of each function; ten or more are better.",
                       n=min(m.n for m in c.measurements.values())))
    return [*found, *disturbances(sorted({note for m in c.measurements.values() for note in m.noted}))]


def as_text(c) -> str:
    rows = [[t("name"), t("median"), t("ratio"), t("interval"), t("verdict")]]
    for name in c.names:
        r = c.ratio(name)
        tail = [t("baseline")] if name == c.baseline else [label(c.verdict(name))]
        interval = "" if name == c.baseline else f"{shown_ratio(r.low)} – {shown_ratio(r.high)}"
        rows.append([name, seconds(c.medians_s[name]), shown_ratio(r.value), interval, *tail])
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, *(sentence(c, name) for name in c.names[1:]), *(f"! {note}" for note in notes(c))])


def as_html(c) -> str:
    """A table whose bars repeat what the cells say; colours follow JupyterLab's theme and work without it."""
    longest_s = max(c.medians_s.values())
    heads = (t("name"), t("median"), t("time"), t("ratio"), t("interval"), t("verdict"), t("first call"))
    head = "".join(f'<th scope="col" style="{CELL}">{html.escape(text)}</th>' for text in heads)
    body = "".join(_row(c, name, longest_s) for name in c.names)
    below = "".join(f"<p>{html.escape(text)}</p>" for text in
                    [*(sentence(c, name) for name in c.names[1:]), *(f"⚠ {note}" for note in notes(c))])
    return (f'<div style="{TEXT}"><table style="border-collapse:collapse">'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>")


_COLOURS = {"faster": "var(--jp-success-color1,#2e7d32)", "slower": "var(--jp-warn-color1,#e65100)"}


def _row(c, name: str, longest_s: float) -> str:
    r, is_baseline = c.ratio(name), name == c.baseline
    colour = _COLOURS.get(c.verdict(name), "var(--jp-ui-font-color3,#888)")
    share = 100 * c.medians_s[name] / longest_s
    bar = (f'<div role="img" aria-label="{html.escape(seconds(c.medians_s[name]))}" style="width:9em">'
           f'<div style="height:.8em;width:{share:.1f}%;min-width:1px;background:{colour}"></div></div>')
    interval = "" if is_baseline else f"{shown_ratio(r.low)} – {shown_ratio(r.high)}"
    verdict = t("baseline") if is_baseline else label(c.verdict(name))
    texts = [html.escape(name), seconds(c.medians_s[name]), bar, shown_ratio(r.value), interval, html.escape(verdict),
             seconds(c.measurements[name].first_s)]
    return "<tr>" + "".join(f'<td style="{CELL}">{text}</td>' for text in texts) + "</tr>"
