"""What a node does before it stops: others come to lead its segments and the metadata, so that nothing fails over."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import walrus_core

from walrus_node.metadata import reports
from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.store import MetadataStore, Status
from walrus_node.presence import Presence
from walrus_node.stages import OnDuty

log = logging.getLogger(__name__)

_LOOK_S = 0.02
# For the metadata: their next leader is there within a few round trips, or it will not be there soon.
_TRANSFER_MAX_S, _TRY_S = 2.0, 0.6


@dataclass(frozen=True)
class SegmentsHandedOver:
    """What came of the segments that the node led."""

    handed_over: int
    staying: int
    why: str = ""
    """Why some stay; empty where none does."""

    @classmethod
    def parse(cls, found: dict[str, Any] | None) -> SegmentsHandedOver:
        """Read what `walrus_core.DataPlane.hand_over` gives."""
        return cls(0, 0) if found is None else cls(found["handed_over"], found["staying"], found["why"] or "")


async def depart(node: OnDuty, presence: Presence, limit_s: float) -> None:
    """Hand over what *node* leads, within *limit_s*. It serves meanwhile; what comes in is sent to the next leaders."""
    started = time.monotonic()
    serving = node.before
    store = serving.before.before.store
    # The metadata come last: until then each segment costs commands, which their leader takes sooner than others.
    segments_s = max(limit_s - _TRANSFER_MAX_S, limit_s / 2)
    segments = await _hand_over_segments(serving.data_plane, segments_s)
    leader = await _hand_over_metadata(store, presence, started + limit_s)
    stay = f", {segments.staying} stay: {segments.why}" if segments.staying else ""
    log.info(
        "handed over %d segments%s; the metadata are led by %s; it took %.2f s",
        segments.handed_over,
        stay,
        leader,
        time.monotonic() - started,
    )


async def _hand_over_segments(data_plane: walrus_core.DataPlane, limit_s: float) -> SegmentsHandedOver:
    return SegmentsHandedOver.parse(await asyncio.to_thread(data_plane.hand_over, int(limit_s * 1_000)))


async def _hand_over_metadata(store: MetadataStore[ClusterState], presence: Presence, until: float) -> str:
    """Let another voter lead that stays, where this node leads; says who leads afterwards."""
    before, state = store.status(), store.read()
    if before.is_leader:
        others = before.voters() - {before.leader}
        able = able_to_lead(before, reports.nodes(state.metadata), presence.look(state).alive)
        if not able:
            return "this node, as nobody else can lead them"
        to = None if others == able else min(able)
        until = min(until, time.monotonic() + _TRANSFER_MAX_S)
        asked_again = 0.0
        while (now := store.status()).leader in (None, before.leader) and time.monotonic() < until:
            if now.is_leader and time.monotonic() >= asked_again:
                store.transfer(to)
                asked_again = time.monotonic() + _TRY_S
            await asyncio.sleep(_LOOK_S)
    leader = store.status().leader
    known = None if leader is None else store.read().nodes.get(leader)
    if known is None or (before.is_leader and leader == before.leader):
        return "nobody that this node knows" if known is None else "this node, as nobody took over in time"
    return f"node {known.node_id}"


def able_to_lead(status: Status, nodes: Collection[reports.Node], alive: Collection[int]) -> frozenset[UUID]:
    """The other voters that are there and are not about to stop themselves."""
    staying = frozenset(node.disk for node in nodes if node.state != "stopping" and node.node_id in alive)
    return status.voters() & staying - {status.leader}
