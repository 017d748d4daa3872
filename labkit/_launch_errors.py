"""The errors of launching, which show themselves in a notebook as a few lines instead of a traceback."""

from __future__ import annotations


class LaunchError(RuntimeError):
    """A launch that went wrong. ``results``: one dict a rank, what came back before; ``log``: all that was printed."""

    def __init__(self, text: str):
        super().__init__(text)
        self.results: list[dict] = []
        self.log = ""

    def _render_traceback_(self) -> list[str]:  # IPython's hook: how the cell shows this error
        return str(self).splitlines()


class BadLaunchError(LaunchError, ValueError):
    """Nothing was started: the request itself makes no sense."""


class RankError(LaunchError):
    """A rank failed. ``rank``: which one; ``line``: of the script, where known; ``kind``: what happened, one word of
    raised, exited, crashed, left, lost, launcher; ``role``: "worker", "server" or "scheduler" under MXNet."""

    def __init__(
        self,
        text: str,
        *,
        rank: int | None = None,
        line: int | None = None,
        kind: str = "raised",
        role: str | None = None,
    ):
        super().__init__(text)
        self.rank, self.line, self.kind, self.role = rank, line, kind, role


class RankTimeoutError(LaunchError, TimeoutError):
    """The ranks did not end: the time is up, or every one of them waits for another."""
