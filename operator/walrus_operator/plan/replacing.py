"""A disk that will never come back is given up, and its pod comes up on another one: where someone says so. Pure.

What follows cannot be taken back, so it is done only where the disk was named, nobody hears from it, and everyone else
serves: never two at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from walrus_operator.desired.config import departures_map
from walrus_operator.desired.departures import Departure
from walrus_operator.desired.manifest import Owner, sealed
from walrus_operator.desired.names import REPLACE
from walrus_operator.objects import CLAIM, Ref
from walrus_operator.observe.snapshot import Member, Snapshot
from walrus_operator.plan.actions import Gate, GiveUpDisk, RemoveClaim, RollPod, Wait
from walrus_operator.plan.departing import Next, claim_of, is_member, is_of, noted
from walrus_operator.plan.pools import PoolPlan


def replace_lost(owner: Owner, snapshot: Snapshot, pools: Mapping[str, PoolPlan]) -> Next:
    """The next step of the disk that is given up: out of the cluster, its claim, its pod. What has begun goes first."""
    for pod, departure in snapshot.departures().items():
        if departure.lost and is_member(departure.disk, snapshot) is False and is_of(pod, departure, snapshot):
            return _clear(pod, departure, snapshot)
    leading = snapshot.leader()
    listed = leading[1].members if leading is not None else ()
    member = next((member for member in listed if member.disk == snapshot.cluster.replace), None)
    if member is None:
        return Next()
    refused = _refused(member, snapshot)
    if refused is not None:
        return Next(waits=(refused,))
    lost = Departure(member.disk, claim_of(member.name, snapshot), lost=True)
    kept = sealed(departures_map(owner, noted(snapshot, pools) | {member.name: lost}))
    by = snapshot.brokers.get(member.name)
    came = by.disk if by is not None and is_member(by.disk, snapshot) else ""
    return Next((GiveUpDisk(member.name, member.disk, came, kept),))


def _refused(member: Member, snapshot: Snapshot) -> Wait | None:
    """Why the disk is not given up now."""
    is_told = any(broker is not None and broker.disk == member.disk for broker in snapshot.brokers.values())
    if member.alive or is_told:
        return Wait(
            Gate.REPLACE_REFUSED,
            f"disk {member.disk} of {member.name} is there, and {REPLACE} is for disks that will never come back: lower"
            " replicas to let a broker go, or take the annotation away",
        )
    for name in snapshot.expected():
        pod = snapshot.pods.get(name)
        if name != member.name and snapshot.joined(name) is not False and (pod is None or not pod.ready):
            return Wait(
                Gate.REPLACE_REFUSED,
                f"disk {member.disk} of {member.name} is given up once all others serve, and {name} does not: two lost"
                " disks may be more than what is stored outlasts",
            )
    return None


def _clear(pod: str, departure: Departure, snapshot: Snapshot) -> Next:
    """The claim bears the disk that was given up, and goes whatever the policy says; then the pod, which holds it.

    A pod that came up on another disk, on the same volume perhaps, is what was wanted: `is_of` tells.
    """
    namespace, names = snapshot.cluster.key.namespace, snapshot.cluster.names
    claim, found = snapshot.claims.get(names.claim(pod)), snapshot.pods.get(pod)
    if claim is not None and not claim.deleting:
        return Next((RemoveClaim(Ref(CLAIM.name, namespace, names.claim(pod)), departure.claim),))
    if found is not None and not found.deleting:
        return Next((RollPod(found.name, found.uid, spared=False, broken=True, replaced=True),))
    if found is None:
        return Next()
    detail = f"{pod} is still there, as its node does not say that it ended: it goes once Kubernetes gives the node up"
    return Next(waits=(Wait(Gate.POD_PENDING, detail),))
