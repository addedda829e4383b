"""Whether brokers of another release can take the place of those that run: asked before the first one goes. Pure.

What a release can do is told by the table of releases; one that is not in it is tried on one broker, which tells.
"""

from __future__ import annotations

from collections.abc import Mapping

from walrus_operator.api.cluster import ClusterSpec
from walrus_operator.api.releases import Release, Table, Wire, release_of, way_to
from walrus_operator.observe.snapshot import Broker, Snapshot
from walrus_operator.plan.actions import Gate, Wait


def refused_release(spec: ClusterSpec, snapshot: Snapshot, table: Table) -> Wait | None:
    """Why the version of the spec cannot be taken from what runs now; None where it can, or nobody knows it here."""
    wanted = release_of(spec.version, table)
    if wanted is None:
        return None
    level, running = snapshot.level(), _wires(snapshot, table)
    first = way_to(wanted, running.values(), level, table)
    if wanted.level < level:
        return Wait(
            Gate.RELEASE_REFUSED,
            f"version {wanted.version} knows commands of the metadata up to level {wanted.level}, and the cluster uses"
            f" level {level}, which never goes back: no broker of it would start. {_advice(first)}",
        )
    strangers = [pod for pod, wire in running.items() if not wire.meets(wanted.wire)]
    if not strangers or _is_run_by_most(wanted, snapshot):
        return None
    pod = min(strangers)
    return Wait(
        Gate.RELEASE_REFUSED,
        f"brokers of version {wanted.version} speak wire versions {wanted.wire}, and {pod} speaks {running[pod]}: they"
        f" would not hear each other. {_advice(first)}{' first' if first is not None else ''}",
    )


def misfit(image: str, snapshot: Snapshot, table: Table) -> Wait | None:
    """Why no second broker follows those that run this image already; None where it fits the others.

    Which release an image is, only its broker tells: a table can be older than it, and a tag can be wrong. Where most
    brokers run it, it is the others that try something, or go back.
    """
    running = sorted(name for name, pod in snapshot.pods.items() if pod.image == image)
    for pod in running if 2 * len(running) < len(snapshot.pods) else ():
        broker = snapshot.brokers.get(pod)
        if broker is None or not broker.cluster_id:
            continue
        why = _why_not(broker, {other: wire for other, wire in _wires(snapshot, table).items() if other != pod})
        if why:
            return Wait(
                Gate.RELEASE_REFUSED,
                f"{pod} tries image {image}, and no other broker follows it: {why}. Set the version or image back",
            )
    return None


def is_tried(spec: ClusterSpec, image: str, snapshot: Snapshot, table: Table) -> bool:
    """Whether the first broker that restarts is the one that tells whether the image fits."""
    return release_of(spec.version, table) is None and all(pod.image != image for pod in snapshot.pods.values())


def _why_not(broker: Broker, others: Mapping[str, Wire]) -> str:
    if broker.wire is None:
        return ""  # a release of before they told
    strangers = [pod for pod, wire in others.items() if not wire.meets(broker.wire)]
    if not strangers:
        return ""
    pod = min(strangers)
    return f"it speaks wire versions {broker.wire}, and {pod} speaks {others[pod]}"


def _wires(snapshot: Snapshot, table: Table) -> dict[str, Wire]:
    """What the brokers speak, as they tell themselves, or as the table says of their version."""
    wires = {}
    for pod, broker in snapshot.brokers.items():
        if broker is None or not broker.cluster_id:
            continue
        release = release_of(broker.version, table)
        wire = broker.wire or (release.wire if release is not None else None)
        if wire is not None:
            wires[pod] = wire
    return wires


def _is_run_by_most(release: Release, snapshot: Snapshot) -> bool:
    """Whether the others are the strangers, and go back to what most have."""
    told = [broker.version for broker in snapshot.brokers.values() if broker is not None and broker.cluster_id]
    return 2 * told.count(release.version) > len(told)


def _advice(first: Release | None) -> str:
    if first is None:
        return "No release that this operator knows lies between: upgrade the operator, or set the version back"
    return f"Set version to {first.version}"
