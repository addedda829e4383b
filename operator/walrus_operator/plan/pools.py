"""How many brokers each pool has now and what its pods are made from: what is there, moved one step at most. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from walrus_operator.api.cluster import ClusterSpec, Pool
from walrus_operator.api.units import amount_of
from walrus_operator.desired.build import PoolFacts
from walrus_operator.desired.claims import size_of, template_size
from walrus_operator.desired.names import HIBERNATED, RENDERED_FROM, REPLICAS
from walrus_operator.desired.statefulset import Former, PodInputs, pod_inputs
from walrus_operator.objects import Manifest
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.accepted import last_accepted
from walrus_operator.plan.actions import Gate, Wait
from walrus_operator.plan.auto_growth import wanted_size
from walrus_operator.plan.shrinking import too_few


@dataclass(frozen=True)
class PoolPlan:
    """One pool: what its StatefulSet shall be now, how many brokers it shall have in the end, what is refused."""

    now: PoolFacts
    target: int
    refused: tuple[Wait, ...] = ()
    dismissed: PoolFacts | None = None
    """The same without the last broker, where that one never joined and nobody asks for it."""
    leaving: bool = False
    """Whether the last broker is part of the cluster and nobody asks for it."""
    size: str | None = None
    """The size that its claims shall have; None where it has none, or they stay as they are."""

    @property
    def over(self) -> bool:
        """Whether it has no brokers any more, and shall have none."""
        return self.target == 0 and self.now.replicas == 0


def plan_pools(spec: ClusterSpec, image: str, snapshot: Snapshot) -> tuple[dict[str, PoolPlan], tuple[Wait, ...]]:
    """Plans of the pools in the spec and of those that are there without it, and everything that is refused.

    A refused spec changes nothing at all.
    """
    sets = snapshot.sets()
    secret = snapshot.cluster.names.secret if snapshot.shares_secret() else ""
    plans = {
        pool.name: _plan(pool, pod_inputs(spec, pool, image, secret), sets.get(pool.name), snapshot)
        for pool in spec.pools
    }
    unnamed = {name: _without(name, sets[name], snapshot) for name in sorted(set(sets) - set(plans))}
    plans |= {name: made for name, made in unnamed.items() if made is not None}
    shrink = too_few(
        {name: _leaving(name, plan, snapshot) for name, plan in plans.items()},
        {name: plan.target for name, plan in plans.items()},
        snapshot,
    )
    refused = [wait for made in plans.values() for wait in made.refused]
    refused += [_unreadable(name) for name, made in unnamed.items() if made is None]
    return plans, (*refused, *((shrink,) if shrink is not None else ()))


def _unreadable(name: str) -> Wait:
    return Wait(
        Gate.SHRINK_REFUSED,
        f"pool {name} is not in spec.pools any more, and nobody can tell from its StatefulSet what its pods were made"
        " from: put it back",
    )


def _without(name: str, found: Manifest, snapshot: Snapshot) -> PoolPlan | None:
    """A pool that the spec does not name any more: its brokers go as they are, and then its StatefulSet.

    None where nobody can tell how they are.
    """
    applied = _applied(found)
    if applied is None:
        return None
    former = Former(applied, found["spec"]["template"]) if applied.others else None
    scale = _scale(name, 0, found, snapshot)
    size = _template(name, None, applied, found, snapshot)
    return _scaled(PoolPlan(PoolFacts(applied, scale.now, scale.asked, former, size), 0), scale)


def _leaving(name: str, plan: PoolPlan, snapshot: Snapshot) -> list[str]:
    """Brokers of the pool that are part of the cluster, and shall not be: those that go."""
    pods = [snapshot.cluster.names.pod(name, ordinal) for ordinal in range(plan.target, plan.now.replicas)]
    return [pod for pod in pods if snapshot.joined(pod)]


def volume_size(pool: str, snapshot: Snapshot) -> str | None:
    """What the claims of a pool have: the smallest of them, or what its StatefulSet asks for; None without claims."""
    sizes = [claim.has for claim in snapshot.claims_of(pool)]
    if sizes:
        return min(sizes, key=lambda size: amount_of(size) or 0)
    found = snapshot.sets().get(pool)
    return template_size(found) if found is not None else None


def _plan(pool: Pool, wanted: PodInputs, found: Manifest | None, snapshot: Snapshot) -> PoolPlan:
    if found is None:
        first = _first_replicas(pool, snapshot)
        return PoolPlan(PoolFacts(wanted, first, first), pool.replicas)
    applied, size = _applied(found), wanted_size(pool, snapshot)
    refused: tuple[Wait, ...] = ()
    if applied is not None:
        wanted = replace(wanted, others=applied.others)
        wait = _resized(pool, wanted, applied, found, snapshot)
        refused = (wait,) if wait is not None else ()
        wanted = replace(wanted, storage=applied.storage)
    former = Former(applied, found["spec"]["template"]) if applied is not None and applied.others else None
    scale = _scale(pool.name, pool.replicas, found, snapshot)
    template = _template(pool.name, size, wanted, found, snapshot)
    facts = PoolFacts(wanted, scale.now, scale.asked, former, template)
    return _scaled(PoolPlan(facts, pool.replicas, refused, size=size), scale)


def _template(pool: str, wanted: str | None, inputs: PodInputs, found: Manifest, snapshot: Snapshot) -> str | None:
    """What the StatefulSet shall make claims of: it cannot change as long as there is one, and follows the claims when
    it is made anew. None: as the inputs of its pods say.
    """
    size = template_size(found)
    if pool in snapshot.remade() and wanted is not None and is_large_enough(pool, wanted, snapshot):
        size = wanted
    first = size_of(inputs.storage)
    same = size is None or first is None or amount_of(size) == amount_of(first)
    return None if same else size


def is_large_enough(pool: str, size: str, snapshot: Snapshot) -> bool:
    """Whether every volume of the pool has the size, whatever its file system still has."""
    return all(claim.waits_since is not None or not claim.lacks(size) for claim in snapshot.claims_of(pool))


def _scaled(plan: PoolPlan, scale: _Scale) -> PoolPlan:
    if scale.dismiss:
        return replace(plan, dismissed=without_last(plan.now))
    return replace(plan, leaving=scale.leave)


def without_last(facts: PoolFacts) -> PoolFacts:
    """The pool with one broker less."""
    last = facts.replicas - 1
    return replace(facts, replicas=last, asked=min(facts.asked, last))


@dataclass(frozen=True)
class _Scale:
    now: int
    asked: int
    dismiss: bool
    leave: bool


def _scale(pool: str, wanted: int, found: Manifest, snapshot: Snapshot) -> _Scale:
    """How many brokers there shall be now. Whoever scaled the StatefulSet since is not believed.

    Too few come back at once, all together: some of them alone may not be a majority. Of too many the last one goes: at
    once where it never joined, and otherwise once it is empty, since it may hold the only copies of records.
    """
    names = snapshot.cluster.names
    asked = _asked(pool, found, snapshot)
    now = max(int(found["spec"].get("replicas", 0)), asked, _hibernated(found))
    needed = now
    while needed > min(wanted, 1) and snapshot.joined(names.pod(pool, needed - 1)) is False:
        needed -= 1
    return _Scale(now, asked, dismiss=now > max(min(asked, wanted), needed), leave=now > wanted)


def _hibernated(found: Manifest) -> int:
    """How many brokers were stopped together, and come back together; 0 where none were."""
    return _number(found["metadata"].get("annotations", {}).get(HIBERNATED, "")) or 0


def _number(told: str) -> int | None:
    return int(told) if told.isdecimal() and int(told) <= 1000 else None


def _asked(pool: str, found: Manifest, snapshot: Snapshot) -> int:
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
        return max(pool.replicas, *_left(pool.name, snapshot), 1)
    return max(1, *_left(pool.name, snapshot), 1)


def _left(pool: str, snapshot: Snapshot) -> list[int]:
    """For each claim of the pool that ever had a volume and did not leave the cluster: how many brokers there were."""
    gone = {departure.claim for departure in snapshot.departures().values()}
    return [
        claim.ordinal + 1
        for claim in snapshot.claims.values()
        if claim.pool == pool and claim.bound and claim.uid not in gone
    ]


def _resized(pool: Pool, wanted: PodInputs, applied: PodInputs, found: Manifest, snapshot: Snapshot) -> Wait | None:
    """Why the storage cannot be what the spec says. A size may grow, and may always go back to what the claims have,
    however they got it.
    """
    size, have = size_of(wanted.storage), volume_size(pool.name, snapshot)
    if _without_size(wanted.storage) != _without_size(applied.storage):
        changes = "; ".join(replace(wanted, storage=applied.storage).differences(wanted))
        return Wait(
            Gate.RESIZE_REFUSED, f"the kind of storage of pool {pool.name} cannot change ({changes}): set it back"
        )
    if size is None or have is None:
        return None
    kept = (template_size(found), _accepted_size(pool.name, snapshot))
    is_known = amount_of(size) in {amount_of(one) for one in kept if one is not None}
    if (amount_of(size) or 0) < (amount_of(have) or 0) and not is_known:
        detail = f"volumes never get smaller, and those of pool {pool.name} have {have}: set size back to {have}"
        return Wait(Gate.RESIZE_REFUSED, detail)
    stays = snapshot.stays_small.get(pool.name)
    if stays is None:
        return None
    if not stays.refused:
        return Wait(Gate.UNANSWERED, f"whether {stays.claim} can grow to {size} is asked again: {stays.said}")
    return Wait(
        Gate.RESIZE_REFUSED,
        f"volumes of pool {pool.name} cannot grow to {size}, as Kubernetes says of {stays.claim} ({stays.said}): set"
        f" size back to {have}, or add brokers",
    )


def _accepted_size(pool: str, snapshot: Snapshot) -> str | None:
    """The size in the spec that was accepted last, which claims may have outgrown since."""
    kept = last_accepted(snapshot)
    return next((one.storage.size for one in kept.pools if one.name == pool), None) if kept is not None else None


def _without_size(storage: dict[str, Any]) -> dict[str, Any]:
    return {kind: {name: value for name, value in told.items() if name != "size"} for kind, told in storage.items()}


def _applied(found: Manifest) -> PodInputs | None:
    try:
        return PodInputs.parse(found["metadata"]["annotations"][RENDERED_FROM])
    except (KeyError, ValueError, TypeError):
        return None
