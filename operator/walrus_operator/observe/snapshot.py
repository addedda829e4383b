"""One look at a cluster. What could not be seen is None, and stays unknown."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar

from walrus_operator.api.releases import Wire
from walrus_operator.desired.departures import Departure, departures_of
from walrus_operator.desired.disks import Disk, disks_of
from walrus_operator.desired.names import (
    ADOPT,
    CLUSTER_ID,
    DRAIN,
    FINALIZE,
    HIBERNATED,
    LABEL_CLUSTER,
    LABEL_POOL,
    PAUSE,
    PAUSE_UNTIL,
    REPLACE,
    ROLL,
    SECRET_KEY,
    Names,
)
from walrus_operator.desired.remade import sets_of
from walrus_operator.desired.secret import is_mounted
from walrus_operator.objects import (
    CLAIM,
    CLUSTER,
    CONFIG_MAP,
    POD,
    STATEFUL_SET,
    Key,
    Kind,
    Manifest,
    Ref,
    owned_by,
    ref_of,
    uid_of,
)
from walrus_operator.observe.claims import Claim
from walrus_operator.observe.machines import Machine, Volume
from walrus_operator.observe.pods import Pod, orders_of


@dataclass(frozen=True)
class Cluster:
    """The custom resource."""

    key: Key
    uid: str
    generation: int
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    pause: str | None
    """The reason why the operator shall only look."""
    deleting: bool
    adopt: bool = False
    """Whether to take over what bears its labels and lost its owner."""
    finalizers: tuple[str, ...] = ()
    pause_until: str | None = None
    """Until when the operator shall only look, as someone wrote it."""
    replace: str = ""
    """The disk that shall be replaced, as someone wrote it; "" where none shall."""
    drain: str = ""
    """The disk whose broker shall hand over what it has, as someone wrote it; "" where none shall."""
    roll: str = ""
    """The order that all brokers restart; "" where there is none."""
    finalize: str = ""
    """The level that the cluster may use, as someone wrote it; "" where nobody did."""

    kind: ClassVar[Kind] = CLUSTER

    @classmethod
    def parse(cls, manifest: Manifest) -> Cluster:
        """From the API server's object."""
        metadata = manifest["metadata"]
        return cls(
            key=Key(metadata["namespace"], metadata["name"]),
            uid=uid_of(manifest),
            generation=metadata.get("generation", 0),
            spec=manifest.get("spec", {}),
            status=manifest.get("status", {}),
            pause=metadata.get("annotations", {}).get(PAUSE),
            replace=metadata.get("annotations", {}).get(REPLACE, "").strip(),
            drain=metadata.get("annotations", {}).get(DRAIN, "").strip(),
            roll=metadata.get("annotations", {}).get(ROLL, "").strip(),
            finalize=metadata.get("annotations", {}).get(FINALIZE, "").strip(),
            pause_until=metadata.get("annotations", {}).get(PAUSE_UNTIL),
            deleting="deletionTimestamp" in metadata,
            adopt=ADOPT in metadata.get("annotations", {}),
            finalizers=tuple(metadata.get("finalizers", ())),
        )

    def owns(self, manifest: Manifest) -> bool:
        """Whether the object is the cluster's: by its owner, or as it lost that one and shall be taken over."""
        return owned_by(manifest, self.uid) or (self.adopt and self._lost(manifest))

    def _lost(self, manifest: Manifest) -> bool:
        """Whether it belonged to a WalrusCluster of this name: of those there is one at a time, and now it is this."""
        metadata = manifest["metadata"]
        return metadata.get("labels", {}).get(LABEL_CLUSTER) == self.key.name and all(
            (reference.get("kind"), reference.get("name")) == (CLUSTER.name, self.key.name)
            for reference in metadata.get("ownerReferences", ())
        )

    @cached_property
    def names(self) -> Names:
        """Names of what belongs to it."""
        return Names(self.key.namespace, self.key.name)


