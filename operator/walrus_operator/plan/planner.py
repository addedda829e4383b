"""The plan: repairs first, then growth, a roll, configuration. A closed gate holds up what it guards, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from walrus_operator.api.cluster import ClusterSpec, DeletionPolicy
from walrus_operator.api.releases import RELEASES, Table
from walrus_operator.desired.build import Facts, PoolFacts, budget, build, image_of
from walrus_operator.desired.manifest import Owner, sealed
from walrus_operator.desired.names import REVISION, ROLL
from walrus_operator.desired.services import places
from walrus_operator.objects import (
    STATEFUL_SET,
    Manifest,
    Ref,
    ref_of,
)
from walrus_operator.observe.pods import orders_of
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.accepted import last_accepted, present_spec
from walrus_operator.plan.actions import (
    Action,
    Dismiss,
    Gate,
    Grow,
    Plan,
    Shrink,
    Wait,
)
from walrus_operator.plan.advertising import advertise
from walrus_operator.plan.budget import unavailable_max
from walrus_operator.plan.configuration import configure, remembered
from walrus_operator.plan.deletion import hold_deletion
from walrus_operator.plan.departing import Next, come_back, depart, gone, left_behind, noted, take_back
from walrus_operator.plan.draining import hand_over, handing_over
from walrus_operator.plan.finalizing import finalize
from walrus_operator.plan.founding import bootstrap, restart_founder, unfounded
from walrus_operator.plan.holding import held
from walrus_operator.plan.needs import forbidden, held_up, is_blind, possible
from walrus_operator.plan.pausing import paused
from walrus_operator.plan.placing import place
from walrus_operator.plan.pools import PoolPlan, plan_pools, without_last
from walrus_operator.plan.repairs import applies, make_secret, prunes, secret_taken, taken, unbound
from walrus_operator.plan.replacing import replace_lost
from walrus_operator.plan.resizing import enlarge
from walrus_operator.plan.roll import outdated, roll, roll_broken
from walrus_operator.plan.spreading import too_few_zones
from walrus_operator.plan.stranded import noted_disks
from walrus_operator.plan.upgrading import is_tried, misfit, refused_release


def plan(
    spec: ClusterSpec | None,
    snapshot: Snapshot,
    default_image: str,
    invalid: tuple[Wait, ...] = (),
    *,
    operator_namespace: str,
    releases: Table = RELEASES,
) -> Plan:
    """What comes next for this cluster. What disrupts or changes the number of brokers are steps: one in each pass.

    A spec that is refused, or that cannot be parsed (None; `invalid` says why), changes nothing: the last one that was
    accepted stays in force, and repairs go on.
    """
    stop = _stopped(snapshot)
    if stop is not None:
        return Plan(waits=(stop, *invalid), spec=last_accepted(snapshot) or spec)
    if is_blind(snapshot):
        waits = (*forbidden(snapshot).values(), *invalid)
        return Plan(_guard(snapshot), waits=waits, spec=last_accepted(snapshot) or spec)
    if spec is not None:
        pools, refused = plan_pools(spec, image_of(spec, default_image), snapshot)
        release = refused_release(spec, snapshot, releases)
        refused = (*refused, *((release,) if release is not None else ()))
        if not refused:
            return _plan(spec, pools, snapshot, (), operator_namespace, releases, accepted=True)
    else:
        refused = invalid
    kept = last_accepted(snapshot)
    if kept is None:
        return Plan((*hold_deletion(snapshot.cluster), *_guard(snapshot)), waits=refused)
    pools, _ = plan_pools(kept, image_of(kept, default_image), snapshot)
    # Repairs go on, a StatefulSet that someone deleted comes back; nobody is added, and nobody begins to go.
    pools = {name: _as_it_is(name, pool, snapshot) for name, pool in pools.items()}
    return _plan(kept, pools, snapshot, refused, operator_namespace, releases, accepted=False)


def _as_it_is(name: str, pool: PoolPlan, snapshot: Snapshot) -> PoolPlan:
    """The plan of a pool without anyone who comes or begins to go; who has begun to goes on."""
    begun = snapshot.cluster.names.pod(name, pool.now.replicas - 1) in snapshot.departures()
    return replace(pool, target=min(pool.target, pool.now.asked), dismissed=None, leaving=pool.leaving and begun)


def _plan(
    spec: ClusterSpec,
    pools: dict[str, PoolPlan],
    snapshot: Snapshot,
    refused: tuple[Wait, ...],
    operator_namespace: str,
    releases: Table,
    *,
    accepted: bool,
) -> Plan:
    owner = Owner(snapshot.cluster.names, snapshot.cluster.uid)
    founding = bootstrap(spec, snapshot)
    named = {pool.name for pool in spec.pools}
    over = {name for name, pool in pools.items() if name not in named and pool.over and _is_empty(name, snapshot)}
    pools = {name: pool for name, pool in pools.items() if name not in over}
    facts = Facts(
        owner,
        {name: pool.now for name, pool in pools.items()},
        founding,
        unavailable_max(snapshot),
        present_spec(snapshot) if accepted else None,
        next(iter(snapshot.cluster_ids()), ""),
        remembered(spec, snapshot),
        operator_namespace=operator_namespace,
        hibernates=spec.hibernate,
        departures=noted(snapshot, pools),
        roll=snapshot.cluster.roll,
        disks=noted_disks(snapshot),
        remade=snapshot.remade(),
    )
    desired = build(spec, facts)
    theirs = taken(desired, snapshot) | secret_taken(snapshot)
    told, pending = advertise(spec, snapshot, places({name: pool.now.replicas for name, pool in pools.items()}))
    placed, unplaced = place(snapshot)
    repairs: tuple[Action, ...] = (
        *hold_deletion(snapshot.cluster),
        *make_secret(owner, snapshot),
        *applies(desired, snapshot),
        *prunes(desired, snapshot, over),
        *unbound(pools, snapshot),
        *(left_behind(snapshot, pools) if spec.deletion_policy is DeletionPolicy.DELETE else ()),
        *told,
        *placed,
    )
    revisions = {name: pool.now.inputs.revision() for name, pool in pools.items()}
    old = tuple(pod.name for pod in outdated(snapshot, revisions))
    steps, waits = _steps(spec, snapshot, pools, facts, revisions, releases)
    absent = {Ref(STATEFUL_SET.name, owner.names.namespace, owner.names.pool(name)) for name in snapshot.remade()}
    return Plan(
        possible(repairs, theirs.keys(), owner.names),
        tuple(step for step in steps if not held_up(step, theirs.keys() | absent, owner.names)),
        possible((*configure(spec, snapshot), *finalize(spec, snapshot, old)), theirs.keys(), owner.names),
        waits=(*dict.fromkeys(theirs.values()), *unplaced, *waits, *pending, *refused),
        outdated=old,
        spec=spec,
    )


def _guard(snapshot: Snapshot) -> tuple[Action, ...]:
    """The budget alone: whatever else is held up, it follows what the cluster can spare."""
    owner = Owner(snapshot.cluster.names, snapshot.cluster.uid)
    there = sum(int(found["spec"].get("replicas", 0)) for found in snapshot.sets().values())
    wanted = [sealed(made) for made in budget(owner, there, unavailable_max(snapshot))]
    return possible(applies(wanted, snapshot), taken(wanted, snapshot).keys(), owner.names)


def _steps(
    spec: ClusterSpec,
    snapshot: Snapshot,
    pools: dict[str, PoolPlan],
    now: Facts,
    revisions: Mapping[str, str],
    releases: Table,
) -> tuple[tuple[Action, ...], tuple[Wait, ...]]:
    """What can happen to brokers next, the most urgent first, each pool for itself: what one meets stops no other.

    Who never joined the cluster holds up growth and nothing else. Nothing happens to a cluster that hibernates. Brokers
    go once all others are as they shall be: a pool that takes the place of another one grows first.
    """
    growing = enlarge(now.owner, snapshot, pools)
    if spec.hibernate:
        return (), (*_asleep(pools), *_small(growing))
    unseen = {name: wait for name in revisions if (wait := _unseen(snapshot, name, revisions[name])) is not None}
    image = pools[spec.pools[0].name].now.inputs.image
    alien = misfit(image, snapshot, releases)
    seen = {name: revision for name, revision in revisions.items() if name not in unseen and alien is None}
    founder = restart_founder(spec, snapshot)
    replacing = replace_lost(now.owner, snapshot, pools, spec.lost_after_or_never)
    homeless = too_few_zones(spec, snapshot)
    # A broker that does not understand the others is never ready: what it is must be told before that it is not.
    told = tuple(wait for wait in (alien, homeless, *replacing.waits, *come_back(snapshot)) if wait is not None)
    urgent: tuple[Action, ...] = (
        *growing.steps,
        *_dismiss(spec, pools, now),
        *_shrink(spec, snapshot, pools, now),
        *take_back(snapshot, pools),
        *replacing.steps,
        *((founder,) if founder is not None else ()),
        *roll_broken(snapshot, seen),
    )
    missing = unfounded(snapshot) or _not_serving(snapshot, pools, everyone=False)
    if missing is not None:
        return urgent, (*told, *(() if urgent else (missing,)), *growing.waits)
    newcomer = _not_serving(snapshot, pools, everyone=True)
    noticed = all(_is_noticed(found) for found in snapshot.sets().values())
    grown = _grow(spec, snapshot, pools, now) if newcomer is None and noticed else ()
    tries = image if is_tried(spec, image, snapshot, releases) else ""
    rolling, hold = roll(snapshot, seen, tries), held(spec, snapshot)
    waits = [wait for wait in (newcomer, *unseen.values(), hold if rolling else None) if wait is not None]
    if hold is not None:
        rolling = roll(snapshot, seen, tries, is_held=True)
    emptied = Next()
    if not grown and newcomer is None and noticed and pools.keys() <= snapshot.sets().keys():
        emptied = _emptied(now.owner, snapshot, pools, hold or _restarting(rolling))
    waits = [*told, *waits, *emptied.waits, *growing.waits]
    return (*urgent, *grown, *rolling, *emptied.steps), tuple(dict.fromkeys(waits))


def _emptied(owner: Owner, snapshot: Snapshot, pools: dict[str, PoolPlan], hold: Wait | None) -> Next:
    """The next step of brokers that hand over what they have, to go or as someone said so: never two at once."""
    busy = handing_over(snapshot, pools)
    leaving = depart(owner, snapshot, pools, hold or busy)
    if leaving.steps or leaving.waits:
        return leaving
    ordered = hand_over(owner, snapshot, pools, hold)
    return Next(ordered.steps, (*ordered.waits, *((busy,) if busy is not None else ())))


def _restarting(rolling: tuple[Action, ...]) -> Wait | None:
    return Wait(Gate.POD_PENDING, "brokers are emptied once the others have restarted") if rolling else None


def _asleep(pools: dict[str, PoolPlan]) -> tuple[Wait, ...]:
    """Brokers that shall go from a cluster that hibernates hand over what they have once they are awake."""
    asked = {name: pool for name, pool in pools.items() if pool.leaving}
    if not asked:
        return ()
    fewer = ", ".join(f"pool {name} from {pool.now.replicas} to {pool.target}" for name, pool in asked.items())
    return (
        Wait(Gate.HIBERNATED, f"brokers hand over what they have before they go ({fewer}): once hibernate is false"),
    )


def _small(growing: Next) -> tuple[Wait, ...]:
    """Claims of a cluster that hibernates: their file systems grow only with their pods."""
    if not growing.steps:
        return ()
    return (Wait(Gate.HIBERNATED, f"{growing.steps[0]}: once hibernate is false"),)


def _shrink(spec: ClusterSpec, snapshot: Snapshot, pools: dict[str, PoolPlan], now: Facts) -> list[Shrink]:
    """Pods of brokers whose disks left the cluster go, whatever the spec says since: they never serve again."""
    made = []
    for name, pool in pools.items():
        disk = gone(name, snapshot, pools) if name in snapshot.sets() and pool.now.replicas else ""
        if disk:
            fewer = without_last(pool.now)
            made.append(Shrink(_set(spec, now, name, fewer), now.owner.names.pod(name, fewer.replicas), disk))
    return made


def _is_empty(pool: str, snapshot: Snapshot) -> bool:
    """Whether the StatefulSet has no pods, and asks for none."""
    found = snapshot.sets().get(pool)
    asks = found is not None and int(found["spec"].get("replicas", 0)) > 0
    return not asks and not any(pod.pool == pool for pod in snapshot.pods.values())


def _unseen(snapshot: Snapshot, pool: str, revision: str) -> Wait | None:
    """A StatefulSet that has just changed: a pod deleted now might be made anew from what was before."""
    found = snapshot.sets().get(pool)
    if found is None:
        return None
    if pool in snapshot.remade():
        return Wait(Gate.POD_PENDING, f"the StatefulSet of pool {pool} is made anew over its pods")
    template = found["spec"]["template"]["metadata"]
    made_of, ordered = template.get("annotations", {}).get(REVISION), orders_of(template).get(ROLL, "")
    if _is_noticed(found) and made_of == revision and ordered == snapshot.cluster.roll:
        return None
    return Wait(Gate.POD_PENDING, f"Kubernetes has not taken note of the StatefulSet of pool {pool} yet")


def _is_noticed(found: Manifest) -> bool:
    """Whether Kubernetes has taken note of the StatefulSet as it is: until then its pods are those of before."""
    return bool(found.get("status", {}).get("observedGeneration", 0) >= found["metadata"].get("generation", 0))


def _stopped(snapshot: Snapshot) -> Wait | None:
    """What keeps the operator from doing anything at all."""
    stop = paused(snapshot)
    if stop is not None:
        return stop
    told = snapshot.cluster_ids()
    if len(told) > 1:
        return Wait(
            Gate.AMBIGUOUS_IDENTITY,
            f"brokers belong to different clusters ({', '.join(sorted(told))}): nothing is done until someone has"
            " looked which disks are the right ones",
        )
    return None


def _dismiss(spec: ClusterSpec, pools: dict[str, PoolPlan], now: Facts) -> list[Dismiss]:
    """Brokers that never joined go, where nobody asks for them any more."""
    return [
        Dismiss(_set(spec, now, name, pool.dismissed), now.owner.names.pod(name, pool.dismissed.replicas))
        for name, pool in pools.items()
        if pool.dismissed is not None
    ]


def _grow(spec: ClusterSpec, snapshot: Snapshot, pools: dict[str, PoolPlan], now: Facts) -> tuple[Grow, ...]:
    """One broker more for each pool that shall have more, once all that are there serve."""
    return tuple(
        _bigger(spec, now, name, pool)
        for name, pool in pools.items()
        if pool.now.asked < pool.target and name in snapshot.sets()
    )


def _bigger(spec: ClusterSpec, now: Facts, name: str, pool: PoolPlan) -> Grow:
    asked = pool.now.asked + 1
    bigger = replace(pool.now, replicas=max(pool.now.replicas, asked), asked=asked)
    return Grow(_set(spec, now, name, bigger), name, bigger.replicas)


def _set(spec: ClusterSpec, now: Facts, pool: str, facts: PoolFacts) -> Manifest:
    """The StatefulSet of the pool, if the facts were these."""
    wanted = Ref(STATEFUL_SET.name, now.owner.names.namespace, now.owner.names.pool(pool))
    made = build(spec, replace(now, pools={**now.pools, pool: facts}))
    return next(manifest for manifest in made if ref_of(manifest) == wanted)


def _not_serving(snapshot: Snapshot, pools: dict[str, PoolPlan], *, everyone: bool) -> Wait | None:
    """The first broker that is not there, not ready, or does not answer: of those that joined, or of everyone.

    One that goes and has nothing left is nobody's loss. One that stays is, though it has nothing left either.
    """
    done = {disk for disk, drain in snapshot.drains.items() if drain.done}
    empty = {pod for pod, departure in snapshot.departures().items() if departure.disk in done}
    for name, pool in pools.items():
        if name not in snapshot.sets():
            continue
        for ordinal in range(pool.now.replicas):
            expected = snapshot.cluster.names.pod(name, ordinal)
            pod = snapshot.pods.get(expected)
            goes = ordinal >= pool.target
            if (goes and expected in empty) or (not everyone and snapshot.joined(expected) is False):
                continue
            if pod is None:
                told = f"kubectl describe statefulset {snapshot.cluster.names.pool(name)} tells why, if it stays so"
                return Wait(Gate.POD_PENDING, f"pod {expected} is not there: {told}")
            broker = snapshot.brokers.get(expected)
            if pod.deleting or not pod.ready:
                why = pod.trouble or "; ".join(broker.missing if broker is not None else ())
                return Wait(Gate.POD_PENDING, f"{expected} does not serve yet{why and ': '}{why}")
            if broker is None:
                return Wait(Gate.UNKNOWN_BROKER, f"{expected} is ready but its Admin API does not answer")
    return None
