"""The plan: repairs first, then growth, a roll, configuration. A closed gate holds up what it guards, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.desired.build import Facts, PoolFacts, build, image_of
from walrus_operator.desired.config import entries
from walrus_operator.desired.manifest import Owner
from walrus_operator.desired.names import LABEL_CLUSTER, REVISION
from walrus_operator.objects import (
    CONFIG_MAP,
    SERVICE,
    STATEFUL_SET,
    Manifest,
    Ref,
    owned_by,
    ref_of,
    uid_of,
)
from walrus_operator.observe.snapshot import Replication, Snapshot
from walrus_operator.plan.actions import Action, Apply, Gate, Grow, Plan, Prune, SetConfig, SetReplication, Wait
from walrus_operator.plan.budget import unavailable_max
from walrus_operator.plan.diff import differs
from walrus_operator.plan.founding import bootstrap, restart_founder, unfounded
from walrus_operator.plan.pools import PoolPlan, plan_pools
from walrus_operator.plan.roll import outdated, roll, roll_broken

_PRUNABLE = frozenset({CONFIG_MAP.name, SERVICE.name})


def plan(spec: ClusterSpec, snapshot: Snapshot, image_repository: str) -> Plan:
    """What comes next for this cluster. At most one action is disruptive or changes the number of brokers."""
    stop = _stopped(snapshot)
    if stop is not None:
        return Plan(waits=(stop,))
    pools, refused = plan_pools(spec, image_of(spec, image_repository), snapshot)
    refused += tuple(wait for pool in pools.values() for wait in pool.refused)
    owner = Owner(snapshot.cluster.names, snapshot.cluster.uid)
    founding = bootstrap(spec, snapshot)
    facts = Facts(owner, {name: pool.now for name, pool in pools.items()}, founding, unavailable_max(snapshot))
    desired = build(spec, facts)

    taken = _taken(desired, snapshot)
    repairs: tuple[Action, ...] = (*_applies(desired, snapshot), *_prunes(desired, snapshot))
    if taken:
        return Plan(tuple(action for action in repairs if not _touches(action, taken)), (*taken.values(), *refused))
    revisions = {name: pool.now.inputs.revision() for name, pool in pools.items()}
    steps, waits = _step(spec, snapshot, pools, facts, revisions)
    return Plan(
        (*repairs, *steps, *_configure(spec, snapshot)),
        (*waits, *refused),
        tuple(pod.name for pod in outdated(snapshot, revisions)),
    )


def _step(
    spec: ClusterSpec, snapshot: Snapshot, pools: dict[str, PoolPlan], now: Facts, revisions: Mapping[str, str]
) -> tuple[tuple[Action, ...], tuple[Wait, ...]]:
    """What happens to brokers: at most one thing."""
    repair = restart_founder(spec, snapshot) or roll_broken(snapshot, revisions)
    if repair is not None:
        return (repair,), ()
    steps, waits = _grow(spec, snapshot, pools, now)
    if steps or waits:
        return steps, waits
    unseen = _unseen(snapshot, revisions)
    if unseen is not None:
        return (), (unseen,)
    step = roll(snapshot, revisions)
    return ((step,) if step is not None else ()), ()


def _unseen(snapshot: Snapshot, revisions: Mapping[str, str]) -> Wait | None:
    """A StatefulSet that has just changed: a pod deleted now might be made anew from what was before."""
    for name, found in snapshot.sets().items():
        seen = found.get("status", {}).get("observedGeneration", 0)
        made_of = found["spec"]["template"]["metadata"].get("annotations", {}).get(REVISION)
        if name in revisions and (seen < found["metadata"].get("generation", 0) or made_of != revisions[name]):
            return Wait(Gate.POD_PENDING, f"Kubernetes has not taken note of the StatefulSet of pool {name} yet")
    return None


def _stopped(snapshot: Snapshot) -> Wait | None:
    """What keeps the operator from doing anything at all."""
    if snapshot.cluster.pause is not None:
        return Wait(Gate.PAUSED, f"{snapshot.cluster.pause or 'no reason given'}; take the annotation away to go on")
    told = snapshot.cluster_ids()
    if len(told) > 1:
        return Wait(
            Gate.AMBIGUOUS_IDENTITY,
            f"brokers belong to different clusters ({', '.join(sorted(told))}): nothing is done until someone has"
            " looked which disks are the right ones",
        )
    return None


def _taken(desired: list[Manifest], snapshot: Snapshot) -> dict[Ref, Wait]:
    """Objects of the wanted names that belong to someone else."""
    taken = {}
    for manifest in desired:
        found = snapshot.objects.get(ref_of(manifest))
        if found is not None and not owned_by(found, snapshot.cluster.uid):
            taken[ref_of(manifest)] = Wait(
                Gate.NAME_TAKEN,
                f"{ref_of(manifest)} is there and belongs to something else"
                f" (label {LABEL_CLUSTER}={found['metadata'].get('labels', {}).get(LABEL_CLUSTER, '')}):"
                " delete it, or give this cluster another name. What is left of a former cluster of this name goes by"
                " itself",
            )
    return taken


def _touches(action: Action, refs: dict[Ref, Wait]) -> bool:
    return isinstance(action, Apply) and ref_of(action.manifest) in refs


def _applies(desired: list[Manifest], snapshot: Snapshot) -> list[Apply]:
    made = []
    for manifest in desired:
        found = snapshot.objects.get(ref_of(manifest))
        if found is None:
            made.append(Apply(manifest, new=True))
        elif differs(manifest, found) and "deletionTimestamp" not in found["metadata"]:
            made.append(Apply(manifest, new=False))
    return made


def _prunes(desired: list[Manifest], snapshot: Snapshot) -> list[Prune]:
    """What the operator made and nobody wants any more; never a StatefulSet, never a claim."""
    wanted = {ref_of(manifest) for manifest in desired}
    return [
        Prune(ref, uid_of(found))
        for ref, found in sorted(snapshot.objects.items(), key=lambda item: item[0])
        if ref.kind in _PRUNABLE
        and ref not in wanted
        and owned_by(found, snapshot.cluster.uid)
        and "deletionTimestamp" not in found["metadata"]
    ]


def _grow(
    spec: ClusterSpec, snapshot: Snapshot, pools: dict[str, PoolPlan], now: Facts
) -> tuple[tuple[Action, ...], tuple[Wait, ...]]:
    """One broker more, once all that are there serve."""
    growing = [name for name, pool in pools.items() if pool.now.replicas < pool.target and name in snapshot.sets()]
    wait = unfounded(snapshot) or _not_serving(snapshot, pools)
    if wait is not None:
        return (), (wait,)
    if not growing:
        return (), ()
    name = growing[0]
    bigger = PoolFacts(pools[name].now.inputs, pools[name].now.replicas + 1)
    facts = replace(now, pools={**now.pools, name: bigger})
    wanted = Ref(STATEFUL_SET.name, now.owner.names.namespace, now.owner.names.pool(name))
    manifest = next(manifest for manifest in build(spec, facts) if ref_of(manifest) == wanted)
    return (Grow(manifest, name, bigger.replicas),), ()


def _not_serving(snapshot: Snapshot, pools: dict[str, PoolPlan]) -> Wait | None:
    """The first broker that is not there, not ready, or does not answer."""
    for name, pool in pools.items():
        if name not in snapshot.sets():
            continue
        for ordinal in range(pool.now.replicas):
            pod = snapshot.pods.get(snapshot.cluster.names.pod(name, ordinal))
            expected = snapshot.cluster.names.pod(name, ordinal)
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


def _configure(spec: ClusterSpec, snapshot: Snapshot) -> tuple[Action, ...]:
    """What the metadata do not say yet."""
    return (*_replicate(spec, snapshot), *_set_entries(spec, snapshot))


def _replicate(spec: ClusterSpec, snapshot: Snapshot) -> tuple[SetReplication, ...]:
    """Once so many brokers serve: before, no new segment would find its write quorum."""
    wanted = Replication(spec.replication.factor, spec.replication.acknowledged_by)
    told = snapshot.replication()
    members = [name for name, broker in snapshot.brokers.items() if broker is not None and broker.cluster_id]
    serving = sum(snapshot.pods[name].ready for name in members)
    return () if told in (None, wanted) or serving < wanted.factor else (SetReplication(wanted),)


def _set_entries(spec: ClusterSpec, snapshot: Snapshot) -> tuple[SetConfig, ...]:
    """Entries that the brokers do not have yet; keys that are not ours stay as they are."""
    if snapshot.config is None:
        return ()
    wanted = entries(spec)
    different = {key: value for key, value in wanted.items() if snapshot.config.entries.get(key) != value}
    return (SetConfig(different, snapshot.config.version),) if different else ()
