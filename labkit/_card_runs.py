"""Where a card's function runs when it is verified, and the command that verifies many cards."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
from collections.abc import Callable, Iterator

from labkit._classroom_table import harmless
from labkit._project_host import Host
from labkit.language import t

_STARTING_S = 5.0  # what walls and copying a process may add to a training


@contextlib.contextmanager
def runner(*, walls: bool, limit_s: float, memory_gb: float, as_root: bool, say: Callable[[str], None] = print
           ) -> Iterator[Callable[[dict, float], dict]]:
    """A function that runs one job (``_project_run.training``) in a fresh process, closed in or not.

    ``say`` hears once what the walls hold on this system.
    """
    if not walls:
        with Host() as host:
            yield lambda job, limit: host.run(job, min(limit, limit_s))
        return
    from labkit._classroom_grade import containment, refuse_root
    from labkit._classroom_marker import Judge
    from labkit._classroom_sandbox import Limits

    refuse_root(as_root)
    judge, said = Judge(), []

    def run(job: dict, limit: float) -> dict:
        limits = Limits(seconds=min(limit, limit_s) + _STARTING_S, memory_bytes=int(memory_gb * 2**30))
        answer = judge.train(job, limits)
        answer["timeout"] = limits.seconds if answer.get("timeout") else None
        if not said and answer.get("contained"):
            said.append(containment(answer["contained"]))
            say(said[0])
        return answer

    try:
        yield run
    finally:
        judge.close()


def verify_all(options) -> int:
    """Verify every card of a command line; a table of marks goes to ``--csv``. 0 when all were accepted."""
    from labkit import _card_marks, report_card
    from labkit._classroom_course import ClassroomError, write_text

    rows, refused = [[t("card"), t("marks"), t("of"), t("reason")]], 0
    for path in options.cards:
        print(path, flush=True)
        try:
            done = report_card.verify(
                path, walls=not options.mine, notebook=options.notebook, limit_s=options.limit_s,
                memory_gb=options.memory_gb, as_root=options.as_root, quick=options.quick, say=_say)
        except ClassroomError as error:
            print(error, file=sys.stderr)
            print(t("A card of your own needs no walls: add --mine"), file=sys.stderr)
            return 1
        except report_card.CardError as error:
            print(error)
            points, reason, accepted = 0, str(error), False
        else:
            print(done, flush=True)
            points, reason, accepted = done.points, " ".join(done.refusals), done.accepted
        refused += not accepted
        rows.append([path.stem, str(points), str(_card_marks.MOST), reason.replace("\n", " ")])
        if options.csv:  # after each card, so that nothing is lost when the command is stopped
            text = io.StringIO()
            csv.writer(text, lineterminator="\r\n").writerows([harmless(cell) for cell in row] for row in rows)
            write_text(options.csv, text.getvalue(), encoding="utf-8-sig")
    return int(refused > 0)


def _say(line: str) -> None:
    print("  " + line, flush=True)
