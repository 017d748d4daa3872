"""What keeps a stranger's code to itself on Linux: limits, its own network, processes and files, no rights.

Contained where the system allows (``Contained`` says what was): network, processes (they see and signal only each
other, and all end together), writing outside the working folder, reading homes and the course folder, processor time,
memory of each process, size of each file, number of processes. Not contained: the memory of many processes together,
the number of small files, flaws of the operating system's kernel, and the GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import site
import socket
import struct
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

_NEWUSER, _NEWPID, _NEWNET, _NEWIPC = 0x10000000, 0x20000000, 0x40000000, 0x08000000
_PDEATHSIG, _KEEP_CAPS, _NO_NEW_PRIVS, _AMBIENT, _RAISE, _READ_ALL = 1, 8, 38, 47, 2, 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every processor
# Landlock's rights on files, by the version of its interface that knows them.
_READ, _WRITE = 0b1101, 0b10010 | 0x1FF0  # execute, read a file, list a folder; all that changes something
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_TCP, _SCOPES = 0b11, 0b11


@dataclass
class Contained:
    """What holds for one run; every field is False where the system does not offer it."""

    network: bool = False
    processes: bool = False
    files: bool = False
    unprivileged: bool = False


@dataclass(frozen=True)
class Limits:
    """Of one exercise. ``memory_bytes`` is for each process, ``file_bytes`` for each file."""

    seconds: float = 60.0
    memory_bytes: int = 4 << 30
    file_bytes: int = 256 << 20
    processes: int = 200


def become_nobody(uid: int) -> None:
    """Give up root for good. Raises OSError where that is not possible.

    One right stays, to read what root may read: Python itself may be installed in root's own folder. Landlock then says
    which folders that are, so without Landlock this raises too.
    """
    if _libc().syscall(_CREATE_RULESET, None, 0, 1) < 1:
        raise OSError("no Landlock")
    _libc().prctl(_KEEP_CAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    _rights(1 << _READ_ALL)
    _libc().prctl(_AMBIENT, _RAISE, _READ_ALL, 0, 0)


def die_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        _libc().prctl(_PDEATHSIG, 9, 0, 0, 0)


def leave(contained: Contained, nobody: int) -> None:
    """Enter own network, process and IPC namespaces; the next fork is process 1 of the new one. Root becomes nobody."""
    uid, gid = os.getuid(), os.getgid()
    apart = _NEWPID | _NEWNET | _NEWIPC | (0 if uid == 0 else _NEWUSER)
    with contextlib.suppress(OSError, AttributeError):
        if not _libc().unshare(apart):
            if apart & _NEWUSER:
                Path("/proc/self/setgroups").write_text("deny")
                Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
                Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
            contained.network = contained.processes = True
            _loopback_up()
    if uid == 0 and nobody:
        with contextlib.suppress(OSError):
            become_nobody(nobody)


def close_in(
    folder: Path, limits: Limits, contained: Contained, *, was_root: bool, hide_data: bool = False
) -> None:
    """The last step, in the process that will run the code: limits, no rights, files of ``folder`` only.

    ``hide_data``: the clone's data files cannot be read either.
    """
    import resource  # absent on Windows, where the rest of the classroom works

    for what, most in (
        (resource.RLIMIT_CORE, 0), (resource.RLIMIT_CPU, int(2 * limits.seconds) + 5),
        (resource.RLIMIT_DATA, limits.memory_bytes), (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, 1024), (resource.RLIMIT_NPROC, _running() + limits.processes),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(what, (most, most))
    if sys.platform == "linux":
        _libc().prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
        if not was_root:
            _rights(0)  # those over the new namespaces
        contained.files = _landlock(folder, hide_data=hide_data)
    contained.unprivileged = os.getuid() != 0


def _running() -> int:
    """Processes and threads of this user: the system's limit counts those of the whole desktop too."""
    count = 0
    for entry in os.scandir("/proc") if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{entry.name}/task"))
    return count


def described(contained: Contained) -> dict[str, bool]:
    return asdict(contained)


def _libc():
    return ctypes.CDLL(None, use_errno=True)


def _rights(mask: int) -> None:
    """Keep these of the kernel's capabilities, no others."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _libc().capset(header, (ctypes.c_uint32 * 6)(mask, mask, mask, 0, 0, 0))


def _loopback_up() -> None:
    """Ranks of one exercise talk over 127.0.0.1, also where there is no other network."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket, contextlib.suppress(OSError):
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH14x", b"lo", 1))


def _landlock(folder: Path, *, hide_data: bool) -> bool:
    """Allow writing in ``folder`` alone, reading in it and in what Python, labkit and the system are made of."""
    version = _libc().syscall(_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    writing = _WRITE | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    handled = struct.pack("QQQ", _READ | writing, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    rules = _libc().syscall(_CREATE_RULESET, handled, size, 0)
    if rules < 0:
        return False
    for path in _readable(hide_data=hide_data):
        _allow(rules, path, _READ)
    for path in ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"):
        _allow(rules, path, 0b110)
    for path in (folder, "/dev/shm", *Path("/dev").glob("nvidia*")):
        _allow(rules, path, _READ | writing)
    done = _libc().syscall(_RESTRICT_SELF, rules, 0)
    os.close(rules)
    return done == 0


def _allow(rules: int, path, rights: int) -> None:
    with contextlib.suppress(OSError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(path):
                rights &= 0b111 | _TRUNCATE  # a file can be run, written and read; the rest is about folders
            _libc().syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", rights, place), 0)
        finally:
            os.close(place)


def _readable(*, hide_data: bool) -> list[str]:
    """No home, no course, not the lessons' sources (they hold the solutions)."""
    import labkit

    package = Path(labkit.__file__).resolve().parent
    ours = [package, sys.prefix, sys.base_prefix, *site.getsitepackages(),
            *([] if hide_data else [package.parent / "data"])]
    system = ["/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys", "/nix", "/snap"]
    return [str(path) for path in [*ours, *system] if os.path.exists(path)]
