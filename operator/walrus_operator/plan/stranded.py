"""Brokers whose disk is tied to a node that is gone: nothing brings them back but that node. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from walrus_operator.desired.disks import Disk
from walrus_operator.objects import NODE
from walrus_operator.observe.machines import Volume
from walrus_operator.observe.pods import Pod
from walrus_operator.observe.snapshot import Snapshot


@dataclass(frozen=True)
class Stranded:
    """A broker that cannot come back by itself."""

    pod: str
    disk: str
    """The identity on its disk; "" where nobody noted it, so that nothing is done about it."""
    volume: Volume
    since: datetime | None
    """Since when its pod is not ready."""

    @property
    def where(self) -> str:
        """The node that is gone."""
        return ", ".join(self.volume.nodes)


def stranded(snapshot: Snapshot) -> dict[str, Stranded]:
    """Those brokers, by pod. A volume that is on no node in particular, such as one of a network, strands nobody."""
    if NODE.name in snapshot.unseen:
        return {}
    found = {}
    for pod in snapshot.away():
        volume = snapshot.volumes.get(pod.name)
        if volume is not None and volume.nodes and not volume.reached_from(snapshot.machines):
            found[pod.name] = Stranded(pod.name, _disk(pod, snapshot), volume, pod.unready_since)
    return found


def noted_disks(snapshot: Snapshot) -> dict[str, Disk]:
    """Which disk each broker is on, as it told last while it was part of the cluster.

    What was noted stays while the broker is silent, and goes once its disk has left the cluster.
    """
    leading = snapshot.leader()
    if leading is None:
        return snapshot.disks()
    listed = {member.disk for member in leading[1].members}
    told = {
        pod: Disk(broker.disk, claim_of(pod, snapshot), _folder_of(pod, snapshot))
        for pod, broker in snapshot.brokers.items()
        if broker is not None
    }
    return {pod: disk for pod, disk in (snapshot.disks() | told).items() if disk.disk in listed}


def claim_of(pod: str, snapshot: Snapshot) -> str:
    """The uid of the pod's claim; "" where there is none."""
    claim = snapshot.claims.get(snapshot.cluster.names.claim(pod))
    return claim.uid if claim is not None else ""


def _folder_of(pod: str, snapshot: Snapshot) -> str:
    return "" if claim_of(pod, snapshot) else snapshot.pods[pod].node or ""


def _disk(pod: Pod, snapshot: Snapshot) -> str:
    """The disk on its volume, if it is the one that was noted, and nobody hears from it."""
    noted = snapshot.disks().get(pod.name)
    if noted is None or noted.claim != claim_of(pod.name, snapshot):
        return ""
    told = any(broker is not None and broker.disk == noted.disk for broker in snapshot.brokers.values())
    silent = any(member.disk == noted.disk and not member.alive for member in snapshot.members())
    return noted.disk if silent and not told else ""
