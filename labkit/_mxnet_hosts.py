"""A parameter server over several machines: on each, the launcher of its own processes, and how those hear of others.

Of MXNet's processes only the scheduler can tell who has fallen silent; the others wait forever. So the launcher of the
scheduler's machine ends the run, and says why to whoever asks at the scheduler's port, which is free by then. The
launchers of the other machines look there once a second: a scheduler that runs takes the connection and says nothing
that we read.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time

from labkit import _mxnet_setup
from labkit._launch_errors import BadLaunchError
from labkit._mxnet_launch import Place
from labkit._mxnet_setup import Process
from labkit.language import t

# A machine counts as dead after so many seconds of silence, whole ones for ps-lite.
_BEAT_S, _SILENT_S = 1, 5
_ASK_S = 1.0  # between questions to the scheduler's machine
_GONE_S = 5.0  # without an answer from it
_TOLD_S = 4.0  # for which the others are told why
_MARK = b"labkit "  # what ZeroMQ says first begins with 0xff
SIGNS = {"PS_HEARTBEAT_INTERVAL": str(_BEAT_S), "PS_HEARTBEAT_TIMEOUT": str(_SILENT_S)}


def place(workers: int, servers: int, *, port: int = 0, here: str = "", root: str = "", address: str = "") -> Place:
    """The place of a run's processes: all on this machine's loopback, the scheduler at ``port``; or those ``here``
    ("scheduler,server,worker,worker") of a run whose scheduler is at ``root`` ("10.0.0.1:9091"), on the machine whose
    own ``address`` this is. Raises BadLaunchError."""
    _mxnet_setup.check_numbers(workers, servers, all_here=not here)
    if not (here or root or address):
        return Place(_mxnet_setup.processes(workers, servers), root=(_mxnet_setup.LOOPBACK, port))
    roles = sorted((word.strip() for word in here.split(",")), key=lambda role: role != "scheduler")
    host, _, number = root.rpartition(":")
    known = set(roles) <= {"scheduler", "server", "worker"} and roles.count("scheduler") <= 1
    if not (known and host and number.isdecimal() and address):
        raise BadLaunchError(
            t("On several machines, say which processes this one runs and where the scheduler is, for example:"
              " --here server,worker --root 10.0.0.1:9091 --address 10.0.0.2")
        )
    processes = [Process(role, roles[:at].count(role), address) for at, role in enumerate(roles)]
    where = (host, int(number))
    if roles[0] == "scheduler":
        return Place(processes, address, where, SIGNS, at_failure=lambda text: tell(where, text))
    watcher = Watcher(where)
    return Place(processes, address, where, SIGNS, watcher.reason, watcher.knows)


class Watcher:
    """Asks at the scheduler's port whether it is still there, and hears why when it is not."""

    def __init__(self, root: tuple[str, int], *, clock=time.monotonic):
        self._root, self._clock = root, clock
        self.met, self.news, self._answered = False, "", None
        threading.Thread(target=self._keep_asking, daemon=True).start()

    def reason(self) -> str | None:
        gone = self.met and self._clock() - self._answered > _GONE_S
        return "unreachable" if self.news or gone else None

    def knows(self) -> dict:
        return {"root": "{}:{}".format(*self._root), "met": self.met, "news": self.news}

    def _keep_asking(self) -> None:
        while not self.news:
            with contextlib.suppress(OSError):
                self.news = asked(self._root)
                self.met, self._answered = True, self._clock()
            time.sleep(_ASK_S)


def asked(root: tuple[str, int]) -> str:
    """What the scheduler's launcher has to say; "" while the scheduler runs. Raises OSError when nobody is there."""
    said = b""
    with socket.create_connection(root, timeout=2 * _ASK_S) as line, contextlib.suppress(TimeoutError):
        line.settimeout(0.5)
        while chunk := line.recv(65536):
            said += chunk
            if not said.startswith(_MARK[: len(said)]):
                return ""
    return json.loads(said.removeprefix(_MARK)) if said.startswith(_MARK) else ""


def tell(root: tuple[str, int], news: str, *, seconds: float = _TOLD_S) -> None:
    """Answer whoever asks at ``root`` with ``news``, for some seconds."""
    until = time.monotonic() + seconds
    with contextlib.suppress(OSError), socket.create_server(root) as board:
        while (left := until - time.monotonic()) > 0:
            board.settimeout(left)
            with contextlib.suppress(OSError):
                asking, _ = board.accept()
                with asking:
                    asking.sendall(_MARK + json.dumps(news).encode())
