"""Resets TCP connections of a process of this machine, as a broken network does: both ends see it at once."""

import ctypes
import os
import socket
from collections.abc import Iterable
from pathlib import Path

_PIDFD_GETFD = 438  # Linux 5.6 and newer, on all machines
_UNSPECIFIED = bytes(16)  # an address of the family AF_UNSPEC: connecting to it aborts a connection
_libc = ctypes.CDLL(None, use_errno=True)


def reset(pids: Iterable[int], port: int) -> int:
    """Reset all connections of these processes, which are our own, to a port; return how many there were."""
    return sum(_reset(pid, port) for pid in pids)


def _reset(pid: int, port: int) -> int:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return 0
    try:
        return sum(_reset_one(process, descriptor, port) for descriptor in _sockets(pid))
    finally:
        os.close(process)


def _sockets(pid: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if str(path.readlink()).startswith("socket:"):
                found.append(int(path.name))
        except FileNotFoundError:
            continue  # it was closed meanwhile
    return found


def _reset_one(process: int, descriptor: int, port: int) -> bool:
    """Reset one socket through a descriptor of our own; `shutdown` would close it in an orderly way."""
    ours = _libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
    if ours < 0:
        return False
    try:
        return _leads_to(ours, port) and _libc.connect(ours, _UNSPECIFIED, len(_UNSPECIFIED)) == 0
    finally:
        os.close(ours)


def _leads_to(descriptor: int, port: int) -> bool:
    with socket.socket(fileno=os.dup(descriptor)) as found:
        try:
            return found.family in (socket.AF_INET, socket.AF_INET6) and found.getpeername()[1] == port
        except OSError:
            return False
