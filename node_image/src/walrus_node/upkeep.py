"""What the node that leads the metadata keeps in order: copies of sealed segments are brought back to n, and what
topics do not keep goes.

Which copies are made and given up is decided by `walrus_core.Metadata.upkeep`; the nodes that are to have them make
them, delete them, and say so. What goes is decided by the command itself, when it is applied. Nothing is remembered
here: whoever leads the metadata next goes on.
"""

from __future__ import annotations

import asyncio
import logging

from walrus_node.commands import execute, expire, set_copies
from walrus_node.metadata import reports
from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.store import MetadataStore, Rejected
from walrus_node.presence import Presence

log = logging.getLogger(__name__)

# Somebody else changed the segment, or the node, since: the next look sees it.
_STALE = frozenset({"VersionMismatch", "UnknownSegment", "UnknownTopic", "UnknownPartition", "UnknownNode", "HasCopy"})
# Proposals under way at once.
_AT_ONCE = 16
# Partitions in one command.
_EXPIRED_AT_ONCE = 1_000


class CopyKeeper:
    """Looks and acts when told to; runs in the event loop."""

    def __init__(self, store: MetadataStore[ClusterState], presence: Presence) -> None:
        self._store = store
        self._presence = presence
        # What the last look of the leader found; none on other nodes.
        self.progress: reports.CopyProgress | None = None

    async def look(self) -> None:
        """One look, if this node leads the metadata: what is to be changed is proposed, and known when this returns."""
        if not self._store.status().is_leader:
            self.progress = None
            return
        state = self._store.read()
        found = await asyncio.to_thread(reports.upkeep, state.metadata, self._presence.look(state))
        self.progress = found.progress
        turns = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(*(self._propose(change, turns) for change in found.changes))

    async def _propose(self, change: reports.CopyChange, turns: asyncio.Semaphore) -> None:
        async with turns:
            outcome = await execute(self._store, set_copies(change))
        if not isinstance(outcome, Rejected):
            log.info(
                "segment %s: copies are made on nodes %s, given up on %s", change.segment, change.added, change.given_up
            )
        elif outcome.reason not in _STALE:
            log.warning("segment %s: its copies stay as they are: %s", change.segment, outcome.message)


class RetentionKeeper:
    """Looks and acts when told to; runs in the event loop."""

    def __init__(self, store: MetadataStore[ClusterState]) -> None:
        self._store = store

    async def look(self) -> None:
        """One look, if this node leads the metadata: what topics do not keep, or a part of it, is dropped on return."""
        if not self._store.status().is_leader:
            return
        metadata = self._store.read().metadata
        past = await asyncio.to_thread(metadata.past_retention, _EXPIRED_AT_ONCE)
        if not past:
            return
        outcome = await execute(self._store, expire(past))
        if isinstance(outcome, Rejected):
            log.warning("what is past its retention in %d partitions stays: %s", len(past), outcome.message)
        else:
            log.info("what is past its retention in %d partitions is dropped", len(past))
