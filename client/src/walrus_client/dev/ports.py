"""Free ports for a cluster: chosen once, kept for its restarts."""

# ruff: noqa: N818 - as in `errors`, a name says what is the matter

import errno
import hashlib
import itertools
import os
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
PORTS_PER_NODE = 10  # so that the number of a port tells its node: base + 10 * (node - 1) + what it is for
PORTS_VARIABLE = "WALRUS_DEV_PORTS"
_FIRST, _PAST = 20_000, 32_000


class NoFreePorts(Exception):
    """No block of free ports was found."""


def choose_base(directory: Path, node_count: int) -> int:
    """Return the first port of a block in which all are free now.

    The search begins at a place that depends on the directory, so that clusters in different places seldom try the
    same ports, and stays below the ports that the system gives to outgoing connections. `WALRUS_DEV_PORTS` names
    another range: commands that start clusters at the same time each need their own, since a port is taken only when
    its node starts. Raises NoFreePorts.
    """
    block = PORTS_PER_NODE * node_count
    first, past = _ports()
    if past - block < first:
        raise NoFreePorts(f"{block} ports are wanted, and there are {past - first} from {first} on: see --base-port")
    candidates = range(first, past - block + 1, block)
    digest = hashlib.sha256(str(directory.resolve()).encode()).digest()
    start = int.from_bytes(digest[:4], "big") % len(candidates)
    for base in itertools.chain(candidates[start:], candidates[:start]):
        if all(is_free(port) for port in range(base, base + block)):
            return base
    raise NoFreePorts(f"no {block} free ports in a row between {first} and {past}")


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # The probe binds like servers do: connections of an earlier one that are still winding down are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as failure:
            if failure.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def _ports() -> tuple[int, int]:
    """The first port of the range and the one past its end."""
    if PORTS_VARIABLE not in os.environ:
        return _FIRST, min(_PAST, _first_ephemeral())
    told = os.environ[PORTS_VARIABLE]
    first, dash, last = told.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) < 1 << 16):
        raise NoFreePorts(f"{PORTS_VARIABLE} is {told!r}: expected a first and a last port, like 20000-25999")
    return int(first), int(last) + 1


def _first_ephemeral() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
