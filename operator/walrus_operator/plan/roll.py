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


def roll_broken(snapshot: Snapshot, revisions: Mapping[str, str]) -> Action | None:
    """A pod that does not run as it was made, and would be made otherwise now: it has nothing to lose."""
    for pod in outdated(snapshot, revisions):
        if pod.trouble and not pod.running and not pod.deleting:
            return RollPod(pod.name, pod.uid, spared=False)
    return None


def roll(snapshot: Snapshot, revisions: Mapping[str, str]) -> Action | None:
    """The next step of a roll, once all brokers serve. None: nothing is outdated."""
    old = outdated(snapshot, revisions)
    leading, replication = snapshot.leader(), snapshot.replication()
    followers = [pod for pod in old if leading is None or pod.name != leading[0]]
    if followers:
        spared = replication is not None and spares(replication) and len(snapshot.pods) > 2
        return RollPod(followers[0].name, followers[0].uid, spared)
    if not old:
        return None
    if len(snapshot.pods) > 2:
        return TransferLeadership(old[0].name)
    return RollPod(old[0].name, old[0].uid, spared=False)
