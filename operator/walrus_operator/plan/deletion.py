"""What is done when a cluster is deleted: its claims go where its spec says `Delete`, and stay in doubt. Pure."""

from __future__ import annotations

from dataclasses import replace

from walrus_operator.desired.names import FINALIZER, LABEL_POOL
from walrus_operator.objects import CLAIM, STATEFUL_SET, Ref, owned_by
from walrus_operator.observe.snapshot import Cluster, Snapshot
from walrus_operator.plan.actions import Action, HoldDeletion, Plan, RemoveClaim
from walrus_operator.plan.needs import forbidden, is_blind
from walrus_operator.plan.pausing import paused

_ORPHAN = "orphan"
"""Kubernetes' own finalizer: it takes the owner off what belongs to the cluster, and leaves it."""


def hold_deletion(cluster: Cluster) -> tuple[Action, ...]:
    """Whether the deletion of the cluster waits for the operator: only while its claims would have to go."""
    wanted = claims_go(cluster)
    return () if wanted == (FINALIZER in cluster.finalizers) else (HoldDeletion(wanted),)


def plan_deletion(snapshot: Snapshot) -> Plan:
    """What comes next for a cluster that is being deleted. Kubernetes removes what it owns after it."""
    cluster = snapshot.cluster
    if FINALIZER not in cluster.finalizers:
        return Plan()
    if is_blind(snapshot):
        return Plan(waits=tuple(forbidden(snapshot).values()))
    release = HoldDeletion(held=False)
    if not claims_go(cluster) or _orphaned(snapshot) or len(snapshot.cluster_ids()) > 1:
        return Plan((release,))
    stop = paused(snapshot)
    if stop is not None:
        return Plan(waits=(replace(stop, detail=f"its claims go, and then it, once it is not paused: {stop.detail}"),))
    left = {cluster.names.place(pod)[0] for pod in snapshot.departures()}
    pools = {*snapshot.sets(), *_pools(cluster), *left}
    claims = [
        RemoveClaim(Ref(CLAIM.name, cluster.key.namespace, name), claim.uid)
        for name, claim in sorted(snapshot.claims.items())
        if claim.pool in pools and not claim.deleting
    ]
    return Plan((*claims, release))


def claims_go(cluster: Cluster) -> bool:
    """Whether claims go with the cluster, by the spec as it is, accepted or not; whatever cannot be read keeps them."""
    return cluster.spec.get("deletionPolicy") == "Delete"


def _orphaned(snapshot: Snapshot) -> bool:
    """Whether what belongs to the cluster shall outlive it (`--cascade=orphan`), or already has no owner."""
    cluster = snapshot.cluster
    return _ORPHAN in cluster.finalizers or any(
        ref.kind == STATEFUL_SET.name
        and ref.name == cluster.names.pool(found["metadata"].get("labels", {}).get(LABEL_POOL, ""))
        and not owned_by(found, cluster.uid)
        for ref, found in snapshot.objects.items()
    )


def _pools(cluster: Cluster) -> set[str]:
    pools = cluster.spec.get("pools")
    return {str(pool.get("name")) for pool in pools if isinstance(pool, dict)} if isinstance(pools, list) else set()
