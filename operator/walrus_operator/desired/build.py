"""All objects of a cluster, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.desired.config import (
    accepted_map,
    bootstrap_map,
    config_map,
    departures_map,
    disks_map,
    remade_map,
)
from walrus_operator.desired.departures import Departure
from walrus_operator.desired.disks import Disk
from walrus_operator.desired.manifest import Owner, object_of, sealed
from walrus_operator.desired.names import HIBERNATED, POD_NAME, REPLICAS, ROLL
from walrus_operator.desired.network import network_policy
from walrus_operator.desired.services import services
from walrus_operator.desired.statefulset import Former, PodInputs, stateful_set
from walrus_operator.objects import BUDGET, SERVICE_ACCOUNT, Manifest


@dataclass(frozen=True)
class PoolFacts:
    """What a pool's StatefulSet shall be now; it may lag behind the spec."""

    inputs: PodInputs
    replicas: int
    asked: int
    """Brokers that the operator asks for; not more than there are, which someone may have made more."""
    former: Former | None = None
    """Its pods, where a newer operator has made them from more than is known here."""
    size: str | None = None
    """Size of the claims that its StatefulSet makes, where they grew since its pods were made."""


@dataclass(frozen=True)
class Bootstrap:
    """One broker may found the cluster."""

    founder: str
    """Its pod. Once told it stays the one: pods may have started with it."""
    untold: str = ""
    """The uid of its pod, if that started before it could be told; "" otherwise."""


@dataclass(frozen=True)
class Facts:
    """What the manifests depend on besides the spec."""

    owner: Owner
    pools: Mapping[str, PoolFacts]
    """The StatefulSets that there shall be now, by pool."""
    bootstrap: Bootstrap | None
    """Set while a broker may found the cluster."""
    unavailable_max: int
    """Brokers that may be evicted now."""
    accepted: str | None = None
    """The spec as JSON, where it is to be kept as the last one that was accepted."""
    cluster_id: str = ""
    """Which cluster it is, to be kept beside it; "" before it is founded."""
    settings: frozenset[str] = frozenset()
    """Settings that brokers have from `config.dynamic`, to be kept beside it."""
    operator_namespace: str = ""
    """Where the operator runs, which asks brokers."""
    hibernates: bool = False
    """Whether all brokers are stopped. How many there are, and all that is made for them, stays as it is."""
    departures: Mapping[str, Departure] = field(default_factory=dict)
    """Brokers that go, and disks that left with their claims kept, by pod."""
    roll: str = ""
    """The order to restart that pods are made after; "" where there is none."""
    disks: Mapping[str, Disk] = field(default_factory=dict)
    """The disks of brokers, by pod."""
    remade: Mapping[str, Manifest] = field(default_factory=dict)
    """StatefulSets that are made anew and are not there, as they were, by pool."""


def build(spec: ClusterSpec, facts: Facts) -> list[Manifest]:
    """The manifests. The budget comes first: it guards what is there. StatefulSets come last, after what pods read."""
    owner = facts.owner
    made = budget(owner, sum(pool.replicas for pool in facts.pools.values()), facts.unavailable_max)
    if facts.accepted is not None:
        made.append(accepted_map(owner, facts.accepted, facts.cluster_id, facts.settings))
    if facts.departures:
        made.append(departures_map(owner, facts.departures))
    if facts.disks:
        made.append(disks_map(owner, facts.disks))
    if facts.remade:
        made.append(remade_map(owner, facts.remade))
    made += [_account(owner), config_map(owner, spec.config.log_level)]
    if facts.bootstrap is not None:
        founder = facts.bootstrap
        made.append(bootstrap_map(owner, founder.founder, founder.untold, spec.replication, spec.brokers))
    made += services(owner, spec, {name: pool.replicas for name, pool in facts.pools.items()})
    made += network_policy(owner, spec, facts.operator_namespace)
    for name, pool in facts.pools.items():
        made.append(_stateful_set(owner, name, pool, facts))
    return [sealed(manifest) for manifest in made]


def _stateful_set(owner: Owner, name: str, pool: PoolFacts, facts: Facts) -> Manifest:
    replicas = 0 if facts.hibernates else pool.replicas
    made = stateful_set(owner, name, pool.inputs, replicas, pool.former, pool.size)
    made["metadata"]["annotations"][REPLICAS] = str(pool.asked)
    if facts.hibernates:
        made["metadata"]["annotations"][HIBERNATED] = str(pool.replicas)
    # A template that is carried over may bear a former order.
    told = made["spec"]["template"]["metadata"]["annotations"]
    told.pop(ROLL, None)
    if facts.roll:
        told[ROLL] = facts.roll
    return made


def image_of(spec: ClusterSpec, default: str) -> str:
    """The image of the brokers: a version replaces the default's tag, whose digest belongs to that tag only."""
    if spec.image is not None:
        return spec.image
    named, _, digest = default.partition("@")
    repository, colon, tag = named.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = named, ""
    pinned = digest and tag in ("", spec.version)
    return f"{repository}:{spec.version}" + (f"@{digest}" if pinned else "")


def _account(owner: Owner) -> Manifest:
    """Brokers never talk to Kubernetes: their account has no token in their pods."""
    return object_of(owner, SERVICE_ACCOUNT, owner.names.account, automountServiceAccountToken=False)


def budget(owner: Owner, brokers: int, unavailable_max: int) -> list[Manifest]:
    """Below three brokers there is nothing to spare, and a budget would only keep machines from being serviced.

    A broker that runs and does not serve may always be evicted: nobody misses it, and its node could not be drained.
    """
    if brokers < 3:
        return []
    made = object_of(
        owner,
        BUDGET,
        owner.names.budget,
        spec={
            "maxUnavailable": unavailable_max,
            # Kubernetes gives up counting at a pod of which nobody says how many there shall be.
            "selector": {
                "matchLabels": owner.names.selector(),
                "matchExpressions": [{"key": POD_NAME, "operator": "Exists"}],
            },
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    )
    return [made]
