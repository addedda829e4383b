"""On which node a broker comes up whose data is in a folder: on the one that has it, wherever there were room. Pure."""

from __future__ import annotations

from walrus_operator.desired.names import REPLACE
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan.actions import Gate, Place, Wait
from walrus_operator.plan.stranded import noted_disks


def place(snapshot: Snapshot) -> tuple[tuple[Place, ...], tuple[Wait, ...]]:
    """What is said of pods that are held. One whose node is away is placed there, too, and waits for it."""
    noted, names = noted_disks(snapshot), snapshot.cluster.names
    places, waits = [], []
    for name, pod in sorted(snapshot.pods.items()):
        if not pod.held or pod.deleting:
            continue
        own = noted.get(name)
        if own is not None and own.node:
            places.append(Place(name, pod.uid, own.node))
        elif _is_somewhere(name, snapshot):
            waits.append(_unknown(name))
        else:
            pool = names.place(name)[0]
            others = {disk.node for other, disk in noted.items() if disk.node and names.place(other)[0] == pool}
            places.append(Place(name, pod.uid, "", tuple(sorted(others))))
    return tuple(places), tuple(waits)


def _is_somewhere(name: str, snapshot: Snapshot) -> bool:
    """Whether a member was in this pod, and no pod tells its disk: it is in a folder, and nobody noted in which."""
    told = {broker.disk for broker in snapshot.brokers.values() if broker is not None}
    return any(member.name == name and member.disk not in told for member in snapshot.members())


def _unknown(name: str) -> Wait:
    patch = '{"spec": {"nodeSelector": {"kubernetes.io/hostname": "<node>"}, "schedulingGates": null}}'
    detail = (
        f"{name} has its data in a folder of a node, and nobody noted of which: on another it would come up empty."
        f" Where it is known: kubectl patch pod {name} -p '{patch}'. Where it is lost, name its disk: {REPLACE}"
    )
    return Wait(Gate.NODE_AWAY, detail, about=name)
