"""The proxy passes on what it is given, in order and unchanged, or nothing at all."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

CONTENT = bytes(range(256)) * 1_000


@contextmanager
def proxied(mode: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection through a proxy; the far one is that which listens."""
    with socket.create_server(("127.0.0.1", 0)) as far, socket.create_server(("127.0.0.1", 0)) as free:
        far_port, own_port = far.getsockname()[1], free.getsockname()[1]
        free.close()
        command = [sys.executable, "-m", "chaos.proxy", mode, "1", "127.0.0.1", f"{far_port}={own_port}"]
        proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert proxy.stdout is not None
            assert proxy.stdout.readline() == "ready\n"
            with socket.create_connection(("127.0.0.1", own_port)) as near:
                yield near, far
        finally:
            proxy.communicate("")


def received(end: socket.socket) -> bytes:
    parts = []
    while part := end.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def test_what_comes_late_comes_whole() -> None:
    with proxied("late") as (near, far):
        accepted, _ = far.accept()
        with accepted:
            near.sendall(CONTENT)
            near.shutdown(socket.SHUT_WR)
            assert received(accepted) == CONTENT


def test_through_a_half_open_connection_nothing_comes() -> None:
    with proxied("half-open") as (near, far):
        near.sendall(CONTENT[:100])
        near.settimeout(0.2)
        far.settimeout(0.2)
        for wait in (lambda: near.recv(1), far.accept):
            try:
                wait()
            except TimeoutError:
                continue
            raise AssertionError("something came through")
