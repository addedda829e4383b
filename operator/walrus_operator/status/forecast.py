"""When disks are full, if they go on filling up as in the last hours. It is only told: nothing is decided by it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from walrus_operator.objects import Key
from walrus_operator.observe.snapshot import Broker, Snapshot

_EVERY = timedelta(minutes=1)
_LEAST = timedelta(minutes=10)
"""How long a disk is looked at before anything is said of it."""
_WINDOW = timedelta(hours=6)
_FURTHEST = timedelta(days=30)
_GRAIN = timedelta(minutes=10)


@dataclass(frozen=True)
class _Sample:
    at: datetime
    used: int


class Forecasts:
    """Remembers how full disks were. Without a memory, after a restart, it says nothing new for ten minutes."""

    def __init__(self) -> None:
        self._samples: dict[Key, dict[str, deque[_Sample]]] = {}

    def look(self, snapshot: Snapshot) -> dict[str, datetime | None]:
        """When the disk of each pod is full; None: not within a month. Pods of which nobody can tell are left out."""
        before = self._samples.get(snapshot.cluster.key, {})
        told = {
            pod: broker for pod, broker in snapshot.brokers.items() if broker is not None and broker.bytes_total > 0
        }
        samples = {
            broker.disk: _with(before.get(broker.disk, deque()), _used(broker), snapshot.at) for broker in told.values()
        }
        self._samples[snapshot.cluster.key] = {**before, **samples} if len(told) < len(snapshot.pods) else samples
        return {
            pod: _full_at(samples[broker.disk], broker.bytes_free)
            for pod, broker in told.items()
            if samples[broker.disk][-1].at - samples[broker.disk][0].at >= _LEAST
        }

    def forget(self, key: Key) -> None:
        """The cluster is gone."""
        self._samples.pop(key, None)


def settled(pod: str, forecasts: Mapping[str, datetime | None], before: str | None, now: datetime) -> str | None:
    """What the status tells: what stands there, as long as it is about right, since each change would be a write."""
    if pod not in forecasts:
        return before
    full_at = forecasts[pod]
    if full_at is None:
        return None
    if before is not None and abs(datetime.fromisoformat(before) - full_at) <= max((full_at - now) / 10, _GRAIN):
        return before
    grains = round(full_at.timestamp() / _GRAIN.total_seconds())
    return datetime.fromtimestamp(grains * _GRAIN.total_seconds(), full_at.tzinfo).strftime("%Y-%m-%dT%H:%M:%SZ")


def _used(broker: Broker) -> int:
    return broker.bytes_total - broker.bytes_free


def _with(samples: deque[_Sample], used: int, at: datetime) -> deque[_Sample]:
    """The samples of the window, with this one where the last one is old enough."""
    if not samples or at - samples[-1].at >= _EVERY:
        samples.append(_Sample(at, used))
    while at - samples[0].at > _WINDOW:
        samples.popleft()
    return samples


def _full_at(samples: deque[_Sample], free: int) -> datetime | None:
    first, last = samples[0], samples[-1]
    if last.used <= first.used:
        return None
    left_s = free * (last.at - first.at).total_seconds() / (last.used - first.used)
    return last.at + timedelta(seconds=left_s) if left_s <= _FURTHEST.total_seconds() else None
