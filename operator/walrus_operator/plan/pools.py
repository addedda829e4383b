"""How many brokers each pool has now and what its pods are made from: what is there, moved one step at most."""

from __future__ import annotations

from dataclasses import dataclass, replace

from walrus_operator.api.cluster import ClusterSpec, Pool
from walrus_operator.desired.build import PoolFacts
from walrus_operator.desired.names import RENDERED_FROM
from walrus_operator.desired.statefulset import PodInputs, pod_inputs
from walrus_operator.objects import Manifest
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import Gate, Wait


@dataclass(frozen=True)
class PoolPlan:
    """One pool: what its StatefulSet shall be now, how many brokers it shall have in the end, what is refused."""

    now: PoolFacts
    target: int
    refused: tuple[Wait, ...]


def plan_pools(spec: ClusterSpec, image: str, snapshot: Snapshot) -> tuple[dict[str, PoolPlan], tuple[Wait, ...]]:
    """Plans of the pools in the spec, and refusals of pools that are not in it any more."""
    sets = snapshot.sets()
    plans = {
        pool.name: _plan(pool, pod_inputs(spec, pool, image), sets.get(pool.name), snapshot) for pool in spec.pools
    }
    gone = tuple(
        Wait(
            Gate.POOL_REMOVAL_UNSUPPORTED,
            f"pool {name} is not in spec.pools any more, and its brokers may hold the only copies of records:"
            f" put it back",
        )
        for name in sorted(set(sets) - set(plans))
    )
    if gone:
        # A pool under another name is a pool less and a pool more: nothing of it is begun.
        plans = {name: made for name, made in plans.items() if name in sets}
    return plans, gone


def _plan(pool: Pool, wanted: PodInputs, found: Manifest | None, snapshot: Snapshot) -> PoolPlan:
    if found is None:
        return PoolPlan(PoolFacts(wanted, _first_replicas(pool, snapshot)), pool.replicas, ())
    now = int(found["spec"].get("replicas", 0))
    refused = []
    if pool.replicas < now:
        refused.append(
            Wait(
                Gate.SHRINK_UNSUPPORTED,
                f"pool {pool.name} has {now} brokers and does not shrink to {pool.replicas} yet:"
                f" set replicas back to {now}",
            )
        )
    applied = _applied(found)
    if applied is not None and applied.storage != wanted.storage:
        changes = replace(wanted, storage=applied.storage).differences(wanted)
        refused.append(
            Wait(
                Gate.RESIZE_UNSUPPORTED,
                f"volumes of pool {pool.name} do not change yet ({'; '.join(changes)}): set it back",
            )
        )
        wanted = replace(wanted, storage=applied.storage)
    return PoolPlan(PoolFacts(wanted, now), pool.replicas, tuple(refused))


def _first_replicas(pool: Pool, snapshot: Snapshot) -> int:
    """A cluster starts with all its brokers; a pool that is added later starts with one.

    Where claims are left, of a StatefulSet that someone deleted, the brokers on them come back together: some of them
    alone may not be a majority.
    """
    founded = bool(snapshot.cluster_ids())
    prefix = f"data-{snapshot.cluster.names.pool(pool.name)}-"
    left = [int(name[len(prefix) :]) for name in snapshot.claims if _is_claim(name, prefix)]
    if not founded or not snapshot.sets():
        return max(pool.replicas, *(ordinal + 1 for ordinal in left), 1)
    return max(1, *(ordinal + 1 for ordinal in left)) if left else 1


def _is_claim(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and name[len(prefix) :].isdigit()


def _applied(found: Manifest) -> PodInputs | None:
    try:
        return PodInputs.parse(found["metadata"]["annotations"][RENDERED_FROM])
    except (KeyError, ValueError, TypeError):
        return None
