"""A cluster is founded once, by one broker on an empty disk: when one may be told to, and whom to ask before."""

from __future__ import annotations

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.desired.build import Bootstrap
from walrus_operator.desired.names import UNTOLD
from walrus_operator.objects import CONFIG_MAP, STATEFUL_SET, Manifest, Ref
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import Gate, RestartPod, Wait


def bootstrap(spec: ClusterSpec, snapshot: Snapshot) -> Bootstrap | None:
    """Whether and how the first broker is told to found the cluster.

    Safe where nothing of the cluster is there yet: no StatefulSet, no claim, no folder of a node; or where every broker
    has answered that it is in no cluster. Anything in between may hide a cluster on a disk that is not seen.
    """
    if snapshot.cluster_ids():
        return None
    told = snapshot.objects.get(_bootstrap(snapshot))
    if told is not None and not _untouched(snapshot):
        return _told_before(told, spec, snapshot)
    founder = snapshot.cluster.names.pod(spec.pools[0].name, 0)
    if _nothing_there(spec, snapshot):
        return Bootstrap(founder)
    pod = snapshot.pods.get(founder)
    return Bootstrap(founder, pod.uid) if pod is not None and _all_waiting(spec, snapshot) else None


def restart_founder(spec: ClusterSpec, snapshot: Snapshot) -> RestartPod | None:
    """The founder, where it started before it was told: a broker reads its options at its start."""
    told = snapshot.objects.get(_bootstrap(snapshot))
    founder = snapshot.pods.get(told["data"]["name"]) if told is not None else None
    if told is None or founder is None or founder.deleting or not _all_waiting(spec, snapshot):
        return None
    if founder.uid != told["metadata"].get("annotations", {}).get(UNTOLD):
        return None
    return RestartPod(founder.name, founder.uid, "to found the cluster")


def unfounded(snapshot: Snapshot) -> Wait | None:
    """Why there is no cluster yet."""
    if snapshot.cluster_ids():
        return None
    waiting = sum(broker is not None for broker in snapshot.brokers.values())
    detail = f"no broker is in a cluster yet; {waiting} of {len(snapshot.pods)} answer"
    orphans = sorted(name for name in snapshot.claims if _pod_of(name) not in snapshot.pods)
    if orphans and snapshot.sets():
        detail += (
            f". Claims without a broker may hold a cluster: {', '.join(orphans)}. Put their pool back into the spec,"
            " or delete them"
        )
    return Wait(Gate.NOT_FOUNDED, detail)


def _told_before(told: Manifest, spec: ClusterSpec, snapshot: Snapshot) -> Bootstrap:
    """The founder stays the one. It must start again where it was told of other brokers than there shall be now."""
    name, untold = told["data"]["name"], told["metadata"].get("annotations", {}).get(UNTOLD, "")
    pod = snapshot.pods.get(name)
    if pod is not None and told["data"].get("nodes") != str(spec.brokers):
        untold = pod.uid
    return Bootstrap(name, untold)


def _nothing_there(spec: ClusterSpec, snapshot: Snapshot) -> bool:
    """No disk of the cluster can be anywhere, not even in a folder of a node."""
    folders = any(pool.storage.host_path is not None for pool in spec.pools)
    return _untouched(snapshot) and not folders


def _untouched(snapshot: Snapshot) -> bool:
    """No broker has been made yet, that could have been told anything."""
    sets = any(ref.kind == STATEFUL_SET.name for ref in snapshot.objects)
    return not sets and not snapshot.claims and not snapshot.pods


def _all_waiting(spec: ClusterSpec, snapshot: Snapshot) -> bool:
    """Every broker that there shall be answers, so does one on every claim, and none is in a cluster."""
    expected = spec.brokers
    answering = {name for name, broker in snapshot.brokers.items() if broker is not None}
    everyone = {*snapshot.pods, *map(_pod_of, snapshot.claims)}
    return len(answering) >= expected and answering >= everyone and not snapshot.cluster_ids()


def _pod_of(claim: str) -> str:
    return claim.removeprefix("data-")


def _bootstrap(snapshot: Snapshot) -> Ref:
    return Ref(CONFIG_MAP.name, snapshot.cluster.key.namespace, snapshot.cluster.names.bootstrap)
