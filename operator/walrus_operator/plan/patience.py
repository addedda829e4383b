"""How soon a cluster is looked at again: soon while something moves, ever more rarely while the same gate is closed."""

from __future__ import annotations

from dataclasses import dataclass

from walrus_operator.objects import Key
from walrus_operator.plan.actions import Done, Gate, Plan

SETTLED_SECONDS = 20.0
"""How soon a cluster that is as it shall be is looked at again: brokers tell Kubernetes only whether they are ready."""
_ACTED_SECONDS = 0.2
_MOVING_SECONDS = 1.0
_BLOCKED_SECONDS = 10.0
_LONGER = 2.0
_MOVING_SECONDS_MAX = 40.0
_BLOCKED_SECONDS_MAX = 60.0

MOVING = frozenset(
    {
        Gate.POD_PENDING,
        Gate.NOT_FOUNDED,
        Gate.UNKNOWN_BROKER,
        Gate.CHANGED_MEANWHILE,
        Gate.NAME_TAKEN,
        Gate.NOT_CAUGHT_UP,
        Gate.QUORUM_TIGHT,
        Gate.EVICTION_REFUSED,
    }
)
"""Gates that may open at any moment."""


@dataclass(frozen=True)
class _Closed:
    """Gates that were closed at the last look, and how long was waited for them."""

    gates: frozenset[Gate]
    seconds: float


class Patience:
    """Remembers which gates of a cluster were closed. What happens in between, events tell."""

    def __init__(self) -> None:
        self._closed: dict[Key, _Closed] = {}

    def after(self, key: Key, plan: Plan, done: Done) -> float:
        """Seconds until the next look, after this one."""
        gates = frozenset(wait.gate for wait in (*plan.waits, *done.waits))
        before = self._closed.pop(key, None)
        if done.actions:
            return _ACTED_SECONDS
        if not gates:
            return SETTLED_SECONDS
        moving = bool(gates & MOVING)
        seconds = _MOVING_SECONDS if moving else _BLOCKED_SECONDS
        if before is not None and before.gates == gates:
            seconds = min(before.seconds * _LONGER, _MOVING_SECONDS_MAX if moving else _BLOCKED_SECONDS_MAX)
        self._closed[key] = _Closed(gates, seconds)
        return seconds

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._closed.pop(key, None)
