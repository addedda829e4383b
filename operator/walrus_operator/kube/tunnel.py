"""Connections to ports of pods through the API server, as `kubectl port-forward` makes them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_CHUNK = 64 * 1024

Connect = Callable[[], socket.socket]
"""Opens one connection to the port; raises `OSError`."""


@contextmanager
def local_port(connect: Connect) -> Iterator[int]:
    """A port of this machine that leads to the pod as long as the block lasts; each connection has one of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=_accept, args=(listener, connect), daemon=True)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # or `accept` would wait on
    accepting.join()


def _accept(listener: socket.socket, connect: Connect) -> None:
    while True:
        try:
            inner, _ = listener.accept()
        except OSError:
            return
        try:
            outer = connect()
        except OSError:
            inner.close()
            continue
        for source, target in ((inner, outer), (outer, inner)):
            threading.Thread(target=_carry, args=(source, target), daemon=True).start()


def _carry(source: socket.socket, target: socket.socket) -> None:
    """What one side sends, until either has closed; then both are."""
    with suppress(OSError):
        while content := source.recv(_CHUNK):
            target.sendall(content)
    for side in (source, target):
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
        side.close()
