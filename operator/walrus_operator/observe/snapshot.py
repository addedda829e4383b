"""One look at a cluster. What could not be seen is None, and stays unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from walrus_operator.desired.names import LABEL_POOL, PAUSE, REVISION, Names
from walrus_operator.objects import CLAIM, POD, STATEFUL_SET, Key, Manifest, Ref, owned_by, ref_of, uid_of


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
            deleting="deletionTimestamp" in metadata,
        )

    @property
    def names(self) -> Names:
        """Names of what belongs to it."""
        return Names(self.key.namespace, self.key.name)


@dataclass(frozen=True)
class Pod:
    """A broker's pod."""

    name: str
    uid: str
    pool: str
    revision: str
    """What it was made from."""
    ip: str | None
    node: str | None
    ready: bool
    running: bool
    deleting: bool
    restarts: int
    trouble: str | None
    """Why its container does not run, in the words of Kubernetes."""

    @classmethod
    def parse(cls, manifest: Manifest) -> Pod:
        """From the API server's object."""
        metadata, spec, status = manifest["metadata"], manifest.get("spec", {}), manifest.get("status", {})
        conditions = {condition["type"]: condition for condition in status.get("conditions", ())}
        containers = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
        brokers = status.get("containerStatuses", ())
        return cls(
            name=metadata["name"],
            uid=uid_of(manifest),
            pool=metadata.get("labels", {}).get(LABEL_POOL, ""),
            revision=metadata.get("annotations", {}).get(REVISION, ""),
            ip=status.get("podIP"),
            node=spec.get("nodeName"),
            ready=conditions.get("Ready", {}).get("status") == "True",
            running=any("running" in container.get("state", {}) for container in brokers),
            deleting="deletionTimestamp" in metadata,
            restarts=sum(container.get("restartCount", 0) for container in brokers),
            trouble=_trouble(conditions, containers),
        )


def _trouble(conditions: Mapping[str, Any], containers: Iterable[Mapping[str, Any]]) -> str | None:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', 'Unschedulable')}: {scheduled.get('message', '')}"[:300]
    for container in containers:
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']}: {waiting.get('message', '')}"[:300]
    return None


@dataclass(frozen=True)
class Replication:
    """How segments that are opened from now on are replicated."""

    factor: int
    write_quorum: int

    def __str__(self) -> str:
        return f"factor {self.factor}, writeQuorum {self.write_quorum}"


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
    bytes_free: int
    bytes_total: int


@dataclass(frozen=True)
class Config:
    """The cluster's dynamic configuration, as the broker that knows the latest told."""

    version: int
    entries: Mapping[str, int]


@dataclass(frozen=True)
class Snapshot:
    """One look."""

    cluster: Cluster
    objects: Mapping[Ref, Manifest]
    """Everything that bears the cluster's label, but pods and claims."""
    pods: Mapping[str, Pod] = field(default_factory=dict)
    claims: Mapping[str, str] = field(default_factory=dict)
    """Phase of each claim, by name."""
    brokers: Mapping[str, Broker | None] = field(default_factory=dict)
    """By pod; None where a broker runs and did not answer."""
    config: Config | None = None

    def sets(self) -> dict[str, Manifest]:
        """StatefulSets of the cluster, by pool."""
        return {
            manifest["metadata"]["labels"].get(LABEL_POOL, ""): manifest
            for ref, manifest in self.objects.items()
            if ref.kind == STATEFUL_SET.name and owned_by(manifest, self.cluster.uid)
        }

    def leader(self) -> tuple[str, Broker] | None:
        """The pod that leads the metadata: the one of the latest term, where an isolated one still believes it does."""
        leading = [(b.term, name, b) for name, b in self.brokers.items() if b is not None and b.role == "Leader"]
        return max(leading)[1:] if leading else None

    def replication(self) -> Replication | None:
        """As the metadata leader tells, or else whoever is in the cluster."""
        leader = self.leader()
        known = [leader[1]] if leader else [broker for broker in self.brokers.values() if broker is not None]
        return next((broker.replication for broker in known if broker.replication is not None), None)

    def cluster_ids(self) -> set[str]:
        """Every identity of a cluster that is told: by the status, by brokers. More than one is a mistake."""
        told = {broker.cluster_id for broker in self.brokers.values() if broker is not None}
        return {*told, str(self.cluster.status.get("clusterId", ""))} - {""}


def arranged(manifests: Iterable[Manifest]) -> dict[Ref, Manifest]:
    """Objects by reference."""
    return {ref_of(manifest): manifest for manifest in manifests if manifest["kind"] not in (POD.name, CLAIM.name)}
