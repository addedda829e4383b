"""How soon a cluster is looked at again: soon while something moves, ever more rarely while the same gate is closed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from walrus_operator.objects import Key
from walrus_operator.plan.actions import Done, Gate, Plan

IDLE_S = 20.0
"""How soon a cluster that is as it shall be is looked at again: brokers tell Kubernetes only whether they are ready."""
_ACTED_S = 0.2
_MOVING_S = 1.0
_BLOCKED_S = 10.0
_LONGER = 2.0
_MOVING_MAX_S = 40.0
_BLOCKED_MAX_S = 60.0

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
        Gate.ADDRESS_PENDING,
        Gate.DRAINING,
        Gate.NODE_LOST,
        Gate.RESIZING,
    }
)
"""Gates that may open at any moment."""
_DRAINING_MAX_S = 5.0
"""The end of a drain is told by nobody else, and the next step waits for it: the look that sees it is never far."""


@dataclass(frozen=True)
class _Still:
    """Gates that were met since something was done last, with what that was, and how long was waited then."""

    met: frozenset[str]
    seconds: float


_NEW = _Still(frozenset(), 0.0)
_COPIES = frozenset({"copies"})
"""Stands for the gates of a cluster that waits for nothing but copies."""


class Patience:
    """Remembers of each cluster which gates were closed since something was done. What happens meanwhile, events tell.

    Gates that open and close in turn are not news, nor is an action that is done again in each pass.
    """

    def __init__(self) -> None:
        self._still: dict[Key, _Still] = {}

    def after(self, key: Key, plan: Plan, done: Done, at: datetime, *, copying: bool = False) -> float:
        """Seconds until the next look, after the one of this time: at the latest when a gate opens by itself.

        *copying*: records lack copies, which brokers make by themselves and tell nobody of.
        """
        opens = [(wait.opens - at).total_seconds() for wait in plan.waits if wait.opens is not None]
        return max(min([self._after(key, plan, done, copying=copying), *opens]), _ACTED_S)

    def _after(self, key: Key, plan: Plan, done: Done, *, copying: bool) -> float:
        gates = frozenset[str](wait.gate for wait in (*plan.waits, *done.waits))
        if done.actions:
            # The same as in the pass before, and nothing in between: someone undoes it, or it did not do anything.
            acts, before = frozenset(map(str, done.actions)), self._still.pop(key, _NEW)
            return self._longer(key, before, acts, _ACTED_S, _MOVING_MAX_S, again=acts == before.met)
        if copying and not gates:
            before = self._still.pop(key, _NEW)
            return self._longer(key, before, _COPIES, _MOVING_S, IDLE_S, again=before.met == _COPIES)
        return self.waiting(key, gates, moving=bool(gates & MOVING), idle_s=IDLE_S)

    def waiting(self, key: Key, gates: frozenset[str], *, moving: bool, idle_s: float) -> float:
        """The same after a pass that did nothing; *moving*: one of the gates that it met may open at any moment."""
        before = self._still.pop(key, _NEW)
        if not gates:
            return idle_s
        first, most = (_MOVING_S, _MOVING_MAX_S) if moving else (_BLOCKED_S, _BLOCKED_MAX_S)
        if Gate.DRAINING in gates:
            most = _DRAINING_MAX_S
        return self._longer(key, before, gates | before.met, first, most, again=gates <= before.met)

    def _longer(
        self, key: Key, before: _Still, met: frozenset[str], first: float, most: float, *, again: bool
    ) -> float:
        seconds = min(max(before.seconds * _LONGER, first), most) if again else first
        self._still[key] = _Still(met, seconds)
        return seconds

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._still.pop(key, None)
