"""Brokers whose pods were made from another spec restart one after the other: followers first, the leader last. Pure.

Whoever is asked whether a broker may stop knows it only for this moment, so the executor asks, right before it acts.
"""

from __future__ import annotations

from collections.abc import Mapping

from walrus_operator.observe.snapshot import Pod, Snapshot
from walrus_operator.plan.actions import Action, RollPod, TransferLeadership
from walrus_operator.plan.budget import spares


def outdated(snapshot: Snapshot, revisions: Mapping[str, str]) -> list[Pod]:
    """Pods that were made from something else than their pools' inputs are now; by pool, in order of names."""
    return sorted(
        (pod for pod in snapshot.pods.values() if pod.pool in revisions and pod.revision != revisions[pod.pool]),
        key=lambda pod: (pod.pool, len(pod.name), pod.name),
    )


def roll_broken(snapshot: Snapshot, revisions: Mapping[str, str]) -> tuple[RollPod, ...]:
    """An outdated pod that does not serve goes first, and waits for nobody: it may be a release that never will.

    One that does not run, or that the metadata leader does not hear from, has nothing to lose. One that takes part
    goes only while no pod of the wanted spec is away: a release that does not come up shall not take a second broker.
    """
    broken = [pod for pod in outdated(snapshot, revisions) if not pod.ready and not pod.deleting]
    lost = [pod for pod in broken if not pod.running] or [pod for pod in broken if not _heard(pod, snapshot)]
    away = any(
        not pod.ready and pod.revision == revisions.get(pod.pool) and snapshot.joined(pod.name) is not False
        for pod in snapshot.pods.values()
    )
    return tuple(RollPod(pod.name, pod.uid, _spared(snapshot), broken=True) for pod in lost or ([] if away else broken))


def roll(snapshot: Snapshot, revisions: Mapping[str, str]) -> tuple[Action, ...]:
    """The next steps of a roll, once all brokers of the cluster serve: a follower of each pool, or the leader."""
    old = outdated(snapshot, revisions)
    leading = snapshot.leader()
    # The first of each pool: of a dictionary, the last entry of a key stays.
    followers = {pod.pool: pod for pod in reversed(old) if leading is None or pod.name != leading[0]}
    if followers:
        return tuple(RollPod(pod.name, pod.uid, _spared(snapshot)) for _, pod in sorted(followers.items()))
    if not old:
        return ()
    if len(snapshot.pods) > 2:
        return (TransferLeadership(old[0].name),)
    return (RollPod(old[0].name, old[0].uid, spared=False),)


def _heard(pod: Pod, snapshot: Snapshot) -> bool:
    """Whether the others do something with it, as the metadata leader tells."""
    member = snapshot.member(pod.name)
    return member is not None and member.alive


def _spared(snapshot: Snapshot) -> bool:
    replication = snapshot.replication()
    return replication is not None and spares(replication) and len(snapshot.pods) > 2
