"""How many brokers may be evicted, from the quorum as it is now. Pure."""

from __future__ import annotations

from walrus_operator.observe.snapshot import Replication, Snapshot


def unavailable_max(snapshot: Snapshot) -> int:
    """`maxUnavailable` of the cluster's PodDisruptionBudget; Kubernetes counts brokers that are not ready against it.

    What the metadata leader can spare, so 0 while segments or voters lack one that they need, and 0 while nobody can
    tell. Where replication never spares a broker (one copy, or all must acknowledge), each eviction is a pause,
    whenever it comes: one at a time then, or machines could not be serviced at all. Brokers that are not ready and
    never joined come on top: Kubernetes counts them, and nobody needs them.
    """
    leading, told = snapshot.leader(), snapshot.replication()
    if leading is None or told is None or leading[1].spare_brokers is None:
        return 0
    return (leading[1].spare_brokers if spares(told) else 1) + _newcomers(snapshot)


def _newcomers(snapshot: Snapshot) -> int:
    waiting = [name for name in snapshot.expected() if name not in snapshot.pods or not snapshot.pods[name].ready]
    return sum(snapshot.joined(name) is False for name in waiting)


def spares(replication: Replication) -> bool:
    """Whether a broker may stop without a pause while all others are there."""
    sealing = replication.factor + 1 - replication.write_quorum
    return replication.factor > max(replication.write_quorum, sealing)
