"""A broker that hands over what it has because someone said so, and stays: before its machine is serviced, say. Pure.

It is noted like one that goes, so that it is taken back once nobody asks for it any more (`departing.py`), whoever ran
the operator meanwhile. It stays a member and stores nothing as long as the annotation names its disk.
"""

from __future__ import annotations

from collections.abc import Mapping

from walrus_operator.desired.config import departures_map
from walrus_operator.desired.departures import Departure
from walrus_operator.desired.manifest import Owner, sealed
from walrus_operator.desired.names import DRAIN
from walrus_operator.observe.snapshot import Broker, Snapshot
from walrus_operator.plan.actions import Gate, StartDrain, Wait
from walrus_operator.plan.departing import Next, drains, leaves, noted
from walrus_operator.plan.pools import PoolPlan
from walrus_operator.plan.shrinking import DISK_PERCENT_MAX, percent_full
from walrus_operator.plan.stranded import claim_of


def handing_over(snapshot: Snapshot, pools: Mapping[str, PoolPlan]) -> Wait | None:
    """How far the broker is that was told to hand over and stays; None where none was, or it has nothing left."""
    for pod, departure in snapshot.departures().items():
        if departure.disk != snapshot.cluster.drain or leaves(pod, pools, snapshot) or not drains(pod, snapshot):
            continue
        drain = snapshot.drains.get(departure.disk)
        if drain is None:
            return Wait(Gate.UNKNOWN_BROKER, f"nobody tells how far {pod} is with handing over")
        if not drain.done:
            detail = (
                f"{pod} hands over what it has, as {DRAIN} says: it leads {drain.led} segments and stores {drain.held}"
            )
            return Wait(Gate.DRAINING, detail)
    return None


def hand_over(owner: Owner, snapshot: Snapshot, pools: Mapping[str, PoolPlan], hold: Wait | None) -> Next:
    """The broker whose disk was named begins to hand over. *hold* keeps it from that; what has begun goes on."""
    disk, leading = snapshot.cluster.drain, snapshot.leader()
    if not disk or leading is None:
        return Next()
    member = next((member for member in leading[1].members if member.disk == disk), None)
    if member is None:
        detail = (
            f"{DRAIN} names {disk[:60]!r}, and no broker of this cluster has such a disk: status.brokers tells the uuid"
            " of each, or take the annotation away"
        )
        return Next(waits=(Wait(Gate.DRAIN_REFUSED, detail),))
    told = {broker.disk: (pod, broker) for pod, broker in snapshot.brokers.items() if broker is not None}
    if disk not in told:
        detail = f"{member.name} hands over what it has once it answers, as {DRAIN} says"
        return Next(waits=(Wait(Gate.UNKNOWN_BROKER, detail),))
    pod, broker = told[disk]
    departure = snapshot.departures().get(pod)
    if leaves(pod, pools, snapshot) or (departure is not None and departure.disk == disk and drains(pod, snapshot)):
        return Next()
    wait = _refused(pod, broker, leading[1].copies_needed, snapshot) or hold
    if wait is not None:
        return Next(waits=(wait,))
    start = Departure(disk, claim_of(pod, snapshot), broker.segments_held)
    return Next((StartDrain(pod, start, sealed(departures_map(owner, noted(snapshot, pools) | {pod: start}))),))


def _refused(pod: str, broker: Broker, needed: int, snapshot: Snapshot) -> Wait | None:
    """Why the others cannot take what the broker has."""
    others = [other for name, other in snapshot.brokers.items() if other is not None and name != pod]
    if len(others) < needed:
        return Wait(
            Gate.DRAIN_REFUSED,
            f"{needed} copies of the records of a topic are kept, and {len(others)} brokers would be left for them: add"
            f" a broker first. One that only restarts or moves needs no drain; take {DRAIN} away then",
        )
    percent = percent_full(others, broker.bytes_held)
    if percent > DISK_PERCENT_MAX:
        return Wait(
            Gate.DRAIN_REFUSED,
            f"the disks of the other brokers would be {percent} % full, and {DISK_PERCENT_MAX} % is the most: add a"
            f" broker, or let records go (retention), before {pod} hands over what it has",
        )
    return None
