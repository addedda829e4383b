"""How large claims shall be that grow by themselves, as their disks fill up. Pure.

The spec stays as it is, and nothing else is remembered: claims follow the largest one, which was told first.
"""

from __future__ import annotations

from fractions import Fraction

from walrus_operator.api.cluster import AutoGrow, Pool
from walrus_operator.api.units import amount_of, quantity_of
from walrus_operator.desired.claims import template_size
from walrus_operator.observe.snapshot import Snapshot

_FILE_SYSTEM = Fraction(4, 5)
"""The least part of a volume that its file system has for files: one that has less did not grow yet."""


def wanted_size(pool: Pool, snapshot: Snapshot) -> str | None:
    """The size of the spec, or what the claims have grown to since; a step more where a disk is as full as it says."""
    auto = _auto(pool)
    if auto is None:
        return pool.storage.size
    size = _begun(pool, auto, snapshot)
    if not _is_settled(pool.name, size, snapshot) or not _is_full(pool.name, auto.at, snapshot):
        return quantity_of(size)
    return quantity_of(max(size, min(size + _amount(auto.step), _amount(auto.max))))


def is_at_its_end(pool: Pool, snapshot: Snapshot) -> bool:
    """Whether claims that grow by themselves are as large as they may be."""
    auto = _auto(pool)
    return auto is not None and _begun(pool, auto, snapshot) >= _amount(auto.max)


def _auto(pool: Pool) -> AutoGrow | None:
    return pool.storage.claim.auto_grow if pool.storage.claim is not None else None


def _begun(pool: Pool, auto: AutoGrow, snapshot: Snapshot) -> Fraction:
    """What the largest claim asks for; where that is more than it may be by now, the others do not follow."""
    asked = (min(_amount(claim.size), _amount(auto.max)) for claim in snapshot.claims_of(pool.name))
    return max(_amount(pool.storage.size or ""), *asked, Fraction(0))


def _is_settled(pool: str, size: Fraction, snapshot: Snapshot) -> bool:
    """Whether the step before is through: claims, the StatefulSet, and every file system whose broker tells of it."""
    found, names = snapshot.sets().get(pool), snapshot.cluster.names
    if found is None or pool in snapshot.remade() or _amount(template_size(found) or "") < size:
        return False
    for claim in snapshot.claims_of(pool):
        broker = snapshot.brokers.get(names.pod(pool, claim.ordinal))
        if _amount(claim.size) < size or claim.waits_since is not None or claim.lacks(claim.size):
            return False
        if broker is not None and broker.bytes_total < _FILE_SYSTEM * size:
            return False
    return True


def _is_full(pool: str, percent: int, snapshot: Snapshot) -> bool:
    """Whether a disk of the pool is as full as that."""
    brokers = (broker for pod, broker in snapshot.brokers.items() if snapshot.cluster.names.place(pod)[0] == pool)
    return any(
        broker is not None
        and broker.bytes_total > 0
        and 100 * (broker.bytes_total - broker.bytes_free) >= percent * broker.bytes_total
        for broker in brokers
    )


def _amount(quantity: str) -> Fraction:
    return amount_of(quantity) or Fraction(0)
