"""Brokers whose pods were made from another spec restart one after the other: followers first, the leader last. Pure.

Whoever is asked whether a broker may stop knows it only for this moment, so the executor asks, right before it acts.
"""

from __future__ import annotations

from collections.abc import Mapping

from walrus_operator.observe.pods import Pod
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import Action, RollPod, TransferLeadership
from walrus_operator.plan.budget import spares
from walrus_operator.plan.resizing import unsized


def outdated(snapshot: Snapshot, revisions: Mapping[str, str]) -> list[Pod]:
    """Pods that were made from something else than their pools' inputs are now, or before someone asked that they
    restart, or whose file systems do not grow while they run; by pool, in order of names.
    """
    still = unsized(snapshot)
    old = (pod for pod in snapshot.pods.values() if pod.name in still or not _is_new(pod, snapshot, revisions))
    return sorted((pod for pod in old if pod.pool in revisions), key=lambda pod: (pod.pool, len(pod.name), pod.name))


def _is_new(pod: Pod, snapshot: Snapshot, revisions: Mapping[str, str]) -> bool:
    asked = snapshot.restart_asked(pod.pool)
    return pod.revision == revisions.get(pod.pool) and asked.items() <= pod.orders.items()


def _roll_pod(
    pod: Pod, snapshot: Snapshot, revisions: Mapping[str, str], *, spared: bool, broken: bool = False, tries: str = ""
) -> RollPod:
    is_new = _is_new(pod, snapshot, revisions)
    asked = pod.revision == revisions.get(pod.pool) and not is_new
    return RollPod(pod.name, pod.uid, spared, broken, asked=asked, tries=tries, unsized=is_new)


def roll_broken(snapshot: Snapshot, revisions: Mapping[str, str]) -> tuple[RollPod, ...]:
    """An outdated pod that does not serve goes first, whoever else does not: it may be a release that never will.

    One that does not run, or that the others do not hear from, has nothing to lose; it goes once nobody is on the way
    back, or a moment in which all of them start would take them all. One that takes part goes only while no pod of the
    wanted spec is away: a release that does not come up shall not take a second broker.
    """
    broken = [pod for pod in outdated(snapshot, revisions) if not pod.ready and not pod.deleting]
    lost = [pod for pod in broken if not pod.running] or [pod for pod in broken if _is_lost(pod, snapshot)]
    candidates = lost or ([] if _away(snapshot, revisions) else broken if snapshot.leader() is not None else [])
    if _on_the_way(snapshot, revisions):
        return ()
    spared = _spared(snapshot)
    return tuple(_roll_pod(pod, snapshot, revisions, spared=spared, broken=True) for pod in candidates)


def roll(snapshot: Snapshot, revisions: Mapping[str, str], tries: str, *, is_held: bool = False) -> tuple[Action, ...]:
    """The next steps of a roll, once all brokers of the cluster serve: a follower of each pool, or the leader.

    A broker that goes is left as it is; one that only hands over what it has stays, and restarts like all others. A
    roll that is held leaves all but those whose file systems have to grow.
    *tries* is the image that the first one tries for the others; "" where none is.
    """
    ordered = snapshot.cluster.drain
    going = {
        name for name, departure in snapshot.departures().items() if not departure.lost and departure.disk != ordered
    }
    old = [pod for pod in outdated(snapshot, revisions) if pod.name not in going]
    if is_held:
        old = [pod for pod in old if pod.name in unsized(snapshot)]
    leading = snapshot.leader()
    # The first of each pool: of a dictionary, the last entry of a key stays.
    followers = {pod.pool: pod for pod in reversed(old) if leading is None or pod.name != leading[0]}
    if followers:
        spared = _spared(snapshot)
        return tuple(
            _roll_pod(pod, snapshot, revisions, spared=spared, tries=tries) for _, pod in sorted(followers.items())
        )
    if not old:
        return ()
    if _are_many(snapshot):
        return (TransferLeadership(old[0].name),)
    return (_roll_pod(old[0], snapshot, revisions, spared=False, tries=tries),)


def _is_lost(pod: Pod, snapshot: Snapshot) -> bool:
    """Whether the others do nothing with it, as the metadata leader tells.

    While nobody leads, whoever has served may be part of the next majority; only one that never did is of no use.
    """
    if snapshot.leader() is None:
        return not pod.served
    member = snapshot.member(pod.name)
    return member is None or not member.alive


def _away(snapshot: Snapshot, revisions: Mapping[str, str]) -> bool:
    """Whether a pod of the wanted spec does not serve that is part of the cluster."""
    return any(
        not pod.ready and _is_new(pod, snapshot, revisions) and snapshot.joined(pod.name) is not False
        for pod in snapshot.pods.values()
    )


def _on_the_way(snapshot: Snapshot, revisions: Mapping[str, str]) -> bool:
    """Whether a broker that may be part of the cluster is stopping, or not yet as far as it will get."""
    return any(
        _is_moving(snapshot.pods.get(name), snapshot, revisions)
        for name in snapshot.expected()
        if snapshot.joined(name) is not False
    )


def _is_moving(pod: Pod | None, snapshot: Snapshot, revisions: Mapping[str, str]) -> bool:
    """Whether a pod goes or comes: one of the wanted spec until it answers, or Kubernetes says what keeps it.

    A broker that served and fell silent does neither. It has gone, with its node perhaps: Kubernetes leaves the pod as
    it was, and deletes it after some minutes, which nobody carries out. How long it stays away nobody can tell.
    """
    if pod is None:
        return True
    if pod.deleting:
        return not pod.abandoned
    silent = not pod.ready and snapshot.brokers.get(pod.name) is None
    return silent and not pod.served and pod.trouble is None and _is_new(pod, snapshot, revisions)


def _spared(snapshot: Snapshot) -> bool:
    replication = snapshot.replication()
    return replication is not None and spares(replication) and _are_many(snapshot)


def _are_many(snapshot: Snapshot) -> bool:
    """Whether the brokers that there shall be can do without one; pods may be away for a moment, which says nothing."""
    return len(snapshot.expected()) > 2
