"""What people order of brokers: an annotation of the WalrusCluster, what comes of it, how it is taken back. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from walrus_client.cli.exit_codes import Failed

from walrus_operator.cli.told import lifted_by
from walrus_operator.desired.names import DRAIN, PAUSE, PAUSE_UNTIL, REPLACE, ROLL
from walrus_operator.objects import Manifest
from walrus_operator.observe.pods import Pod
from walrus_operator.plan.actions import Gate


@dataclass(frozen=True)
class Seen:
    """What Kubernetes shows of the cluster."""

    cluster: Manifest
    pods: Sequence[Pod]


@dataclass(frozen=True)
class Progress:
    """How far an order is."""

    done: bool
    told: str


@dataclass(frozen=True)
class Order(ABC):
    """One order, and how to see in what Kubernetes shows what has become of it."""

    value: str
    """What is written."""

    annotation: ClassVar[str]
    refusal: ClassVar[Gate | None] = None
    """The gate that says that it cannot be done as it is."""

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def progress(self, seen: Seen) -> Progress:
        """How far it is."""


@dataclass(frozen=True)
class Roll(Order):
    """All brokers restart, one after the other."""

    annotation: ClassVar[str] = ROLL

    def __str__(self) -> str:
        return "all brokers restart, one after the other"

    def progress(self, seen: Seen) -> Progress:
        """The pods that bear the order and are ready, of those that there shall be."""
        rows = _status(seen.cluster).get("brokers", ())
        back = [pod for pod in seen.pods if pod.orders.get(ROLL) == self.value and pod.ready and not pod.deleting]
        told = f"{len(back)} of {len(rows)} brokers have restarted"
        return Progress(bool(rows) and len(back) == len(seen.pods) == len(rows), told)


@dataclass(frozen=True)
class Drain(Order):
    """A broker hands over what it has, and stays."""

    pod: str

    annotation: ClassVar[str] = DRAIN
    refusal: ClassVar[Gate | None] = Gate.DRAIN_REFUSED

    @classmethod
    def of(cls, found: Manifest, broker: str) -> Drain:
        """The order for a pod, or for a disk. Raises `Failed` where the status does not tell of it."""
        rows = [row for row in _status(found).get("brokers", ()) if "uuid" in row]
        row = next((row for row in rows if broker in (row["pod"], row["uuid"])), None)
        if row is None:
            there = ", ".join(f"{row['pod']} ({row['uuid']})" for row in rows) or "none that answered"
            raise Failed(f"no broker of {found['metadata']['name']} is called {broker}, or is on such a disk: {there}")
        return cls(row["uuid"], row["pod"])

    def __str__(self) -> str:
        return f"{self.pod} (disk {self.value}) hands over what it has, and stays"

    def progress(self, seen: Seen) -> Progress:
        """What the row of the disk tells."""
        rows = _status(seen.cluster).get("brokers", ())
        row: Mapping[str, Any] = next((row for row in rows if row.get("uuid") == self.value), {})
        percent = row.get("drainPercent")
        told = "has not begun to hand over" if percent is None else f"has handed over {percent} %"
        return Progress(percent == 100, f"{self.pod} {told}")


@dataclass(frozen=True)
class Replace(Order):
    """A disk that will never come back is given up, and its broker comes up on another one."""

    pod: str

    annotation: ClassVar[str] = REPLACE
    refusal: ClassVar[Gate | None] = Gate.REPLACE_REFUSED

    @classmethod
    def of(cls, found: Manifest, disk: str) -> Replace:
        """The order for a disk. Raises `Failed` where the status does not say that it is away."""
        members = _status(found).get("members", ())
        member = next((one for one in members if one["uuid"] == disk), None)
        away = ", ".join(f"{one['uuid']} ({one['name']}, {one['state']})" for one in members if _is_away(one))
        if member is None:
            raise Failed(f"{found['metadata']['name']} has no disk {disk}. Away are: {away or 'none'}")
        if not _is_away(member):
            raise Failed(
                f"disk {disk} of {member['name']} is there ({member['state']}), and only a disk that will never come"
                f" back is given up: lower replicas to let a broker go. Away are: {away or 'none'}"
            )
        return cls(disk, member["name"])

    def __str__(self) -> str:
        return f"disk {self.value} of {self.pod} is given up for good, and {self.pod} comes up on another one"

    def progress(self, seen: Seen) -> Progress:
        """Whether the disk is still listed, and whether another one serves in its place."""
        status = _status(seen.cluster)
        if any(one["uuid"] == self.value for one in status.get("members", ())) or not status.get("members"):
            return Progress(False, f"disk {self.value} is part of the cluster")
        row = next((row for row in status.get("brokers", ()) if row["pod"] == self.pod), {"state": "Absent"})
        done = row["state"] == "Serving" and row.get("uuid") != self.value
        told = f"serves on disk {row.get('uuid')}" if done else f"is {row['state']}"
        return Progress(done, f"disk {self.value} is out of the cluster; {self.pod} {told}")


def _is_away(member: Mapping[str, Any]) -> bool:
    return member["state"] in ("Away", "Lost")


def ordered(found: Manifest, annotation: str) -> str:
    """The order of this kind that stands; "" where there is none."""
    return str(found["metadata"].get("annotations", {}).get(annotation, "")).strip()


def given(order: Order, found: Manifest) -> list[str]:
    """What is said to whoever gave an order: lines."""
    return [f"Ordered: {order}.", *held_up(found), f"Take it back: {taken_back_by(order, found)}"]


def taken_back_by(order: Order, found: Manifest) -> str:
    """How an order is taken back."""
    metadata = found["metadata"]
    command = f"kubectl -n {metadata['namespace']} annotate wc {metadata['name']} {order.annotation}-"
    match order:
        case Roll():
            return f"{command} (brokers that have restarted by then have)"
        case Replace():
            return f"{command} (before the disk is out of the cluster: afterwards nothing brings it back)"
        case _:
            return command


def held_up(found: Manifest) -> list[str]:
    """What held the cluster up at the operator's last look, and who can lift it."""
    annotations, plan = found["metadata"].get("annotations", {}), _status(found).get("plan", {})
    lines = [
        f"Nothing is done while the cluster is paused by {name}: {annotations[name] or 'no reason given'}."
        for name in (PAUSE, PAUSE_UNTIL)
        if name in annotations
    ]
    gate = plan.get("blockedBy")
    if gate and gate != Gate.PAUSED:
        lines += [f"Held up now by {gate}: {plan.get('detail', '')}.", f"Who can lift it: {lifted_by(gate)}"]
    if not _status(found):
        lines.append("No operator has looked at the cluster yet: `kubectl walrus doctor` says why.")
    return lines or ["Nothing held the cluster up when the operator looked last."]


def refused(order: Order, found: Manifest, before: Manifest) -> str:
    """Why the operator does not carry the order out; "" as long as it does not say so.

    What it said before the order was given, in the same words, may be about another one.
    """
    plan, former = _status(found).get("plan", {}), _status(before).get("plan", {})
    if order.refusal is None or plan.get("blockedBy") != order.refusal or plan == former:
        return ""
    return str(plan.get("detail", ""))


def _status(found: Manifest) -> Mapping[str, Any]:
    status: Mapping[str, Any] = found.get("status") or {}
    return status