def addresses_of(node: Manifest) -> dict[str, str]:
    """The addresses of a node, the first of each type."""
    listed = node.get("status", {}).get("addresses", ())
    return {one["type"]: one["address"] for one in reversed(listed)}


@dataclass(frozen=True)
class SharedSecret:
    """The Secret that the brokers share."""

    content: bytes = field(repr=False)
    """The file that brokers read: secrets, one a line."""
    ours: bool
    """Whether it is the cluster's: it bears its label, and has no owner or is owned by the cluster."""

    @classmethod
    def parse(cls, manifest: Manifest, cluster: Cluster) -> SharedSecret:
        """From the API server's object."""
        metadata = manifest["metadata"]
        labelled = metadata.get("labels", {}).get(LABEL_CLUSTER) == cluster.key.name
        return cls(
            content=b64decode((manifest.get("data") or {}).get(SECRET_KEY, "")),
            ours=labelled and (not metadata.get("ownerReferences") or cluster.owns(manifest)),
        )


@dataclass(frozen=True)
class Replication:
    """How segments that are opened from now on are replicated."""

    factor: int
    write_quorum: int

    def __str__(self) -> str:
        return f"factor {self.factor}, writeQuorum {self.write_quorum}"


@dataclass(frozen=True)
class Member:
    """A broker as the metadata list it, whether it is there or not."""

    disk: str
    name: str
    """The name of the pod in which the broker last started."""
    alive: bool
    """Whether the others hear from it."""
    draining: bool = False
    """Whether it hands over what it has, and is given nothing new."""
    level_known: int = 0
    """Up to which level its broker knows commands of the metadata; 0 where nobody tells."""
    zone: str = ""
    """The zone that it is in; "" where nobody tells."""
    voter: bool = False
    """Whether it votes on the metadata."""


@dataclass(frozen=True)
class Broker:
    """What a broker told about itself."""

    cluster_id: str
    """"" as long as it is in no cluster."""
    node_id: int
    disk: str
    """Who it is."""
    version: str
    missing: tuple[str, ...]
    """What keeps it from serving."""
    role: str
    """Its part in the metadata quorum; "" as long as it has none."""
    term: int
    segments_led: int
    under_replicated: int
    replication: Replication | None
    """None as long as it is in no cluster."""
    spare_brokers: int | None
    """Brokers that may stop now, whichever they are; known to the one that leads the metadata."""
    config_version: int
    backend_asked: str
    backend_in_use: str
    backend_reason: str
    synced_writes: str
    """`direct` or `cached`; "" as long as its store is not open."""
    cached_reason: str
    bytes_free: int
    bytes_total: int
    log_level: str = ""
    """What it logs; "" where it does not tell."""
    members: tuple[Member, ...] = ()
    """Everyone in its cluster, as it knows them."""
    segments_held: int = 0
    """Segments that it stores, or is to store."""
    bytes_held: int = 0
    """Bytes of the sealed ones among them."""
    in_one_zone: int = 0
    """Segments of its cluster that the loss of one zone would leave without a quorum, or without a copy."""
    copies_needed: int = 0
    """The most copies that any segment of its cluster shall have."""
    level: int = 0
    """The level of commands that its cluster uses; 0 where it does not tell."""
    level_known: int = 0
    """Up to which level it knows them itself."""
    wire: Wire | None = None
    """Which versions of the frames between brokers it speaks; None where it does not tell."""
    former_cluster_ids: tuple[str, ...] = ()
    """What its cluster was called before its metadata were recovered without a majority."""


@dataclass(frozen=True)
class Drain:
    """How far a broker is with handing over, as the metadata leader counts."""

    led: int
    """Segments that it still leads."""
    held: int
    """Segments that it still stores."""
    done: bool
    """Whether it neither leads nor stores anything, and is given nothing new."""


@dataclass(frozen=True)
class Config:
    """The cluster's dynamic configuration, as the broker that knows the latest told."""

    version: int
    entries: Mapping[str, int]


