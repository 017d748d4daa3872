"""A notebook's kernel that is reached through Unix sockets: nobody else can listen, and no port can clash."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

LONGEST = 100  # bytes: Unix takes 103 (macOS) or 107 (Linux), and a number is added for each socket


@contextlib.contextmanager
def unix_sockets(client) -> Iterator[None]:
    """While it lasts, a kernel that ``client`` (of nbclient) starts has Unix sockets.

    Over TCP ipykernel 7 warns that nothing is encrypted. TCP on loopback stays where there are no such sockets, as on
    Windows, or the folder for temporary files lies too deep. The path is absolute because the kernel runs in another
    folder than this process.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-") as folder:
        path = os.path.join(os.path.abspath(folder), "kernel")
        if os.name == "posix" and len(os.fsencode(path)) < LONGEST:
            manager = client.create_kernel_manager()
            manager.transport, manager.ip = "ipc", path
        yield
