"""Each published state of the metadata, handed to the parts of this node that follow it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from walrus_node.metadata.machine import ClusterState

Follower = Callable[[ClusterState], None]


class Publication:
    """Hands states on, one at a time and in order; every follower has the newest one. Thread-safe."""

    def __init__(self, state: ClusterState, *followers: Follower) -> None:
        """*state* is what is known before anything is published; the *followers* given here do not hear of it."""
        self._handing = threading.Lock()
        self._state = state
        self._followers = followers

    def publish(self, state: ClusterState) -> None:
        """Hand a new state to every follower; called by the store's thread, before anyone else hears of the state."""
        with self._handing:
            self._state = state
            for follow in self._followers:
                follow(state)

    def add(self, follow: Follower) -> None:
        """Hand the newest state to one more follower, and from then on all that come."""
        with self._handing:
            self._followers = (*self._followers, follow)
            follow(self._state)
