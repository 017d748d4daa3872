"""Show an Advice: a table, the recommendation, and the lines of code that repeat it."""

from __future__ import annotations

import html
import math

from labkit.language import t
from labkit.units import ratio, seconds, size


def _status(row) -> str:
    if row.name == "eager":
        return t("baseline")
    if row.status == "measured":
        return {
            "faster": t("faster"), "slower": t("slower"), "same": t("no difference worth naming"),
            "undecided": t("not sure yet"),
        }[row.verdict]  # fmt: skip
    return {"wrong": t("other results: refused"), "failed": t("failed"), "not tried": t("not tried")}[row.status]


def cells(row) -> list[str]:
    """The texts of one row, in the order of ``heads()``."""
    steps = row.break_even_steps
    return [
        row.name,
        _status(row),
        "" if row.ratio is None else f"{ratio(row.ratio.value)} ({ratio(row.ratio.low)}–{ratio(row.ratio.high)})",
        "" if row.error is None else f"{row.error:.1e}",
        "" if row.first_s is None else seconds(row.first_s),
        "" if steps is None else t("never") if math.isinf(steps) else f"{steps:,.0f}",
        "" if row.peak_bytes is None else size(row.peak_bytes),
        row.note,
    ]


def heads() -> list[str]:
    return [t("candidate"), t("verdict"), t("times as fast as eager (95 % interval)"), t("distance from eager"),
            t("first call"), t("pays from step"), t("peak memory"), t("note")]  # fmt: skip


def sentence(advice) -> str:
    """The recommendation in one sentence."""
    best = advice.best
    if best.name == "eager":
        return t("Keep eager: on this machine nothing that was tried is faster by verdict.")
    if best.break_even_steps:
        return t("Use {name}: {ratio} times as fast as eager (probably between {low} and {high}); it pays from step "
                 "{steps} on.", name=best.name, ratio=ratio(best.ratio.value), low=ratio(best.ratio.low),
                 high=ratio(best.ratio.high), steps=f"{best.break_even_steps:,.0f}")  # fmt: skip
    return t("Use {name}: {ratio} times as fast as eager (probably between {low} and {high}).", name=best.name,
             ratio=ratio(best.ratio.value), low=ratio(best.ratio.low), high=ratio(best.ratio.high))  # fmt: skip


def summary(advice) -> str:
    """What was tried, in numbers."""
    task = t("training step") if advice.is_training else t("inference")
    text = t("{task} on {device}, eager {step}: {measured} measured, {wrong} refused, {failed} failed, "
             "{skipped} not tried", task=task, device=advice.device,
             step=seconds(advice.eager_step_s), measured=advice.count("measured"),
             wrong=advice.count("wrong"), failed=advice.count("failed"), skipped=advice.count("not tried"))  # fmt: skip
    return text if advice.is_complete else text + " " + t("(interrupted)")


def as_text(advice) -> str:
    table = [heads(), *(cells(row) for row in advice.rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]) - 1)]
    lines = ["  ".join([*(text.ljust(width) for text, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
             for line in table]  # fmt: skip
    code = [advice.best.code] if advice.best.code else []
    return "\n".join([summary(advice), *lines, sentence(advice), *code])


def as_html(advice) -> str:
    best = advice.best.name
    head = "".join(f'<th scope="col" style="text-align:left">{html.escape(text)}</th>' for text in heads())
    body = ""
    for row in advice.rows:
        texts = cells(row)
        mark = "▶ " if row.name == best else ""
        weight = ";font-weight:bold" if row.name == best else ""
        body += f'<tr><th scope="row" style="text-align:left{weight}">{mark}{html.escape(texts[0])}</th>'
        body += "".join(f'<td style="text-align:left">{html.escape(text)}</td>' for text in texts[1:]) + "</tr>"
    code = f"<pre>{html.escape(advice.best.code)}</pre>" if advice.best.code else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return (f"<div><p>{html.escape(summary(advice))}</p>{table}"
            f"<p><strong>{html.escape(sentence(advice))}</strong></p>{code}</div>")  # fmt: skip
