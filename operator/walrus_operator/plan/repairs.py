"""Repairs: objects of the cluster are made, put right or taken away, and what belongs to others is left alone. Pure."""

from __future__ import annotations

from walrus_operator.desired.manifest import Owner, taking_over
from walrus_operator.desired.names import ADOPT, LABEL_CLUSTER
from walrus_operator.objects import (
    CLAIM,
    CONFIG_MAP,
    NETWORK_POLICY,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Manifest,
    Ref,
    owned_by,
    ref_of,
    uid_of,
)
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.accepted import kept_in
from walrus_operator.plan.actions import Apply, Gate, MakeSecret, Prune, RemoveClaim, Wait
from walrus_operator.plan.diff import differs
from walrus_operator.plan.needs import forbidden
from walrus_operator.plan.pools import PoolPlan

_PRUNABLE = frozenset({CONFIG_MAP.name, SERVICE.name, NETWORK_POLICY.name})


def taken(desired: list[Manifest], snapshot: Snapshot) -> dict[Ref, Wait]:
    """Objects of the wanted names that belong to someone else, or that nobody may look at."""
    taken, hidden = {}, forbidden(snapshot)
    for manifest in desired:
        if manifest["kind"] in hidden:
            taken[ref_of(manifest)] = hidden[manifest["kind"]]
        found = snapshot.objects.get(ref_of(manifest))
        if found is not None and not snapshot.cluster.owns(found):
            taken[ref_of(manifest)] = Wait(
                Gate.NAME_TAKEN,
                f"{ref_of(manifest)} is there and belongs to something else"
                f" (label {LABEL_CLUSTER}={found['metadata'].get('labels', {}).get(LABEL_CLUSTER, '')}):"
                " delete it, or give this cluster another name. What is left of a former cluster of this name goes by"
                f" itself; what lost its owner is taken over with the annotation {ADOPT}",
            )
    return taken


def secret_taken(snapshot: Snapshot) -> dict[Ref, Wait]:
    """The same of the Secret, which the operator may neither list nor change."""
    names = snapshot.cluster.names
    ref = Ref(SECRET.name, names.namespace, names.secret)
    if SECRET.name in snapshot.unseen:
        return {ref: forbidden(snapshot)[SECRET.name]}
    if snapshot.secret is None or snapshot.secret.ours:
        return {}
    return {
        ref: Wait(
            Gate.NAME_TAKEN,
            f"{ref} is there and belongs to something else: delete it, and the operator makes another one; or, if the"
            f" brokers shall share it, label it with {LABEL_CLUSTER}={names.cluster} and take its owner away",
        )
    }


def make_secret(owner: Owner, snapshot: Snapshot) -> list[MakeSecret]:
    """The Secret that the brokers share, where it is not there."""
    return [MakeSecret(owner)] if snapshot.shares_secret() and snapshot.secret is None else []


def applies(desired: list[Manifest], snapshot: Snapshot) -> list[Apply]:
    """Objects that are not there, or not as they shall be."""
    made = []
    for manifest in desired:
        found = snapshot.objects.get(ref_of(manifest))
        if found is None:
            made.append(Apply(manifest, new=True))
        elif differs(manifest, found) and "deletionTimestamp" not in found["metadata"]:
            made.append(Apply(taking_over(manifest, found), new=False))
    return made


def prunes(desired: list[Manifest], snapshot: Snapshot, over: set[str]) -> list[Prune]:
    """What the operator made and nobody wants any more; a StatefulSet only where its pool is over; never a claim."""
    names = snapshot.cluster.names
    wanted = {kept_in(snapshot), *(ref_of(manifest) for manifest in desired)}
    sets = {Ref(STATEFUL_SET.name, names.namespace, names.pool(pool)) for pool in over}
    return [
        Prune(ref, uid_of(found))
        for ref, found in sorted(snapshot.objects.items(), key=lambda item: item[0])
        if (ref.kind in _PRUNABLE or ref in sets)
        and ref not in wanted
        and owned_by(found, snapshot.cluster.uid)
        and "deletionTimestamp" not in found["metadata"]
    ]


def unbound(pools: dict[str, PoolPlan], snapshot: Snapshot) -> list[RemoveClaim]:
    """Claims of brokers that went before they ever ran: without a volume there is nothing to lose."""
    namespace, sets = snapshot.cluster.key.namespace, snapshot.sets()
    return [
        RemoveClaim(Ref(CLAIM.name, namespace, name), claim.uid, unbound=True)
        for name, claim in sorted(snapshot.claims.items())
        if claim.pool in pools
        and claim.pool in sets
        and claim.ordinal >= max(int(sets[claim.pool]["spec"].get("replicas", 0)), pools[claim.pool].now.replicas)
        and not claim.bound
        and not claim.deleting
    ]
