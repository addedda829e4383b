"""Clusters that are as they shall be: most looks at them ask their brokers alone, since watches tell of the rest."""

from __future__ import annotations

from dataclasses import dataclass

from walrus_operator.objects import Key
from walrus_operator.observe.snapshot import Snapshot

WHOLE_S = 60.0
"""How often such a cluster is looked at as a whole: no watch tells of a Service or a claim that somebody changed."""


@dataclass(frozen=True)
class _Rest:
    """A whole look after which nothing was left to do or to tell, and when it was."""

    seen: Snapshot
    at: float


class Resting:
    """Remembers the last whole look at each of them, so that the next one may ask its brokers alone.

    Nothing is ever done because of what is remembered: a look that finds anything is made again, as a whole.
    """

    def __init__(self) -> None:
        self._rests: dict[Key, _Rest] = {}

    def begin(self, seen: Snapshot, now: float) -> None:
        """A whole look at the cluster found nothing to do or to tell."""
        self._rests[seen.cluster.key] = _Rest(seen, now)

    def seen(self, key: Key, now: float) -> Snapshot | None:
        """What that look saw; None where it was too long ago, or there was none since something was found."""
        rest = self._rests.get(key)
        return rest.seen if rest is not None and now - rest.at < WHOLE_S else None

    def end(self, key: Key) -> None:
        """The cluster is looked at as a whole."""
        self._rests.pop(key, None)
