"""Letting others in: answers the join requests that come to this node's Raft port."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

from walrus_node.commands import RegistrationRefusedError, execute, register, remove_node
from walrus_node.metadata.admission import Admitted, encode_admitted, parse_join, parse_replaces
from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.quorum import may_remove
from walrus_node.metadata.store import MetadataStore, Status
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

    def hear(self, store: Store, greeting: dict[str, Any], answer: Answer) -> None:
        """Take a request that has come to that store; called by its thread."""
        self._loop.call_soon_threadsafe(self._start, store, greeting, answer)

    def _start(self, store: Store, greeting: dict[str, Any], answer: Answer) -> None:
        task = self._loop.create_task(self._answer(store, greeting, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, store: Store, greeting: dict[str, Any], answer: Answer) -> None:
        try:
            registration, replaces = parse_join(greeting), parse_replaces(greeting)
        except BadFrameError as error:
            answer(_refusal(str(error)))
            return
        status = store.status()
        known = store.read().nodes.get(registration.disk)
        leader = store.address_of(status.leader) if status.leader else None
        if not status.is_leader and leader:
            answer({"leader": leader})
            return
        # A member that lost sight of the voters may be the one whose vote is missing for a leader.
        if not status.is_leader and known is None:
            answer(_refusal("no metadata leader is known now"))
            return
        gives_up = status.is_leader and replaces in store.read().nodes.keys() - {registration.disk}
        why = _why_not_gone(status, replaces) if gives_up and replaces is not None else None
        if why is not None:
            answer(_refusal(why))
            return
        try:
            # A disk that is known registers itself: a stranger must not move it.
            node_id = known.node_id if known else await register(store, registration)
        except RegistrationRefusedError as error:
            answer(_refusal(str(error)))
            return
        if gives_up and replaces is not None:
            await self._give_up(store, replaces, registration.disk)
        addresses = ((disk, store.address_of(disk)) for disk in status.voters())
        peers = {disk: address for disk, address in addresses if address}
        answer(encode_admitted(Admitted(self._cluster_id, node_id, peers)))
        log.info("admitted disk %s as node %d", registration.disk, node_id)

    async def _give_up(self, store: Store, lost: UUID, replaced_by: UUID) -> None:
        """Take the disk out of the cluster, so that its vote moves at once; one that is out already is fine."""
        node = store.read().nodes.get(lost)
        if node is None:
            return
        command = remove_node(node.node_id, lost, lost=True, replaced_by=str(replaced_by))
        outcome = await execute(store, command)
        log.info("disk %s was declared gone by %s, which comes in its place: %s", lost, replaced_by, outcome)


def _refusal(why: str) -> dict[str, Any]:
    """An answer that is proved, and so says that this node is in a cluster."""
    return {"refused": why, "member": True}


def _why_not_gone(status: Status, disk: UUID) -> str | None:
    """Why a disk is not given up though another one is said to replace it."""
    if any(member.disk == disk and member.connected for member in status.members):
        return f"disk {disk} is there: it is not gone, and cannot be replaced"
    if not may_remove(status, disk):
        return f"without disk {disk} the metadata would have no majority of their voters: bring voters back first"
    return None