@dataclass(frozen=True)
class StaysSmall:
    """What Kubernetes said to a claim that was to grow, before any did."""

    claim: str
    said: str
    refused: bool
    """Whether that was a no; otherwise nobody knows."""


@dataclass(frozen=True)
class Snapshot:
    """One look."""

    cluster: Cluster
    objects: Mapping[Ref, Manifest]
    """Everything that bears the cluster's label, but pods and claims."""
    pods: Mapping[str, Pod] = field(default_factory=dict)
    """Those that the cluster's StatefulSets made."""
    claims: Mapping[str, Claim] = field(default_factory=dict)
    """The claims of the cluster's pools, by name."""
    brokers: Mapping[str, Broker | None] = field(default_factory=dict)
    """By pod; None where a broker runs and did not answer."""
    config: Config | None = None
    orphans: Mapping[str, Pod] = field(default_factory=dict)
    """Pods that bear the cluster's label and that no StatefulSet owns; the next one of their pool takes them over."""
    secret: SharedSecret | None = None
    """The Secret of its brokers; None where there is none, or they share none."""
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Addresses of the nodes of its pods, by type; looked for where clients come in through ports of nodes."""
    at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    """When it was taken."""
    drains: Mapping[str, Drain] = field(default_factory=dict)
    """How far brokers are that go, by their disks, as the metadata leader told."""
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    """The volumes and folders of brokers that are away, by pod; those that Kubernetes still has."""
    machines: tuple[Machine, ...] = ()
    """All nodes of Kubernetes; looked for only where a broker is away."""
    stays_small: Mapping[str, StaysSmall] = field(default_factory=dict)
    """Pools whose claims would have to grow and have not begun, and cannot, as Kubernetes says."""
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Kinds of objects that the operator may not read, and what Kubernetes said: that none is here says nothing."""

    def hides_brokers(self) -> bool:
        """Whether nobody can tell which brokers there are."""
        return not self.unseen.keys().isdisjoint({POD.name, STATEFUL_SET.name})

    def shares_secret(self) -> bool:
        """Whether the brokers shall share a secret. Those that do and those that do not never speak with each other.

        So the cluster keeps to what its StatefulSets have, or the pods that these left behind, whoever made them; where
        there is neither, all brokers come up together, and share one.
        """
        names = self.cluster.names
        made = [
            is_mounted(found["spec"]["template"])
            for ref, found in self.objects.items()
            if ref.kind == STATEFUL_SET.name
            and ref.name == names.pool(found["metadata"].get("labels", {}).get(LABEL_POOL, ""))
        ] or [pod.shares_secret for pod in self.orphans.values() if pod.name.rpartition("-")[0] == names.pool(pod.pool)]
        return any(made) or not made

    def credentials(self) -> bytes | None:
        """What brokers ask for before they change something; None where they ask for nothing, or nobody knows it."""
        return (self.secret.content.strip() or None) if self.secret is not None and self.secret.ours else None

    def sets(self) -> dict[str, Manifest]:
        """StatefulSets of the cluster, by pool; one that is made anew, as it was."""
        return self._sets

    @cached_property
    def _sets(self) -> dict[str, Manifest]:
        live = {
            manifest["metadata"]["labels"].get(LABEL_POOL, ""): manifest
            for ref, manifest in self.objects.items()
            if ref.kind == STATEFUL_SET.name and self.cluster.owns(manifest)
        }
        return {**self._noted_sets, **live}

    def remade(self) -> dict[str, Manifest]:
        """StatefulSets that are made anew and are not there, or not any more in a moment, by pool."""
        namespace, names = self.cluster.key.namespace, self.cluster.names
        found = {pool: self.objects.get(Ref(STATEFUL_SET.name, namespace, names.pool(pool))) for pool in self.sets()}
        return {
            pool: noted
            for pool, noted in self._noted_sets.items()
            if (live := found[pool]) is None or "deletionTimestamp" in live["metadata"]
        }

    @cached_property
    def _noted_sets(self) -> dict[str, Manifest]:
        found = self.objects.get(Ref(CONFIG_MAP.name, self.cluster.key.namespace, self.cluster.names.remade))
        return sets_of(found.get("data", {})) if found is not None and self.cluster.owns(found) else {}

    def departures(self) -> dict[str, Departure]:
        """Brokers that go, and those that have gone and left their claims behind, by pod."""
        found = self.objects.get(Ref(CONFIG_MAP.name, self.cluster.key.namespace, self.cluster.names.departures))
        return departures_of(found.get("data", {})) if found is not None and self.cluster.owns(found) else {}

    def disks(self) -> dict[str, Disk]:
        """Which disk each broker is on, as it was noted while the broker said so, by pod."""
        found = self.objects.get(Ref(CONFIG_MAP.name, self.cluster.key.namespace, self.cluster.names.disks))
        return disks_of(found.get("data", {})) if found is not None and self.cluster.owns(found) else {}

    def away(self) -> list[Pod]:
        """Pods of members that the others do not hear from: those that are there, do not answer and are not ready."""
        leading = self.leader()
        silent = {member.name for member in leading[1].members if not member.alive} if leading is not None else set()
        return [
            pod
            for name, pod in sorted(self.pods.items())
            if name in silent and not pod.ready and self.brokers.get(name) is None
        ]

    def restart_asked(self, pool: str) -> dict[str, str]:
        """The orders that the brokers of the pool restart, as the pods that its StatefulSet makes now bear them."""
        found = self.sets().get(pool)
        return orders_of(found["spec"]["template"]["metadata"]) if found is not None else {}

    def claims_of(self, pool: str) -> list[Claim]:
        """Claims with a volume of the brokers that the pool has, by ordinal; those of brokers that went are none."""
        found = self.sets().get(pool)
        brokers = _brokers(found) if found is not None else 0
        return sorted(
            (
                claim
                for claim in self.claims.values()
                if claim.pool == pool and claim.ordinal < brokers and claim.is_sized
            ),
            key=lambda claim: claim.ordinal,
        )

    def expected(self) -> list[str]:
        """The pods that the StatefulSets of the cluster make."""
        return [
            self.cluster.names.pod(pool, ordinal)
            for pool, found in self.sets().items()
            for ordinal in range(int(found["spec"].get("replicas", 0)))
        ]

    def member(self, pod: str) -> Member | None:
        """The broker of the pod as the metadata leader lists it: by its disk, or by its name if that is not known."""
        leading, broker = self.leader(), self.brokers.get(pod)
        listed = leading[1].members if leading is not None else ()
        if broker is not None:
            return next((member for member in listed if member.disk == broker.disk), None)
        return next((member for member in listed if member.name == pod), None)

    def joined(self, pod: str) -> bool | None:
        """Whether the broker of the pod ever became part of the cluster; None: nobody who leads can tell."""
        found, broker = self.pods.get(pod), self.brokers.get(pod)
        if not self.cluster_ids():
            claim = self.claims.get(self.cluster.names.claim(pod))
            never = (found is None or found.node is None) and (claim is None or not claim.bound)
            return False if never else None
        leading = self.leader()
        if leading is None or leading[1].disk not in {member.disk for member in leading[1].members}:
            return None
        if broker is not None and broker.cluster_id:
            return True
        listed = [member for told in self.brokers.values() if told is not None for member in told.members]
        return any(pod == member.name or (broker is not None and broker.disk == member.disk) for member in listed)

    def leader(self) -> tuple[str, Broker] | None:
        """The pod that leads the metadata: the one of the latest term, where an isolated one still believes it does."""
        leading = [(b.term, name, b) for name, b in self.brokers.items() if b is not None and b.role == "Leader"]
        return max(leading)[1:] if leading else None

    def level(self) -> int:
        """The level of commands that the cluster uses, or used when somebody told of it last; 0: nobody ever did.

        It never goes back, so of several that are told the highest is true.
        """
        told = [broker.level for broker in self.brokers.values() if broker is not None]
        return max([int((self.cluster.status.get("level") or {}).get("used", 0)), *told])

    def level_reachable(self) -> int:
        """The level that all members know, whether they are there or not; 0 where nobody who leads tells."""
        leading = self.leader()
        if leading is None or not leading[1].level:
            return 0
        return min((member.level_known for member in leading[1].members), default=0)

    def members(self) -> tuple[Member, ...]:
        """Everyone in the cluster, as the metadata leader lists them, or else whoever knows the latest term."""
        leading = self.leader()
        if leading is not None:
            return leading[1].members
        known = [broker for broker in self.brokers.values() if broker is not None and broker.members]
        return max(known, key=lambda broker: broker.term).members if known else ()

    def lost_disks(self) -> dict[Member, Broker]:
        """Members whose disk is gone, and the broker that came up on a new one under the same name.

        A broker that only moved to the pod of another name is none: its disk is told by a pod, or a pod that may have
        it does not answer and the others still hear from it. The new disk is in the cluster, or, while nobody leads
        who could let it in, waits and is in no list. A disk that left the cluster and shows up again is no new one.
        """
        leaderless, listed = self.leader() is None, {member.disk for member in self.members()}
        told = {broker.disk for broker in self.brokers.values() if broker is not None}
        all_answer = self.pods.keys() <= {name for name, broker in self.brokers.items() if broker is not None}
        lost = {}
        for member in self.members():
            by = self.brokers.get(member.name)
            new = by is not None and (by.disk in listed or (leaderless and (by.cluster_id or by.disk not in listed)))
            if by is not None and new and member.disk not in told and (all_answer or not member.alive):
                lost[member] = by
        return lost

    def lost_cluster(self) -> bool:
        """Whether the cluster was founded, and every broker there is answers from a disk that is in none."""
        answers = list(self.brokers.values())
        return (
            bool(self.kept_id())
            and bool(answers)
            and all(broker is not None and not broker.cluster_id for broker in answers)
            and self.pods.keys() == self.brokers.keys()
        )

    def replication(self) -> Replication | None:
        """The replication of new segments, told by the metadata leader, or else by whoever is in the cluster."""
        leader = self.leader()
        known = [leader[1]] if leader else [broker for broker in self.brokers.values() if broker is not None]
        return next((broker.replication for broker in known if broker.replication is not None), None)

    def cluster_ids(self) -> set[str]:
        """Every identity of a cluster that is told: by what was kept, by brokers. More than one is a mistake.

        What was kept does not count where brokers say that their cluster had that identity before a forced recovery.
        """
        brokers = [broker for broker in self.brokers.values() if broker is not None]
        former = {former for broker in brokers for former in broker.former_cluster_ids}
        kept = {self.kept_id(), str(self.cluster.status.get("clusterId", ""))}
        return {*(broker.cluster_id for broker in brokers), *(kept - former)} - {""}

    def kept_id(self) -> str:
        """The identity of the cluster as it was known before; "" where it never was. A status may be pruned."""
        found = self.objects.get(Ref(CONFIG_MAP.name, self.cluster.key.namespace, self.cluster.names.accepted))
        kept = found.get("data", {}).get(CLUSTER_ID, "") if found is not None and self.cluster.owns(found) else ""
        return str(kept or self.cluster.status.get("clusterId", ""))


def _brokers(found: Manifest) -> int:
    """How many brokers the StatefulSet has, or had before all of them were stopped together."""
    stopped = str(found["metadata"].get("annotations", {}).get(HIBERNATED, ""))
    return max(int(found["spec"].get("replicas", 0)), int(stopped) if stopped.isdecimal() else 0)


def arranged(manifests: Iterable[Manifest]) -> dict[Ref, Manifest]:
    """Objects by reference."""
    return {ref_of(manifest): manifest for manifest in manifests if manifest["kind"] not in (POD.name, CLAIM.name)}
