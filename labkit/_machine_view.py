"""How ``lab.machine()`` looks: two tables in a notebook, two lists in a terminal."""

from __future__ import annotations

import html

from labkit.language import t

# A sign beside the colour, for readers who do not see colours.
_SIGNS = {
    **dict.fromkeys(("good", "fully"), "✓"),
    **dict.fromkeys(("partly", "smaller"), "△"),
    **dict.fromkeys(("missing", "needs"), "✗"),
    "unknown": "?",
    "plain": " ",
}
_COLOURS = {"✓": "var(--jp-success-color1,#2e7d32)", "✗": "var(--jp-error-color1,#c62828)"}


def as_text(machine) -> str:
    """Plain text, one line a row; a repair stands below its row."""
    lines = []
    for row in machine.rows:
        lines.append(f"{_SIGNS[row.state]} {row.label}: {row.text}")
        lines += [f"      -> {row.repair}"] if row.repair else []
    lines += ["", t("Lessons on this machine:")] if machine.lessons else []
    for lesson in machine.lessons:
        lines.append(f"{_SIGNS[lesson.state]} {lesson.number} {lesson.title}: {lesson.text}")
        lines += [f"      -> {repair}" for repair in lesson.repairs]
    return "\n".join(lines)


def as_html(machine) -> str:
    """Tables that follow JupyterLab's theme; commands in ``code``, ready to be copied."""
    rows = "".join(_html_row(r.state, r.label, r.text, [r.repair] if r.repair else []) for r in machine.rows)
    named = [(lesson, f"{lesson.number} {lesson.title}") for lesson in machine.lessons]
    lessons = "".join(_html_row(lesson.state, name, lesson.text, lesson.repairs) for lesson, name in named)
    heads = (t("What"), t("What was found"), t("What to type"))
    tables = _table(t("This machine"), heads, rows)
    if lessons:
        tables += _table(t("Lessons on this machine"), (t("Lesson"), t("How it runs"), t("What to type")), lessons)
    return f'<div style="color:var(--jp-content-font-color1,inherit)">{tables}</div>'


def _table(caption: str, heads, body: str) -> str:
    cell = "text-align:left;padding:.2em .8em"
    head = "".join(f'<th scope="col" style="{cell}">{html.escape(text)}</th>' for text in ("", *heads))
    return (
        f'<table style="border-collapse:collapse;margin-bottom:1em"><caption style="text-align:left;font-weight:bold">'
        f"{html.escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _html_row(state: str, label: str, text: str, repairs) -> str:
    cell = "text-align:left;vertical-align:top;padding:.2em .8em"
    sign = f'<td style="{cell};color:{_COLOURS.get(_SIGNS[state], "inherit")}">{_SIGNS[state]}</td>'
    commands = "<br>".join(f"<code>{html.escape(repair)}</code>" for repair in repairs)
    return (
        f'<tr>{sign}<th scope="row" style="{cell}">{html.escape(label)}</th>'
        f'<td style="{cell}">{html.escape(text)}</td><td style="{cell}">{commands}</td></tr>'
    )
