"""Claims that grow while their brokers serve: one after the other, and then the StatefulSet is made anew. Pure.

Growth asks no window, and waits for no broker: a disk that is full is what it is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from walrus_operator.api.units import amount_of
from walrus_operator.desired.claims import template_size
from walrus_operator.desired.config import remade_map
from walrus_operator.desired.manifest import Owner, sealed
from walrus_operator.objects import CLAIM, Ref, ref_of, uid_of
from walrus_operator.observe.claims import Claim
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import EnlargeClaim, Gate, RemakeSet, Wait
from walrus_operator.plan.departing import Next
from walrus_operator.plan.pools import PoolPlan, is_large_enough

_FILE_SYSTEM_PATIENCE = timedelta(minutes=2)
"""How long a file system has to become as large as its volume before its pod is restarted."""


def enlarge(owner: Owner, snapshot: Snapshot, pools: Mapping[str, PoolPlan]) -> Next:
    """The next step of each pool whose claims shall be larger, and what its claims wait for."""
    made = [_next(name, pool.size, owner, snapshot) for name, pool in pools.items() if pool.size is not None]
    return Next(
        tuple(step for one in made for step in one.steps),
        tuple(wait for one in made for wait in one.waits),
    )


def unsized(snapshot: Snapshot) -> frozenset[str]:
    """Pods whose file systems do not become as large as their volumes, as long as they run."""
    names = snapshot.cluster.names
    return frozenset(
        names.pod(claim.pool, claim.ordinal)
        for claim in snapshot.claims.values()
        if claim.waits_since is not None and snapshot.at - claim.waits_since > _FILE_SYSTEM_PATIENCE
    )


def _next(pool: str, size: str, owner: Owner, snapshot: Snapshot) -> Next:
    """The first claim that is not as large and can be told so; one that Kubernetes is at holds up those behind it.

    A volume whose file system is all that lacks holds up nobody.
    """
    found = snapshot.sets().get(pool)
    if found is None or pool in snapshot.remade():
        return Next()
    waits: list[Wait] = []
    for claim in snapshot.claims_of(pool):
        name = snapshot.cluster.names.claim(snapshot.cluster.names.pod(pool, claim.ordinal))
        if _is_asked_anew(claim, size):
            ref = Ref(CLAIM.name, snapshot.cluster.key.namespace, name)
            return Next((EnlargeClaim(ref, claim.uid, size, claim.has),), tuple(waits))
        if claim.lacks(size):
            waits.append(_waiting(name, claim))
            if claim.waits_since is None:
                return Next(waits=tuple(waits))
    template = template_size(found)
    if template is not None and amount_of(template) != amount_of(size) and is_large_enough(pool, size, snapshot):
        kept = sealed(remade_map(owner, {**snapshot.remade(), pool: found}))
        return Next((RemakeSet(ref_of(found), uid_of(found), size, kept),), tuple(waits))
    return Next(waits=tuple(waits))


def _is_asked_anew(claim: Claim, size: str) -> bool:
    """Whether it asks for less, or for more than its volume's driver can give and than is wanted by now."""
    asked, wanted = amount_of(claim.size) or 0, amount_of(size) or 0
    return asked < wanted or (asked > wanted and claim.trouble != "" and claim.lacks(size))


def _waiting(name: str, claim: Claim) -> Wait:
    if claim.trouble:
        return Wait(
            Gate.RESIZE_FAILED,
            f"{name} asks for {claim.size} and has {claim.has}, and its driver says no: {claim.trouble}. It tries again"
            f" by itself; or set size back, to {claim.has} or something between",
        )
    if claim.waits_since is not None:
        detail = (
            f"{name} has a volume of {claim.size}, and its file system grows; its pod restarts where that takes long"
        )
        return Wait(Gate.RESIZING, detail)
    return Wait(Gate.RESIZING, f"{name} asks for {claim.size} and has {claim.has}: its volume's driver is at it")
