"""Brokers that go: emptied before they leave the cluster, out of it before their pods go, one at a time. Pure.

Who goes is the disk, not the pod: each step names the disk that was noted before the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from walrus_operator.desired.config import departures_map
from walrus_operator.desired.departures import Departure
from walrus_operator.desired.manifest import Owner, sealed
from walrus_operator.objects import CLAIM, Ref
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import (
    Action,
    CancelDrain,
    Gate,
    RemoveClaim,
    RemoveMember,
    StartDrain,
    TransferLeadership,
    Wait,
)
from walrus_operator.plan.pools import PoolPlan
from walrus_operator.plan.stranded import claim_of, stranded


def noted(snapshot: Snapshot, pools: Mapping[str, PoolPlan]) -> dict[str, Departure]:
    """What is kept of the departures that were noted.

    One stays while its broker goes, and as long as there is the claim that bears its disk. One that was taken back
    goes once its broker is given segments again.
    """
    kept = {}
    for pod, departure in snapshot.departures().items():
        if _is_there(pod, snapshot, pools):
            keeps = is_of(pod, departure, snapshot) and not _is_back(pod, departure, snapshot, pools)
        else:
            keeps = departure.claim != "" and departure.claim == claim_of(pod, snapshot)
        if keeps:
            kept[pod] = departure
    return kept


@dataclass(frozen=True)
class Next:
    """What can be done next about brokers that go, and what they wait for."""

    steps: tuple[Action, ...] = ()
    waits: tuple[Wait, ...] = ()


def take_back(snapshot: Snapshot, pools: Mapping[str, PoolPlan]) -> tuple[Action, ...]:
    """Brokers that began to go and shall stay are given segments again. What has left the cluster cannot come back."""
    return tuple(
        CancelDrain(pod, departure.disk)
        for pod, departure in snapshot.departures().items()
        if _is_there(pod, snapshot, pools) and _stays(pod, snapshot, pools) and drains(pod, snapshot)
    )


def gone(pool: str, snapshot: Snapshot, pools: Mapping[str, PoolPlan]) -> str:
    """The disk of the last broker of the pool, where it left the cluster for good and only its pod is left; "": none.

    A broker of the cluster that is not listed has left it, although nobody noted that. Asked again before it is done.
    """
    pod = _last(pool, snapshot, pools)
    departure, broker = snapshot.departures().get(pod), snapshot.brokers.get(pod)
    if departure is not None and departure.lost:
        return ""
    if departure is not None and is_of(pod, departure, snapshot):
        return departure.disk if is_member(departure.disk, snapshot) is False else ""
    if not pools[pool].leaving or broker is None or not broker.cluster_id:
        return ""
    return broker.disk if is_member(broker.disk, snapshot) is False else ""


def depart(owner: Owner, snapshot: Snapshot, pools: Mapping[str, PoolPlan], hold: Wait | None) -> Next:
    """The next step of the broker that goes: the one that has begun, or else the last one of the first pool.

    *hold* keeps it from beginning, and from nothing else.
    """
    leaving = [_last(name, snapshot, pools) for name, pool in pools.items() if pool.leaving]
    begun = [pod for pod in leaving if pod in snapshot.departures()]
    for pod in (begun or leaving)[:1]:
        return _next(pod, owner, snapshot, pools, hold)
    return Next()


def left_behind(snapshot: Snapshot, pools: Mapping[str, PoolPlan]) -> list[RemoveClaim]:
    """Claims that bear disks which left the cluster, and that no pod mounts any more."""
    return [
        RemoveClaim(Ref(CLAIM.name, snapshot.cluster.key.namespace, snapshot.cluster.names.claim(pod)), departure.claim)
        for pod, departure in snapshot.departures().items()
        if not _is_there(pod, snapshot, pools)
        and pod not in snapshot.pods
        and departure.claim != ""
        and departure.claim == claim_of(pod, snapshot)
        and is_member(departure.disk, snapshot) is False
    ]


def come_back(snapshot: Snapshot) -> tuple[Wait, ...]:
    """What is told of disks that left the cluster and show up again: no broker can start on one of them."""
    namespace, names = snapshot.cluster.key.namespace, snapshot.cluster.names
    waits = []
    for name, broker in sorted(snapshot.brokers.items()):
        pod, departure = snapshot.pods[name], snapshot.departures().get(name)
        goes = departure is not None and is_of(name, departure, snapshot)
        if (
            broker is None
            or pod.ready
            or goes
            or not broker.cluster_id
            or is_member(broker.disk, snapshot) is not False
        ):
            continue
        claim = names.claim(name)
        if claim in snapshot.claims:
            way = f"kubectl -n {namespace} delete persistentvolumeclaim/{claim} pod/{name}"
        else:
            way = f"empty the folder of its pool on node {pod.node}, then kubectl -n {namespace} delete pod/{name}"
        detail = (
            f"{name} came up on disk {broker.disk}, which left the cluster and is refused wherever it shows up. Whoever"
            f" needs nothing of it any more lets the broker start on an empty one: {way}"
        )
        waits.append(Wait(Gate.REMOVED_DISK, detail, about=name))
    return tuple(waits)


def is_member(disk: str, snapshot: Snapshot) -> bool | None:
    """Whether the disk is part of the cluster, as whoever leads the metadata lists it; None: nobody leads."""
    leading = snapshot.leader()
    return None if leading is None else any(member.disk == disk for member in leading[1].members)


def _next(pod: str, owner: Owner, snapshot: Snapshot, pools: Mapping[str, PoolPlan], hold: Wait | None) -> Next:
    departure, broker = snapshot.departures().get(pod), snapshot.brokers.get(pod)
    if departure is not None and (departure.lost or not is_of(pod, departure, snapshot)):
        departure = None
    if departure is None and broker is None:
        return Next(waits=(Wait(Gate.UNKNOWN_BROKER, f"{pod} goes, and does not tell which disk it is on"),))
    disk = departure.disk if departure is not None else broker.disk if broker is not None else ""
    if not is_member(disk, snapshot):
        detail = f"{pod} came up on disk {disk}, which is not part of the cluster: StorageHealthy says what to do"
        return Next(waits=(Wait(Gate.UNKNOWN_BROKER, detail),))
    if departure is None or not drains(pod, snapshot):
        if departure is None and hold is not None:
            return Next(waits=(hold,))
        start = departure or Departure(disk, claim_of(pod, snapshot), broker.segments_held if broker is not None else 0)
        kept = noted(snapshot, pools) | {pod: start}
        return Next((StartDrain(pod, start, sealed(departures_map(owner, kept))),))
    drain = snapshot.drains.get(disk)
    if drain is None:
        return Next(waits=(Wait(Gate.UNKNOWN_BROKER, f"nobody tells how far {pod} is with handing over"),))
    if not drain.done:
        detail = (
            f"{pod} goes once it has handed over what it has: it leads {drain.led} segments and stores {drain.held}"
        )
        return Next(waits=(Wait(Gate.DRAINING, detail),))
    leading = snapshot.leader()
    if leading is not None and leading[0] == pod:
        return Next((TransferLeadership(pod),))
    return Next((RemoveMember(pod, disk),))


def is_of(pod: str, departure: Departure, snapshot: Snapshot) -> bool:
    """Whether the pod is still on the disk that was noted: its claim is the same one, and no other disk is told.

    Of a lost disk that was on no claim, the next pod is on another one.
    """
    broker, found = snapshot.brokers.get(pod), snapshot.pods.get(pod)
    if departure.pod and found is not None and found.uid != departure.pod:
        return False
    return departure.claim == claim_of(pod, snapshot) and (broker is None or broker.disk == departure.disk)


def _is_back(pod: str, departure: Departure, snapshot: Snapshot, pools: Mapping[str, PoolPlan]) -> bool:
    """Whether it began to go, shall stay, and is given segments; or its disk is lost no more, and nobody says so."""
    if not is_member(departure.disk, snapshot):
        return False
    if departure.lost:
        return snapshot.cluster.replace != departure.disk and pod not in stranded(snapshot)
    return _stays(pod, snapshot, pools) and not drains(pod, snapshot)


def drains(pod: str, snapshot: Snapshot) -> bool:
    """Whether the disk that was noted of the pod hands over what it has, or has done so, and is given nothing new."""
    leading, departure = snapshot.leader(), snapshot.departures().get(pod)
    if leading is None or departure is None:
        return False
    return any(member.disk == departure.disk and member.draining for member in leading[1].members)


def _is_there(pod: str, snapshot: Snapshot, pools: Mapping[str, PoolPlan]) -> bool:
    """Whether a StatefulSet still asks for the pod."""
    pool, ordinal = snapshot.cluster.names.place(pod)
    return pool in pools and ordinal < pools[pool].now.replicas


def leaves(pod: str, pools: Mapping[str, PoolPlan], snapshot: Snapshot) -> bool:
    """Whether nobody asks for the broker of the pod any more."""
    pool, ordinal = snapshot.cluster.names.place(pod)
    return pool not in pools or ordinal >= pools[pool].target


def _stays(pod: str, snapshot: Snapshot, pools: Mapping[str, PoolPlan]) -> bool:
    """Whether the broker shall store records: it does not go, and nobody said that it hands over what it has."""
    ordered = snapshot.departures()[pod].disk == snapshot.cluster.drain
    return not ordered and not leaves(pod, pools, snapshot)


def _last(pool: str, snapshot: Snapshot, pools: Mapping[str, PoolPlan]) -> str:
    return snapshot.cluster.names.pod(pool, pools[pool].now.replicas - 1)
