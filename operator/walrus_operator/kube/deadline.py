"""A limit for a whole call over HTTP.

Time-outs of sockets count from byte to byte, and an answer that drips outlives them.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from heapq import heappop, heappush
from math import inf
from typing import Any

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class _Call:
    """A call of one thread, whose time another thread ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self.over = threading.Event()
        self.has_ended = False

    def begin(self, connection: HTTPConnection) -> None:
        """The request is about to be sent over this connection. Raises `TimeoutError` where its time is over."""
        with self._lock:
            if self.over.is_set():
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
        self.has_ended = True

    def cut(self) -> None:
        """The time is over: nothing is sent or received any more."""
        with self._lock:
            self.over.set()
            used = self._socket or (self._connection.sock if self._connection is not None else None)
            if used is not None:
                with suppress(OSError):
                    # Not the method of a TLS socket, which also takes its state away under the thread that reads.
                    socket.socket.shutdown(used, socket.SHUT_RDWR)


class _Watch:
    """One thread that cuts the calls whose time is over. A thread for each call would cost as much as the call."""

    def __init__(self) -> None:
        self._earlier = threading.Condition()
        self._calls: list[tuple[float, int, _Call]] = []  # a heap; a call that has ended stays until it is the first
        self._numbers = itertools.count()
        self._wakes = -inf
        self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)

    def add(self, call: _Call, seconds: float) -> None:
        """Cut the call in so many seconds, unless it has ended by then."""
        at = time.monotonic() + seconds
        with self._earlier:
            if self._thread.ident is None:
                self._thread.start()
            heappush(self._calls, (at, next(self._numbers), call))
            if at < self._wakes:
                self._earlier.notify()

    def _run(self) -> None:
        while True:
            for call in self._wait():
                call.cut()

    def _wait(self) -> list[_Call]:
        """Sleep until the time of a call is over, or there is a call that ends before all others."""
        with self._earlier:
            over = self._over()
            if not over:
                self._wakes = self._calls[0][0] if self._calls else inf
                self._earlier.wait(None if self._wakes == inf else max(self._wakes - time.monotonic(), 0.0))
                self._wakes = -inf
                over = self._over()
            return over

    def _over(self) -> list[_Call]:
        """Take those out whose time is over, and those that have ended and would be next."""
        over = []
        while self._calls and (self._calls[0][2].has_ended or self._calls[0][0] <= time.monotonic()):
            _, _, call = heappop(self._calls)
            if not call.has_ended:
                over.append(call)
        return over


_watch = _Watch()


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
    _watch.add(call, seconds)
    _calls.current = call
    try:
        yield
    finally:
        _calls.current = None
        call.end()


class _Plain(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        call = _calls.current
        if call is not None:
            call.begin(self)  # its time may be over by now, and nobody could cut what was not yet connected

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
