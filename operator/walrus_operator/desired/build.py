"""All objects of a cluster, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.desired.config import bootstrap_map, config_map
from walrus_operator.desired.manifest import Owner, object_of, sealed
from walrus_operator.desired.services import services
from walrus_operator.desired.statefulset import PodInputs, stateful_set
from walrus_operator.objects import BUDGET, SERVICE_ACCOUNT, Manifest


@dataclass(frozen=True)
class PoolFacts:
    """What a pool's StatefulSet shall be now; it may lag behind the spec."""

    inputs: PodInputs
    replicas: int


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


def build(spec: ClusterSpec, facts: Facts) -> list[Manifest]:
    """The manifests. A StatefulSet comes last: what its pods read is there before them."""
    owner = facts.owner
    made = [_account(owner), config_map(owner)]
    if facts.bootstrap is not None:
        made.append(bootstrap_map(owner, facts.bootstrap.founder, facts.bootstrap.untold, spec.replication))
    made += services(owner, spec)
    if sum(pool.replicas for pool in facts.pools.values()) >= 3:
        made.append(_budget(owner, facts.unavailable_max))
    for name, pool in facts.pools.items():
        made.append(stateful_set(owner, name, pool.inputs, spec.deletion_policy, pool.replicas))
    return [sealed(manifest) for manifest in made]


def image_of(spec: ClusterSpec, repository: str) -> str:
    """The image of the brokers."""
    return spec.image if spec.image is not None else f"{repository}:{spec.version}"


def _account(owner: Owner) -> Manifest:
    """Brokers never talk to Kubernetes: their account has no token in their pods."""
    return object_of(owner, SERVICE_ACCOUNT, owner.names.account, automountServiceAccountToken=False)


def _budget(owner: Owner, unavailable_max: int) -> Manifest:
    """Below three brokers there is nothing to spare, and a budget would only keep machines from being serviced."""
    return object_of(
        owner,
        BUDGET,
        owner.names.budget,
        spec={"maxUnavailable": unavailable_max, "selector": {"matchLabels": owner.names.selector()}},
    )
