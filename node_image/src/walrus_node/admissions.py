"""Letting others in: answers the join requests that come to this node's Raft port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

from walrus_node.commands import RegistrationRefusedError, register
from walrus_node.metadata.admission import Admitted, encode_admitted, parse_join
from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.store import MetadataStore
from walrus_node.metadata.wire import BadFrameError

log = logging.getLogger(__name__)

Answer = Callable[[dict[str, Any]], None]


class Store(MetadataStore[ClusterState], Protocol):
    """The metadata, with the addresses of its members."""

    def address_of(self, disk: UUID) -> str | None:
        """Where a disk's Raft transport was last seen."""


class Admissions:
    """The metadata leader registers a stranger, the others name the leader."""

    def __init__(self, cluster_id: UUID) -> None:
        self._cluster_id = cluster_id
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self.store: Store | None = None

    def hear(self, greeting: dict[str, Any], answer: Answer) -> None:
        """Called by the store's thread."""
        self._loop.call_soon_threadsafe(self._start, greeting, answer)

    def _start(self, greeting: dict[str, Any], answer: Answer) -> None:
        task = self._loop.create_task(self._answer(greeting, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, greeting: dict[str, Any], answer: Answer) -> None:
        store = self.store
        if store is None:
            answer({"refused": "this node has just started"})
            return
        try:
            registration = parse_join(greeting)
        except BadFrameError as error:
            answer({"refused": str(error)})
            return
        status = store.status()
        if not status.is_leader:
            leader = store.address_of(status.leader) if status.leader else None
            answer({"leader": leader} if leader else {"refused": "no metadata leader is known now"})
            return
        known = store.read().nodes.get(registration.disk)
        try:
            # A disk that is known registers itself: a stranger must not move it.
            node_id = known.node_id if known else await register(store, registration)
        except RegistrationRefusedError as error:
            answer({"refused": str(error)})
            return
        addresses = ((disk, store.address_of(disk)) for disk in status.voters())
        peers = {disk: address for disk, address in addresses if address}
        answer(encode_admitted(Admitted(self._cluster_id, node_id, peers)))
        log.info("admitted disk %s as node %d", registration.disk, node_id)
