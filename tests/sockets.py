"""On which addresses a process has TCP sockets, from Linux's own tables: /proc/PID/fd and /proc/PID/net/tcp."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
from pathlib import Path

_LISTENS = "0A"


def addresses(pid: int, *, listening: bool = False) -> set[str]:
    """The local addresses of its TCP sockets, or of those alone that listen; IPv4 in IPv6 is shown as IPv4."""
    own, found = set(), set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            own.add(os.readlink(descriptor))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if f"socket:[{words[9]}]" in own and (not listening or words[3] == _LISTENS):
                found.add(_address(words[1].partition(":")[0]))
    return found


def _address(words: str) -> str:
    """"0100007F" -> "127.0.0.1": words of four bytes, each in this machine's order."""
    parts = [bytes.fromhex(words[at : at + 8]) for at in range(0, len(words), 8)]
    packed = b"".join(part[::-1] if sys.byteorder == "little" else part for part in parts)
    address = ipaddress.ip_address(packed)
    return str(getattr(address, "ipv4_mapped", None) or address)
