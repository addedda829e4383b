"""A disk that will never come back is given up, and its pod comes up on another one. Pure.

Someone said so, or its node is gone for longer than `lostAfter`. What follows cannot be taken back, so it is done only
where the disk is known, nobody hears from it, and everyone else serves: never two at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from walrus_operator.desired.config import departures_map
from walrus_operator.desired.departures import Departure
from walrus_operator.desired.manifest import Owner, sealed
from walrus_operator.desired.names import REPLACE
from walrus_operator.objects import CLAIM, NODE, VOLUME, Ref
from walrus_operator.observe.machines import Machine, Volume
from walrus_operator.observe.pods import Pod
from walrus_operator.observe.snapshot import Member, Snapshot
from walrus_operator.plan.actions import Gate, GiveUpDisk, RemoveClaim, RollPod, Wait
from walrus_operator.plan.departing import Next, is_member, is_of, noted
from walrus_operator.plan.pools import PoolPlan
from walrus_operator.plan.stranded import Stranded, claim_of, stranded

_ANY = "<uuid of status.members>"


def replace_lost(owner: Owner, snapshot: Snapshot, pools: Mapping[str, PoolPlan], lost_after: timedelta | None) -> Next:
    """The next step of the disk that is given up: out of the cluster, its claim, its pod. What has begun goes first.

    Without *lost_after* only a disk that someone named is given up.
    """
    for pod, departure in snapshot.departures().items():
        if departure.lost and is_member(departure.disk, snapshot) is False and is_of(pod, departure, snapshot):
            return _clear(pod, departure, snapshot)
    named = _named(owner, snapshot, pools)
    if named.steps:
        return named
    lost = _lost(owner, snapshot, pools, lost_after)
    return Next(lost.steps, (*named.waits, *lost.waits))


def _named(owner: Owner, snapshot: Snapshot, pools: Mapping[str, PoolPlan]) -> Next:
    """What is done about the disk that someone named."""
    leading = snapshot.leader()
    listed = leading[1].members if leading is not None else ()
    member = next((member for member in listed if member.disk == snapshot.cluster.replace), None)
    if member is None:
        return Next()
    refused = _refused(member, snapshot)
    if refused is not None:
        return Next(waits=(refused,))
    by = snapshot.brokers.get(member.name)
    came = by.disk if by is not None and is_member(by.disk, snapshot) else ""
    return Next((_give_up(member.name, member.disk, owner, snapshot, pools, by=came),))


def _give_up(
    pod: str,
    disk: str,
    owner: Owner,
    snapshot: Snapshot,
    pools: Mapping[str, PoolPlan],
    *,
    by: str = "",
    volume: Volume | None = None,
) -> GiveUpDisk:
    claim, found = claim_of(pod, snapshot), snapshot.pods.get(pod)
    lost = Departure(disk, claim, lost=True, pod="" if claim or found is None else found.uid)
    return GiveUpDisk(pod, disk, by, sealed(departures_map(owner, noted(snapshot, pools) | {pod: lost})), volume)


def _refused(member: Member, snapshot: Snapshot) -> Wait | None:
    """Why the disk that someone named is not given up now."""
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


def _lost(owner: Owner, snapshot: Snapshot, pools: Mapping[str, PoolPlan], after: timedelta | None) -> Next:
    """What is done about a broker whose node is gone, and what is told of those whose node may come back."""
    found = stranded(snapshot)
    waits = [_kept(one, snapshot, after) for one in found.values()]
    steps = [
        _give_up(one.pod, one.disk, owner, snapshot, pools, volume=one.volume)
        for one, wait in zip(found.values(), waits, strict=True)
        if wait is None
    ]
    waits += [_held(pod, snapshot, after) for pod in snapshot.away() if pod.name not in found]
    return Next(tuple(steps), tuple(wait for wait in waits if wait is not None))


def _kept(one: Stranded, snapshot: Snapshot, after: timedelta | None) -> Wait | None:
    """Why the broker whose node is gone is not replaced now; None: it is."""
    gone = f"{one.pod} is on node {one.where}, which is gone, with disk {one.disk or 'unknown'}: "
    due = one.since + after if one.since is not None and after is not None else None
    opens = None
    if not one.disk:
        why = f"nobody noted which disk that was. Where it never comes back, name it: {_order(_ANY)}"
    elif after is None:
        why = f"lostAfter is never. Bring the node back, or replace the broker: {_order(one.disk)}"
    elif due is None or snapshot.at < due:
        opens, when = due, f"from {due:%Y-%m-%dT%H:%M:%SZ} on" if due is not None else "some time"
        why = f"given up {when}, as lostAfter says, unless the node is back before; at once with {_order(one.disk)}"
    elif zone := one.volume.lost_zone(snapshot.machines):
        why = f"no node of zone {zone} is left, and a zone comes back. If it never does: {_order(one.disk)}"
    elif other := _missing(one, snapshot):
        why = f"given up once all others serve, and {other} does not; a zone that is away comes back with all its disks"
    else:
        return None
    return Wait(Gate.NODE_LOST, gone + why, about=one.pod, opens=opens)


def _missing(one: Stranded, snapshot: Snapshot) -> str:
    """Another broker that does not serve, or another member that nobody hears from; "" where there is none.

    Those that never joined count as well: one of them may be what comes in the place of a disk that was given up.
    """
    for name in snapshot.expected():
        pod = snapshot.pods.get(name)
        if name != one.pod and (pod is None or not pod.ready or snapshot.brokers.get(name) is None):
            return name
    others = [member for member in snapshot.members() if member.disk != one.disk and not member.alive]
    return f"disk {others[0].disk} of {others[0].name}" if others else ""


def _held(pod: Pod, snapshot: Snapshot, after: timedelta | None) -> Wait | None:
    """What is told of a broker that is away and whose node is there, or cannot be seen."""
    volume, machines = snapshot.volumes.get(pod.name), {one.name: one for one in snapshot.machines}
    hidden = next((snapshot.unseen[kind] for kind in (NODE.name, VOLUME.name) if kind in snapshot.unseen), None)
    if hidden is not None and (pod.node is None or pod.running):
        overdue = pod.unready_since is not None and after is not None and snapshot.at >= pod.unready_since + after
        detail = (
            f"whether the node of {pod.name} is gone cannot be seen, so that nothing replaces it by itself (value"
            f" rbac.clusterRole of the operator's chart): {hidden}. Where it never comes back, name its disk:"
            f" {_order(_ANY)}"
        )
        return Wait(Gate.FORBIDDEN, detail, about=pod.name) if overdue else None
    on = machines.get(pod.node or "")
    near = volume.reached_from(snapshot.machines) if volume is not None and volume.nodes else [on] if on else []
    return _told(pod, near) if near else None


def _told(pod: Pod, near: list[Machine]) -> Wait | None:
    where = ", ".join(one.name for one in near)
    never = f"if it never comes back: kubectl delete node {near[0].name}"
    if not any(one.ready for one in near):
        detail = f"{pod.name} is on node {where}, which does not answer and may come back; {never}"
    elif pod.node is None and all(one.cordoned for one in near):
        back = f"kubectl uncordon {near[0].name}"
        detail = f"the disk of {pod.name} is on node {where}, which takes no pods: {back}; {never}"
    else:
        return None
    return Wait(Gate.NODE_AWAY, detail, about=pod.name)


def _order(disk: str) -> str:
    """How people have a disk given up."""
    return f"{REPLACE}={disk}"


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
