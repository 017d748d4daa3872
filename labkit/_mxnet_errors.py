"""From what is known of a scheduler, servers and workers to one error a learner can act on: the root cause first.

MXNet's processes never tell one another that one of them is gone: the rest wait, without a word, for as long as they
are let. So there are no echoes to tell apart, but every cause has to be found from outside.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

from labkit._launch_errors import LaunchError, RankError, RankTimeoutError
from labkit._mxnet_setup import Process
from labkit._rank_errors import Notes, joined, line_of, places, port_taken, same_failure, short, text_of
from labkit._rank_hints import hint_for
from labkit.language import t


def explain(
    reason: str, workers: Sequence[Notes], *, seconds: float, source: Sequence[str], problem: Mapping
) -> LaunchError:
    """The error for a run that did not end well.

    ``reason``: "ended", "failed", "timeout", "stalled", "left", "vanished", "silent" or "unreachable" (see
    ``_mxnet_launch``); ``workers``: those of this machine; ``seconds``: the limit that was reached; ``source``: the
    script's lines; ``problem``: "codes" (exit codes by name), "joined" (whether all processes found one another),
    "missing" (a name), "silent" (the scheduler's note), "root" (the scheduler's address), "news" (what its host said).
    """
    codes = {name: code for name, code in problem.get("codes", {}).items() if code}
    raised = sorted((n for n in workers if n.kind == "raised"), key=lambda n: n.state["time"])
    exited = [n for n in workers if n.kind == "exited"]
    if raised:
        return _raised(raised[0], workers)
    if exited:
        return _exited(exited[0], source)
    if codes:
        return _ended(*next(iter(codes.items())), problem)
    if reason == "silent":
        return _silent(problem["silent"])
    if reason == "unreachable":
        return _unreachable(problem)
    if reason == "vanished":
        return _vanished(problem["missing"])
    if reason == "left":
        return _left(workers, problem.get("joined"))
    return RankTimeoutError(_waiting(reason, workers, seconds, source, problem.get("joined")))


def taken(port: int) -> RankError:
    return RankError(port_taken(port), kind="launcher", role="scheduler")


def process_called(name: str) -> Process:
    """The process whose name this is: "server1" -> Process("server", 1)."""
    role = name.rstrip("0123456789")
    return Process(role, int(name.removeprefix(role) or 0))


def _raised(first: Notes, workers: Sequence[Notes]) -> RankError:
    same = [n for n in workers if n.kind == "raised" and same_failure(n, first)]
    cause, line = same[0], line_of(same[0])  # equal errors count as simultaneous: the lowest rank is named
    message = cause.state["message"].strip()
    error = f"{cause.state['type']}: {short(message)}" if message else cause.state["type"]
    if len(same) == len(workers) > 1:
        text = t("Every worker failed at line {line}: {error}", line=line, error=error)
    else:
        text = t("{label} failed at line {line}: {error}", label=cause.label, line=line, error=error)
    lines = [text, "", f"    {cause.frames[-1][2]}" if cause.frames else ""]
    for outer, _, code in reversed(cause.frames[:-1]):
        lines.append("    " + t("called from line {line}: {text}", line=outer, text=code))
    return RankError(
        joined(lines, hint_for(cause.state["type"], message), _all_stopped()),
        rank=cause.index, line=line, kind="raised", role="worker",
    )


def _exited(cause: Notes, source: Sequence[str]) -> RankError:
    line, code = line_of(cause), cause.state.get("message") or cause.code
    text = t("{label} gave up at line {line}: exit code {code}", label=cause.label, line=line, code=code)
    return RankError(
        joined([text, "", "    " + text_of(source, line)], _all_stopped()),
        rank=cause.index, line=line, kind="exited", role="worker",
    )


def _ended(name: str, code: int, problem: Mapping) -> RankError:
    """A process ended by a signal or with an exit code, without a Python error of the script."""
    process = process_called(name)
    if code < 0:
        word = signal.Signals(-code).name
        text = t("{label} was ended by the signal {signal}.", label=process.title, signal=word)
        hint = hint_for(word, "")
    else:
        text = t("{label} ended with exit code {code} and said nothing more.", label=process.title, code=code)
        hint = t("print(lab.launch.log()) shows what it printed.")
    return RankError(
        joined([text], hint, _all_stopped()),
        rank=process.index, kind="crashed" if code < 0 else "exited", role=process.role,
    )


def _vanished(name: str) -> RankError:
    process = process_called(name)
    text = t("{label} ended in the middle of its script without a word (os._exit).", label=process.title)
    return RankError(joined([text], _all_stopped()), rank=process.index, kind="lost", role=process.role)


def _silent(note: Mapping) -> RankError:
    dead = [process_called(name) for name in note["names"]]
    lines = [
        t("{label} has sent no sign of life for {seconds} s: its process or its machine is dead, or the network"
          " between the machines is.", label=process.title, seconds=note["seconds"])
        for process in dead
    ]  # fmt: skip
    return RankError(joined(lines, _all_stopped()), rank=dead[0].index, kind="lost", role=dead[0].role)


def _unreachable(problem: Mapping) -> RankError:
    if problem.get("news"):
        text = t("The scheduler's machine has ended the run. It says:")
        return RankError(joined([text, "", problem["news"]]), kind="lost", role="scheduler")
    text = t("The scheduler at {address} no longer answers: it has ended, its machine is down, or the network is.",
             address=problem["root"])
    return RankError(joined([text], _all_stopped()), kind="lost", role="scheduler")


def _left(workers: Sequence[Notes], has_joined: bool) -> RankError:
    if not has_joined:
        text = t("The workers reached their end without ever joining the scheduler and the servers.")
        return RankError(joined([text], _create()), kind="left", role="worker")
    text = t("The workers reached their end, but the processes did not close within {seconds:g} s.", seconds=10)
    return RankError(joined([text], t("print(lab.launch.log()) shows what was printed.")), kind="left", role="worker")


def _waiting(reason: str, workers: Sequence[Notes], seconds: float, source: Sequence[str], has_joined: bool) -> str:
    if reason == "stalled":
        first = t("The workers wait for one another and would do so forever.")
    else:
        first = t("Time is up: the workers had not finished after {seconds:g} s and were stopped.", seconds=seconds)
    waits = [n for n in workers if n.where.get("waits") and n.kind != "finished"]
    if any(n.where.get("call") == "create" for n in waits) and not has_joined:
        advice = _create()
    elif waits:
        advice = t("The likely cause: the workers have unequal numbers of batches. With dist_sync a step ends only when"
                   " every worker has pushed, so every worker must make the same number of steps: leave out the last,"
                   " uneven batch (last_batch='discard'), or stop every worker after the same number of batches. A"
                   " push under an if, or a worker that sleeps or loads data for long, has the same effect.")
    else:
        advice = t("If the work simply needs longer, allow more: --timeout {more:g}", more=2 * seconds)
    return joined([first, *places(workers, source)], advice)


def _create() -> str:
    return t('Every worker must create the kvstore: kv = mx.kv.create("dist_sync") or "dist_async". Look for a worker'
             " that does not come to that line, or for another kind of kvstore.")


def _all_stopped() -> str:
    return t("MXNet's processes do not notice when one of them is gone and would wait forever, so all of them have been"
             " stopped.")
