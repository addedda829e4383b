"""Which nodes are alive, as this one sees it: it has seen their leases renewed lately. No wall clock is asked."""

from __future__ import annotations

import time

import walrus_core

from walrus_node.metadata.machine import ClusterState

# A node that renews no more is held to be alive for so long.
LEASE_MS = 3_000


class Presence:
    """Told of every published state. Thread-safe."""

    def __init__(self) -> None:
        self._seen = walrus_core.Presence(LEASE_MS)

    def observe(self, state: ClusterState) -> None:
        """Take in a state that was just published."""
        self._seen.observe(state.metadata, boottime_ns())

    def look(self, state: ClusterState) -> walrus_core.Present:
        """Who is there now."""
        return self._seen.look(state.metadata, boottime_ns())


def boottime_ns() -> int:
    """CLOCK_BOOTTIME: only goes forward, whatever the time of the day is set to, and counts what the machine slept."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
