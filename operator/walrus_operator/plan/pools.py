"""How many brokers each pool has now and what its pods are made from: what is there, moved one step at most. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from walrus_operator.api.cluster import ClusterSpec, Pool
from walrus_operator.api.units import amount_of
from walrus_operator.desired.build import PoolFacts
from walrus_operator.desired.names import HIBERNATED, RENDERED_FROM, REPLICAS
from walrus_operator.desired.statefulset import Former, PodInputs, pod_inputs
from walrus_operator.objects import Manifest
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import Gate, Wait


@dataclass(frozen=True)
class PoolPlan:
    """One pool: what its StatefulSet shall be now, how many brokers it shall have in the end, what is refused."""

    now: PoolFacts
    target: int
    refused: tuple[Wait, ...] = ()
    dismissed: PoolFacts | None = None
    """The same without the last broker, where that one never joined and nobody asks for it."""
    extra: Wait | None = None
    """Brokers that nobody asked for, and that are part of the cluster."""


def plan_pools(spec: ClusterSpec, image: str, snapshot: Snapshot) -> tuple[dict[str, PoolPlan], tuple[Wait, ...]]:
    """Plans of the pools in the spec, and everything that is refused. A refused spec changes nothing at all."""
    sets = snapshot.sets()
    secret = snapshot.cluster.names.secret if snapshot.shares_secret() else ""
    plans = {
        pool.name: _plan(pool, pod_inputs(spec, pool, image, secret), sets.get(pool.name), snapshot)
        for pool in spec.pools
    }
    gone = tuple(
        Wait(
            Gate.POOL_REMOVAL_UNSUPPORTED,
            f"pool {name} is not in spec.pools any more, and its brokers may hold the only copies of records:"
            f" put it back",
        )
        for name in sorted(set(sets) - set(plans))
    )
    return plans, (*(wait for made in plans.values() for wait in made.refused), *gone)


def volume_size(pool: str, snapshot: Snapshot) -> str | None:
    """What the claims of a pool have: the smallest of them, or what its StatefulSet asks for; None without claims."""
    sizes = [claim.size for claim in snapshot.claims.values() if claim.pool == pool and amount_of(claim.size)]
    if sizes:
        return min(sizes, key=lambda size: amount_of(size) or 0)
    found = snapshot.sets().get(pool)
    applied = _applied(found) if found is not None else None
    return _size(applied.storage) if applied is not None else None


def _plan(pool: Pool, wanted: PodInputs, found: Manifest | None, snapshot: Snapshot) -> PoolPlan:
    if found is None:
        first = _first_replicas(pool, snapshot)
        return PoolPlan(PoolFacts(wanted, first, first), pool.replicas)
    applied = _applied(found)
    refused = []
    if applied is not None:
        wanted = replace(wanted, others=applied.others)
        wait = _resized(pool, wanted, applied, snapshot)
        refused += [wait] if wait is not None else []
        wanted = replace(wanted, storage=applied.storage)
    former = Former(applied, found["spec"]["template"]) if applied is not None and applied.others else None
    scale = _scale(pool, found, snapshot)
    facts = PoolFacts(wanted, scale.now, scale.asked, former)
    return PoolPlan(
        facts,
        pool.replicas,
        (*scale.refused, *refused),
        replace(facts, replicas=scale.now - 1, asked=min(scale.asked, scale.now - 1)) if scale.dismiss else None,
        scale.extra,
    )


@dataclass(frozen=True)
class _Scale:
    now: int
    asked: int
    refused: tuple[Wait, ...] = ()
    dismiss: bool = False
    extra: Wait | None = None


def _scale(pool: Pool, found: Manifest, snapshot: Snapshot) -> _Scale:
    """How many brokers there shall be now. Whoever scaled the StatefulSet since is not believed.

    Too few come back at once, all together: some of them alone may not be a majority. Too many stay if they are part of
    the cluster, since they may hold records; those that never joined go, the last one first.
    """
    names = snapshot.cluster.names
    asked = _asked(pool, found, snapshot)
    now = max(int(found["spec"].get("replicas", 0)), asked, _hibernated(found))
    needed = now
    while needed > 1 and snapshot.joined(names.pod(pool.name, needed - 1)) is False:
        needed -= 1
    least = min(needed, asked)
    if pool.replicas < least:
        unknown = snapshot.joined(names.pod(pool.name, least - 1)) is None
        return _Scale(now, asked, (_too_few(pool, least, unknown=unknown),))
    return _Scale(
        now,
        asked,
        dismiss=now > max(min(asked, pool.replicas), needed),
        extra=_extra(pool, [names.pod(pool.name, ordinal) for ordinal in range(asked, needed)]),
    )


def _too_few(pool: Pool, least: int, *, unknown: bool) -> Wait:
    if unknown:
        return Wait(
            Gate.UNKNOWN_BROKER,
            f"pool {pool.name} shall have {pool.replicas} brokers: which of those that are there are part of the"
            f" cluster, only its metadata leader can tell, and none answers. If they hibernate, set replicas back to"
            f" {least} and wake them up before",
        )
    return Wait(
        Gate.SHRINK_UNSUPPORTED,
        f"pool {pool.name} has {least} brokers and does not shrink to {pool.replicas} yet:"
        f" set replicas back to {least}",
    )


def _extra(pool: Pool, pods: list[str]) -> Wait | None:
    """Brokers beyond those that the operator asked for, as long as the spec does not ask for them either."""
    if not pods or pool.replicas >= int(pods[-1].rpartition("-")[2]) + 1:
        return None
    return Wait(
        Gate.SCALED_BY_HAND,
        f"{', '.join(pods)} came by scaling the StatefulSet, not by the spec, and joined: they stay, as they may hold"
        f" records; set replicas of pool {pool.name} to {int(pods[-1].rpartition('-')[2]) + 1}",
    )


def _hibernated(found: Manifest) -> int:
    """How many brokers were stopped together, and come back together; 0 where none were."""
    return _number(found["metadata"].get("annotations", {}).get(HIBERNATED, "")) or 0


def _number(told: str) -> int | None:
    return int(told) if told.isdecimal() and 1 <= int(told) <= 1000 else None


def _asked(pool: Pool, found: Manifest, snapshot: Snapshot) -> int:
    """How many brokers the operator asked for last."""
    told = _number(found["metadata"].get("annotations", {}).get(REPLICAS, ""))
    if told is not None:
        return told
    return int(found["spec"].get("replicas", 0)) or max(1, *_left(pool, snapshot), 1)


def _first_replicas(pool: Pool, snapshot: Snapshot) -> int:
    """A cluster starts with all its brokers; a pool that is added later starts with one.

    Where claims are left, of a StatefulSet that someone deleted, the brokers on them come back together: some of them
    alone may not be a majority.
    """
    founded = bool(snapshot.cluster_ids())
    if not founded or not snapshot.sets():
        return max(pool.replicas, *_left(pool, snapshot), 1)
    return max(1, *_left(pool, snapshot), 1)


def _left(pool: Pool, snapshot: Snapshot) -> list[int]:
    """For each claim of the pool that ever had a volume: how many brokers there were at least."""
    return [claim.ordinal + 1 for claim in snapshot.claims.values() if claim.pool == pool.name and claim.bound]


def _resized(pool: Pool, wanted: PodInputs, applied: PodInputs, snapshot: Snapshot) -> Wait | None:
    """Another storage than the pool has. A size may always go back to what the claims have, however they got it."""
    size, have = _size(wanted.storage), volume_size(pool.name, snapshot)
    same = _without_size(wanted.storage) == _without_size(applied.storage)
    amounts = {amount_of(one) for one in (_size(applied.storage), have) if one is not None}
    if same and (size is None or amount_of(size) in amounts):
        return None
    changes = "; ".join(replace(wanted, storage=applied.storage).differences(wanted))
    back = f"set size back to {have}" if same and have else "set it back"
    return Wait(Gate.RESIZE_UNSUPPORTED, f"volumes of pool {pool.name} do not change yet ({changes}): {back}")


def _size(storage: dict[str, Any]) -> str | None:
    volume = storage.get("claim") or storage.get("local") or {}
    return volume.get("size")


def _without_size(storage: dict[str, Any]) -> dict[str, Any]:
    return {kind: {name: value for name, value in told.items() if name != "size"} for kind, told in storage.items()}


def _applied(found: Manifest) -> PodInputs | None:
    try:
        return PodInputs.parse(found["metadata"]["annotations"][RENDERED_FROM])
    except (KeyError, ValueError, TypeError):
        return None
