"""Pods that find no node because brokers must be spread over more zones than there are. Pure."""

from __future__ import annotations

from walrus_operator.api.cluster import ClusterSpec, Spread
from walrus_operator.observe.machines import HOST, ZONE
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import Gate, Wait


def too_few_zones(spec: ClusterSpec, snapshot: Snapshot) -> Wait | None:
    """What lacks where `topology.required` keeps a pod from starting; None where it does not, or nobody can see it."""
    homeless = sorted(pod.name for pod in snapshot.pods.values() if pod.node is None and not pod.deleting)
    if not spec.topology.required or not homeless or not snapshot.machines:
        return None
    what, label = ("zones", ZONE) if spec.topology.spread is Spread.ZONE else ("nodes", HOST)
    open_ones = [machine for machine in snapshot.machines if machine.ready and not machine.cordoned]
    found = sorted({machine.labels[label] for machine in open_ones if label in machine.labels})
    if len(found) >= spec.replication.factor:
        return None
    named = f"{len(found)} ({', '.join(found)})" if found else "none"
    return Wait(
        Gate.TOO_FEW_ZONES,
        f"{homeless[0]} finds no node: topology.required wants {spec.replication.factor} {what} that take pods, one for"
        f" each copy of a record, and there are {named}. Add nodes, or set topology.required to false",
        about=homeless[0],
    )
