"""A limit for a whole call over HTTP.

Time-outs of sockets count from byte to byte, and an answer that drips outlives them.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class _Call:
    """A call of one thread, whose time another thread ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._over = False

    def begin(self, connection: HTTPConnection) -> None:
        """The request is about to be sent over this connection. Raises `TimeoutError` where its time is over."""
        with self._lock:
            if self._over:
                raise TimeoutError("the time of the call was over before it was sent")
            self._connection = connection

    def sent(self, by: socket.socket | None) -> None:
        """The request is sent; a connection that serves no other one forgets its socket before the answer is read."""
        with self._lock:
            self._socket = by

    def end(self) -> None:
        """The call has ended: its connection may serve another one."""
        with self._lock:
            self._connection = self._socket = None

    def cut(self) -> None:
        """The time is over: nothing is sent or received any more."""
        with self._lock:
            self._over = True
            used = self._socket or (self._connection.sock if self._connection is not None else None)
            if used is not None:
                with suppress(OSError):
                    # Not the method of a TLS socket, which also takes its state away under the thread that reads.
                    socket.socket.shutdown(used, socket.SHUT_RDWR)


class _Calls(threading.local):
    """The call that a thread makes."""

    current: _Call | None = None


_calls = _Calls()


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """What is asked inside, over pools of `pools`, ends within so many seconds; cut short, it raises urllib3's errors.

    To connect takes as long as its own time-out allows, but then nothing is sent.
    """
    call = _Call()
    timer = threading.Timer(seconds, call.cut)
    timer.daemon = True
    timer.start()
    _calls.current = call
    try:
        yield
    finally:
        _calls.current = None
        call.end()
        timer.cancel()


class _Plain(HTTPConnection):
    def request(self, *arguments: Any, **options: Any) -> None:
        call = _calls.current
        if call is not None:
            call.begin(self)
        super().request(*arguments, **options)
        if call is not None:
            call.sent(self.sock)


class _Secure(_Plain, HTTPSConnection):
    pass


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


def pools() -> dict[str, type[HTTPConnectionPool]]:
    """Pools of connections that keep to `deadline`, by scheme."""
    return {"http": _PlainPool, "https": _SecurePool}
