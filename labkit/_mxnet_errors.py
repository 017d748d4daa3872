"""From what is known of a scheduler, servers and workers to one error a learner can act on: the root cause first.

MXNet's processes never tell one another that one of them is gone: the rest wait, without a word, for as long as they
are let. So there are no echoes to tell apart, but every cause has to be found from outside.
"""

from __future__ import annotations

import errno
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
    script's lines. ``problem``: "processes" by name, "codes" (exit codes by name), "raised" (notes of those that
    failed, by name), "missing" (a name), "silent" (the scheduler's note); with several machines also "root" (the
    scheduler's address), "met" (whether it ever answered), "news" (what its machine said at the end).
    """
    raised = sorted((n for n in workers if n.kind == "raised"), key=lambda n: n.state["time"])
    exited = [n for n in workers if n.kind == "exited"]
    codes = {name: code for name, code in problem["codes"].items() if code}
    if raised:
        return _raised(raised[0], workers)
    if exited:
        return _exited(exited[0], source)
    if codes:
        name, code = next(iter(codes.items()))
        if name in problem["raised"]:
            return _failed(problem["processes"][name], problem["raised"][name])
        return _ended(problem["processes"][name], code)
    if reason == "silent":
        return _silent(problem["silent"])
    if reason == "unreachable":
        return _unreachable(problem)
    if reason == "vanished":
        return _vanished(problem["processes"][problem["missing"]])
    if reason == "left":
        text = t("The workers reached their end without ever joining the scheduler and the servers.")
        return RankError(joined([text], _create()), kind="left", role="worker")
    return RankTimeoutError(_waiting(reason, workers, seconds, source, problem))


def cannot_listen(address: str, port: int, error: OSError) -> RankError:
    """The error for an address that is not this machine's, or a port that is taken."""
    if error.errno == errno.EADDRINUSE:
        return RankError(port_taken(port), kind="launcher", role="scheduler")
    text = t("This machine cannot listen at {address}: {problem}. Give --address one of its own addresses.",
             address=address, problem=error.strerror)
    return RankError(text, kind="launcher")


def _raised(first: Notes, workers: Sequence[Notes]) -> RankError:
    same = [n for n in workers if n.kind == "raised" and same_failure(n, first)]
    cause, line = same[0], line_of(same[0])  # equal errors count as simultaneous: the lowest number is named
    message = cause.state["message"].strip()
    error = f"{cause.state['type']}: {short(message)}" if message else cause.state["type"]
    if len(same) == len(workers) > 1:
        text = t("Every worker failed at line {line}: {error}", line=line, error=error)
    else:
        text = t("{label} failed at line {line}: {error}", label=cause.label, line=line, error=error)
    lines = [text, "", f"    {cause.frames[-1][2]}" if cause.frames else ""]
    for outer, _, code in reversed(cause.frames[:-1]):
        lines.append("    " + t("called from line {line}: {text}", line=outer, text=code))
    text = joined(lines, hint_for(cause.state["type"], message), _all_stopped())
    return RankError(text, rank=cause.index, line=line, kind="raised", role="worker")


def _exited(cause: Notes, source: Sequence[str]) -> RankError:
    line, code = line_of(cause), cause.state.get("message") or cause.code
    text = t("{label} gave up at line {line}: exit code {code}", label=cause.label, line=line, code=code)
    text = joined([text, "", "    " + text_of(source, line)], _all_stopped())
    return RankError(text, rank=cause.index, line=line, kind="exited", role="worker")


def _ended(process: Process, code: int) -> RankError:
    """A process ended by a signal or with an exit code, without a Python error of the script."""
    if code < 0:
        word = signal.Signals(-code).name
        text = t("{label} was ended by the signal {signal}.", label=process.title, signal=word)
        hint = hint_for(word, "")
    else:
        text = t("{label} ended with exit code {code} and said nothing more.", label=process.title, code=code)
        hint = t("print(lab.launch.log()) shows what it printed.")
    kind = "crashed" if code < 0 else "exited"
    return RankError(joined([text], hint, _all_stopped()), rank=process.index, kind=kind, role=process.role)


def _failed(process: Process, note: Mapping) -> RankError:
    """A server or the scheduler failed in Python, most likely with what a worker sent it."""
    error = f"{note['type']}: {short(note['message'])}"
    advice = t("An optimizer of your own travels to the servers by its name. Write its class to a file with %%writefile"
               " and import it in the script, so that the servers can import it too.")
    hint = advice if "get attribute" in error or "No module" in error else t(
        "print(lab.launch.log()) shows what it printed.")
    text = t("{label} failed: {error}", label=process.title, error=error)
    return RankError(joined([text], hint, _all_stopped()), rank=process.index, kind="raised", role=process.role)


def _vanished(process: Process) -> RankError:
    text = t("{label} ended in the middle of its script without a word (os._exit).", label=process.title)
    return RankError(joined([text], _all_stopped()), rank=process.index, kind="lost", role=process.role)


def _silent(note: Mapping) -> RankError:
    lines = []
    for role, rank in note["nodes"]:
        named = {"role": Process(role, rank).title, "rank": rank, "seconds": note["seconds"]}
        lines.append(t("{role} (kv.rank {rank}) has sent no sign of life for {seconds} s: its process or its machine is"
                       " dead, or the network between the machines is.", **named))
    role, rank = note["nodes"][0]
    return RankError(joined(lines, _all_stopped()), rank=rank, kind="lost", role=role)


def _unreachable(problem: Mapping) -> RankError:
    if problem["news"]:
        text = t("The scheduler's machine has ended the run. It says:")
        return RankError(joined([text, "", problem["news"]]), kind="lost")
    text = t("The scheduler at {address} no longer answers: it has ended, its machine is down, or the network is.",
             address=problem["root"])
    return RankError(joined([text], _all_stopped()), kind="lost", role="scheduler")


def _waiting(reason: str, workers: Sequence[Notes], seconds: float, source: Sequence[str], problem: Mapping) -> str:
    if reason == "stalled":
        first = t("The workers wait for one another and would do so forever.")
    else:
        first = t("Time is up: the workers had not finished after {seconds:g} s and were stopped.", seconds=seconds)
    waits = [n for n in workers if n.where.get("waits") and n.kind != "finished"]
    if not problem.get("met", True):
        advice = t("Nobody answers at {address}. Run the same command with the scheduler in --here on that machine, and"
                   " see that its firewall lets this port through.", address=problem["root"])
    elif any(n.where.get("call") == "create" for n in waits):
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
