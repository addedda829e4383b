"""When the cluster begins to use what its release brought to the metadata, which ends the way back. Pure.

Until then brokers may go back to any release that knows the level in use.
"""

from __future__ import annotations

from collections.abc import Collection

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.api.updates import Finalize
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import FinalizeLevel


def finalize(spec: ClusterSpec, snapshot: Snapshot, outdated: Collection[str]) -> tuple[FinalizeLevel, ...]:
    """The level that everyone knows, once the last broker runs what the spec says, by policy or where someone ordered
    it.
    """
    reachable = snapshot.level_reachable()
    if reachable <= snapshot.level() or outdated or not _all_serve(snapshot):
        return ()
    if spec.update_policy.finalize is Finalize.MANUAL and snapshot.cluster.finalize != str(reachable):
        return ()
    return (FinalizeLevel(reachable),)


def _all_serve(snapshot: Snapshot) -> bool:
    """Whether every broker that there shall be is there and tells of itself: one that is away may be of any release."""
    return all(
        pod in snapshot.pods and snapshot.pods[pod].ready and snapshot.brokers.get(pod) is not None
        for pod in snapshot.expected()
    )
