"""From the notes that ranks left to one error a learner can act on: the root cause first, in a few lines.

When one rank dies, its peers fail too, a moment later and with much longer messages ("Connection closed by peer
[127.0.0.1]:40213"). Those echoes are told apart from causes here.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from labkit._launch_errors import LaunchError, RankError, RankTimeoutError
from labkit._rank_hints import hint_for
from labkit.language import t

_ECHO_TYPES = {"DistNetworkError", "DistStoreError", "DistBackendError"}
_ECHO = re.compile(
    r"connection (closed|reset) by|broken pipe|remote process exited|connection was likely closed|failed to recv"
    r"|socket timeout|unable to send|recvValue failed|connection refused",
    re.IGNORECASE,
)
_OWN_FAULT = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
_CRASHES = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}


@dataclass
class Notes:
    """What is known of one rank after the run; ``label`` is how the reader knows it ("rank 0", "worker 1")."""

    label: str
    index: int
    state: dict = field(default_factory=dict)  # see _rank._note
    where: dict = field(default_factory=dict)  # see _rank.position
    code: int | None = None  # exit code where the launcher saw one other than 0

    @property
    def kind(self) -> str:
        return self.state.get("kind", "")

    @property
    def frames(self) -> list[list]:
        return self.state.get("frames", [])

    @property
    def echoes(self) -> bool:
        """Did it only fail because another one did?"""
        if self.kind != "raised":
            return False
        message = self.state["message"]
        return not _OWN_FAULT.search(message) and (self.state["type"] in _ECHO_TYPES or bool(_ECHO.search(message)))

    @property
    def crash(self) -> signal.Signals | None:
        """The signal that ended it, unless it had already failed by itself."""
        if self.code is None or self.code >= 0 or self.kind == "raised":
            return None
        return signal.Signals(-self.code)


def explain(
    reason: str, notes: Sequence[Notes], *, seconds: float, source: Sequence[str], problem: Mapping
) -> LaunchError:
    """The error for a run that did not end well.

    ``reason``: "ended", "timeout" or "stalled"; ``seconds``: the limit that was reached; ``source``: the script's
    lines; ``problem``: what the launcher itself noted.
    """
    if "port" in problem:
        return RankError(port_taken(problem["port"]), kind="launcher")
    if reason in ("timeout", "stalled"):
        return RankTimeoutError(_waiting(reason, notes, seconds, source))
    cause = _root(notes)
    if "signal" in problem and (cause is None or cause.echoes):
        text = t("The process that starts the ranks was ended by the signal {signal}, and they with it.",
                 signal=problem["signal"])
        return RankError(joined([text], hint_for(problem["signal"], "")), kind="launcher")
    if cause is None:
        text = t("The ranks could not be started. print(lab.launch.log()) shows what was printed.")
        return RankError(text, kind="launcher")
    if cause.crash is not None:
        return RankError(_crashed(cause), rank=cause.index, kind="crashed")
    if cause.kind == "raised" and not cause.echoes:
        return RankError(_raised(cause, notes), rank=cause.index, line=line_of(cause), kind="raised")
    if cause.kind == "finished":
        return RankError(_left(cause, notes), rank=cause.index, line=line_of(cause), kind="left")
    if cause.kind == "raised":
        return RankError(_lost(cause), rank=cause.index, line=line_of(cause), kind="lost")
    return RankError(_exited(cause, source), rank=cause.index, line=line_of(cause), kind="exited")


def _root(notes: Sequence[Notes]) -> Notes | None:
    """The rank that failed by itself, and first."""
    raised = sorted((n for n in notes if n.kind == "raised" and not n.echoes), key=lambda n: n.state["time"])
    if raised:  # equal errors count as simultaneous: name the lowest rank, whoever was faster this time
        raised = [n for n in notes if n in raised and same_failure(n, raised[0])]
    crashed = [n for n in notes if n.crash in _CRASHES]
    if raised and crashed and "Runtime" in raised[0].state["type"]:
        raised = []  # a killed peer often shows up as a RuntimeError of words we do not know
    exited = [n for n in notes if n.kind == "exited"]
    aborted = [n for n in notes if n.crash not in (None, signal.SIGTERM)]  # torchrun stops the innocent by SIGTERM
    echoes = [n for n in notes if n.echoes]
    left = [n for n in notes if n.kind == "finished"] if echoes else []
    other = [n for n in notes if n.code]
    return next(iter(raised or crashed or exited or aborted or left or echoes or other), None)


def same_failure(one: Notes, other: Notes) -> bool:
    return one.state["type"] == other.state["type"] and one.frames == other.frames


def line_of(notes: Notes) -> int | None:
    return notes.frames[-1][0] if notes.frames else None


def _raised(cause: Notes, notes: Sequence[Notes]) -> str:
    message = cause.state["message"].strip()
    error = f"{cause.state['type']}: {short(message)}" if message else cause.state["type"]
    same = [n for n in notes if n.kind == "raised" and not n.echoes and same_failure(n, cause)]
    if len(same) == len(notes) > 1:
        first = t("Every rank failed at line {line}: {error}", line=line_of(cause), error=error)
    else:
        first = t("{label} failed at line {line}: {error}", label=cause.label, line=line_of(cause), error=error)
    lines = [first, "", f"    {cause.frames[-1][2]}" if cause.frames else ""]
    for line, _, text in reversed(cause.frames[:-1]):
        lines.append("    " + t("called from line {line}: {text}", line=line, text=text))
    return joined(lines, hint_for(cause.state["type"], message), _others(len(same), len(notes)))


def _crashed(cause: Notes) -> str:
    name = cause.crash.name
    if cause.kind == "finished":
        first = t("{label} ran to its end but crashed while closing ({signal}).", label=cause.label, signal=name)
        return joined([first], t("End the script with these two lines, so that no rank leaves while another still"
                                 " talks to it: dist.barrier(); dist.destroy_process_group()"))
    first = t("{label} was ended by the signal {signal}.", label=cause.label, signal=name)
    return joined([first], hint_for(name, ""), _others(1, 2))


def _exited(cause: Notes, source: Sequence[str]) -> str:
    code = cause.state.get("message") or cause.code
    if cause.frames:
        line = line_of(cause)
        first = t("{label} gave up at line {line}: exit code {code}", label=cause.label, line=line, code=code)
        return joined([first, "", "    " + text_of(source, line)], _others(1, 2))
    first = t("{label} ended with exit code {code} and said nothing more.", label=cause.label, code=code)
    return joined([first], t("print(lab.launch.log()) shows what it printed."))


def _left(cause: Notes, notes: Sequence[Notes]) -> str:
    line = line_of(cause)
    if line:
        first = t("{label} left at line {line} while another rank still waited for it.", label=cause.label, line=line)
    else:
        first = t("{label} reached the end of its script while another rank still waited for it.", label=cause.label)
    return joined([first, *_waits(n for n in notes if n.echoes)], _same_calls())


def _lost(cause: Notes) -> str:
    first = t("{label} lost the connection to another rank at line {line}.", label=cause.label, line=line_of(cause))
    return joined([first], t("Another rank has probably ended without a word (os._exit, or killed from outside)."
                             " print(lab.launch.log()) shows what each rank printed."))


def _waiting(reason: str, notes: Sequence[Notes], seconds: float, source: Sequence[str]) -> str:
    if reason == "stalled":
        first = t("The ranks wait for one another and would do so forever.")
    else:
        first = t("Time is up: the ranks had not finished after {seconds:g} s and were stopped.", seconds=seconds)
    waits = [n for n in notes if n.where.get("waits") and n.kind != "finished"]
    if not waits:
        advice = t("If the work simply needs longer, allow more: --timeout {more:g}", more=2 * seconds)
    elif any("MASTER_PORT" in line or "MASTER_ADDR" in line for line in source):
        advice = t("Remove the lines that set MASTER_ADDR or MASTER_PORT: the launcher has already chosen them, and"
                   " nobody listens anywhere else.")
    elif any(n.where.get("call") == "init_process_group" for n in waits):
        advice = t("Every rank must call dist.init_process_group: look for an if around it, or for an early end.")
    else:
        advice = _same_calls()
    return joined([first, *places(notes, source)], advice)


def places(notes: Sequence[Notes], source: Sequence[str]) -> list[str]:
    """Where each one was when the waiting was ended, a line each."""
    lines = []
    for n in notes:
        line, call = n.where.get("line"), n.where.get("call")
        if n.kind == "finished":
            lines.append("    " + t("{label} has already reached its end", label=n.label))
        elif line and n.where.get("waits"):
            lines.append("    " + t("{label} waits at line {line} in {call}", label=n.label, line=line, call=call))
        elif line:
            lines.append("    " + t("{label} is at line {line}: {text}", label=n.label, line=line,
                                    text=text_of(source, line)))
        else:
            lines.append("    " + t("{label} had not begun", label=n.label))
    return lines


def _same_calls() -> str:
    return t("Every rank must make the same collective calls in the same order, with tensors of the same size: look for"
             " a call under an if, in a loop of unequal length, after an early return, or with an uneven last batch.")


def _waits(notes) -> list[str]:
    return ["    " + t("{label} waited at line {line}: {text}", label=n.label, line=line_of(n), text=n.frames[-1][2])
            for n in notes if n.frames]


def port_taken(port: int) -> str:
    return t("Port {port} on this machine is taken by another program. Leave out the port: a free one is then chosen"
             " for every run.", port=port)


def _others(failed: int, all_of_them: int) -> str:
    return t("The other ranks have been stopped.") if failed < all_of_them else ""


def text_of(source: Sequence[str], line: int | None) -> str:
    return source[line - 1].strip() if line and line <= len(source) else ""


def short(message: str, *, lines: int = 3, letters: int = 400) -> str:
    """The beginning of a long message, without the places in torch's own sources that it names."""
    message = re.sub(r"\[[^\[\]]*\.(?:cc|cpp|h|cu):\d+\]\s*", "", message)
    short = "\n".join(message.splitlines()[:lines])
    return short if len(short) <= letters else short[:letters] + "…"


def joined(lines: Sequence[str], *advice: str) -> str:
    return "\n".join([*lines, "", *(text for text in advice if text)]).strip()
