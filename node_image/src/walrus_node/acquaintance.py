"""Asking again who votes: for a member that hears only claims of disks that its log does not know as voters.

Its log is empty or behind. The answer to a join tells it, as it did when the node came.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from uuid import UUID

from walrus_node.metadata.admission import Admitted, JoinRequest, ask_members
from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.raft_store import RaftStore

log = logging.getLogger(__name__)

_PAUSE_S = 0.5


class Acquaintance:
    """Asks while claims come, one round at a time."""

    def __init__(self, request: JoinRequest, seeds: Sequence[str]) -> None:
        """*seeds*: addresses to ask beside those of the members that are known."""
        self._request = request
        self._seeds = seeds
        self._loop = asyncio.get_running_loop()
        self._asking: asyncio.Task[None] | None = None

    def hear(self, store: RaftStore[ClusterState], disk: UUID, address: str | None) -> None:
        """Hear that a disk, at that address, claims to vote; called by the store's thread."""
        self._loop.call_soon_threadsafe(self._start, store, disk, address)

    def _start(self, store: RaftStore[ClusterState], disk: UUID, address: str | None) -> None:
        if self._asking is None or self._asking.done():
            self._asking = self._loop.create_task(self._ask(store, disk, address))

    async def _ask(self, store: RaftStore[ClusterState], disk: UUID, address: str | None) -> None:
        members = (store.address_of(known) for known in store.read().nodes.keys() - {self._request.registration.disk})
        addresses = dict.fromkeys([*filter(None, (address, *members)), *self._seeds])
        answer = await ask_members(tuple(addresses), self._request, lambda admitted: disk in admitted.peers)
        if isinstance(answer, Admitted):
            log.info("disk %s is a voter, say those who were asked", disk)
            store.introduce(answer.peers)
        else:
            log.debug("disk %s claims to vote, and nobody says so: %s", disk, [refusal.why for refusal in answer])
        await asyncio.sleep(_PAUSE_S)
