"""Connections to brokers that are asked again and again: to make one costs five times as much as to ask a question."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from walrus_client import errors
from walrus_client.admin import AdminClient

from walrus_operator.clock import Monotonic

T = TypeVar("T")

KEPT_S = 90.0
"""How long a connection is kept that nobody uses: its broker may be gone for good."""


@dataclass(frozen=True)
class _Idle:
    client: AdminClient
    since: float


class Connections:
    """One connection to each broker, for questions that need no secret. Of any thread."""

    def __init__(self, timeout_s: float, monotonic: Monotonic) -> None:
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._idle: dict[str, _Idle] = {}
        self._closed = False

    def ask(self, address: str, ask: Callable[[AdminClient], T]) -> T:
        """Ask over the connection that is kept, and over a new one where that fails. Raises `WalrusError`."""
        with self._lock:
            idle = self._idle.pop(address, None)
        if idle is not None:
            with suppress(errors.WalrusError):
                return self._ask(address, idle.client, ask)
        return self._ask(address, AdminClient(address, timeout=self._timeout_s), ask)

    def _ask(self, address: str, client: AdminClient, ask: Callable[[AdminClient], T]) -> T:
        try:
            told = ask(client)
        except BaseException:
            client.close()
            raise
        self._keep(address, client)
        return told

    def _keep(self, address: str, client: AdminClient) -> None:
        now = self._monotonic()
        with self._lock:
            gone = [self._idle.pop(name) for name, idle in [*self._idle.items()] if now - idle.since > KEPT_S]
            if self._closed or address in self._idle:
                gone.append(_Idle(client, now))
            else:
                self._idle[address] = _Idle(client, now)
        for idle in gone:
            idle.client.close()

    def close(self) -> None:
        """Close all of them; one that is in use is closed once it has its answer."""
        with self._lock:
            self._closed = True
            gone = list(self._idle.values())
            self._idle.clear()
        for idle in gone:
            idle.client.close()
