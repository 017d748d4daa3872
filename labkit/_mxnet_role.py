"""A scheduler or a server of MXNet's parameter server: ``python -m labkit._mxnet_role``, role and place in ``DMLC_…``.

Plain MXNet runs these roles by ``import mxnet`` alone and says nothing until they end. Here the role leaves notes in
the run's folder (see ``_run_files``):

    scheduler.state   {"kind": "silent", …} when a server or worker has sent no sign of life for too long (only where
                      ``PS_HEARTBEAT_INTERVAL`` is set)
    server0.state     {"kind": "raised", …} when it failed: MXNet itself goes on without an optimiser that it could not
                      load, and stores gradients as weights
    server0.where     {"busy": the time at which it last used the processor}
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable

from labkit import _guard, _rank, _run_files

_LOOK_S = 0.25
_SAMPLE_S = 0.5
_BUSY_CPU_S = 0.01  # of processor time within a sample
_UNNEEDED = ("scipy", "sklearn")  # MXNet imports them when they are there, for parts that these roles never use


def main() -> None:
    role, parent = os.environ.pop("DMLC_ROLE"), int(os.environ[_run_files.PARENT])
    if role == "scheduler":  # the one process that tidies up when the launcher was killed
        _guard.tidy_up_after(parent, os.environ[_run_files.FOLDER])
    else:
        _guard.end_with(parent, signal.SIGKILL)
    _rank.begin()
    sys.path[0] = os.environ[_run_files.IMPORTS]
    mx = _mxnet()
    from mxnet.kvstore.kvstore_server import KVStoreServer

    os.environ["DMLC_ROLE"] = role  # not before: importing MXNet would run the role at once
    if role == "server":
        threading.Thread(target=_note_work, daemon=True).start()
    kv, is_over = mx.kv.create("dist"), threading.Event()
    if role == "scheduler" and int(os.environ.get("PS_HEARTBEAT_INTERVAL", "0")):
        threading.Thread(target=_listen_for_life, args=(kv, is_over), daemon=True).start()
    server = KVStoreServer(kv)
    obey = server._controller()
    server._controller = lambda: _or_end(obey)
    server.run()
    is_over.set()


def _mxnet():
    from labkit import mx

    absent = [name for name in _UNNEEDED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(absent))
    try:
        return mx.load_with(())
    finally:
        for name in absent:
            del sys.modules[name]


def _or_end(obey: Callable) -> Callable:
    """What the workers order, or the end: ctypes would drop the exception, and nobody would know."""

    def order(*words):
        try:
            obey(*words)
        except Exception as error:
            _fail(error)

    return order


def _fail(error: Exception) -> None:
    traceback.print_exception(error)
    sys.stderr.flush()
    note = {"kind": "raised", "type": type(error).__name__, "message": str(error), "time": time.monotonic()}
    _run_files.write(_run_files.mine("state"), note)
    os._exit(1)


def _note_work() -> None:
    """A server that works uses the processor; one that waits for the workers does not."""
    used = -1.0
    while True:
        now = time.process_time()
        if now - used > _BUSY_CPU_S:
            try:
                _run_files.write(_run_files.mine("where"), {"busy": time.monotonic()})
            except OSError:  # the folder went away, or the disk is full: this note is not worth an error
                continue
        used = now
        time.sleep(_SAMPLE_S)


def _listen_for_life(kv, is_over: threading.Event) -> None:
    """Note the servers and workers that have been silent for ``PS_HEARTBEAT_TIMEOUT`` seconds, by their ranks."""
    from mxnet.base import _LIB

    patience_s = int(os.environ["PS_HEARTBEAT_TIMEOUT"])
    # ps-lite's numbers of its nodes: servers 8, 10, 12, …, workers 9, 11, 13, …, by rank.
    nodes = {("server", rank): 8 + 2 * rank for rank in range(int(os.environ["DMLC_NUM_SERVER"]))}
    nodes |= {("worker", rank): 9 + 2 * rank for rank in range(int(os.environ["DMLC_NUM_WORKER"]))}
    dead = ctypes.c_int()
    while not is_over.wait(_LOOK_S) and not _answers():
        continue  # there is nothing to ask before ps-lite has begun
    while not is_over.wait(_LOOK_S):
        silent = []
        for node, number in nodes.items():
            _LIB.MXKVStoreGetNumDeadNode(kv.handle, number, ctypes.byref(dead), patience_s)
            if dead.value:
                silent.append(node)
        if silent:
            note = {"kind": "silent", "nodes": silent, "seconds": patience_s}
            _run_files.write(_run_files.mine("state"), note)


def _answers() -> bool:
    """Does this scheduler listen already?"""
    root = os.environ["DMLC_PS_ROOT_URI"], int(os.environ["DMLC_PS_ROOT_PORT"])
    try:
        socket.create_connection(root, timeout=1).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        _fail(error)
