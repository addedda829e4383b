"""`WalrusCluster` as a user writes it: descriptions, defaults and rules of the CRD and of the chart's values."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from walrus_operator.api.affinity import Affinity
from walrus_operator.api.config import Config
from walrus_operator.api.listeners import Listener, default_listeners
from walrus_operator.api.network import NetworkPolicy
from walrus_operator.api.pods import Annotations, Labels, PodSecurity, PullSecret, Resources, Toleration, Variable
from walrus_operator.api.schema import ATOMIC, Duration, Label, Model, Quantity, Spelled, VolumeSize, keyed_by, rules
from walrus_operator.api.units import milliseconds_of
from walrus_operator.api.updates import UpdatePolicy

GROUP = "walrus.dev"
VERSION = "v1alpha1"
KIND = "WalrusCluster"
PLURAL = "walrusclusters"
API_VERSION = f"{GROUP}/{VERSION}"


class Backend(StrEnum):
    """How a broker writes to its disk."""

    MMAP = "mmap"
    DIRECT = "direct"
    IO_URING = "io_uring"
    AUTO = "auto"


_SAME_CLASS = (
    "has(self.storageClassName) == has(oldSelf.storageClassName)"
    " && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)"
)


class AutoGrow(Model):
    """Let the claims of a pool grow by themselves. The spec stays as it is."""

    at: Annotated[int, Field(ge=50, le=95)] = 80
    """How many percent of a disk of the pool are used when all its claims grow."""
    step: VolumeSize
    """By how much they grow each time."""
    max: VolumeSize
    """How large they become at most; then `StorageHealthy` says so."""


class Claim(Model):
    """A volume that Kubernetes provides for each broker."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.autoGrow) || quantity(self.autoGrow.max).compareTo(quantity(self.size)) >= 0",
                "autoGrow.max must not be below size",
            ),
            (
                _SAME_CLASS,
                "the storage class of a pool cannot change: add another pool",
            ),
        )
    )

    size: VolumeSize
    """Size of each broker's volume. It may grow while brokers serve, where the storage class can expand volumes."""
    storage_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Storage class of the volumes; without it the cluster's default class."""
    auto_grow: AutoGrow | None = None
    """Let claims grow by themselves as disks fill up; without it they grow only where `size` does."""


class Local(Model):
    """A disk of the machine itself, offered by the storage class as a local persistent volume."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "self.storageClassName == oldSelf.storageClassName",
                "the storage class of a pool cannot change: add another pool",
            ),
        )
    )

    size: VolumeSize
    """Least size of each broker's disk. It may grow where the storage class can expand volumes."""
    storage_class_name: Annotated[str, Field(min_length=1, max_length=253)]
    """Storage class of local volumes, with `volumeBindingMode: WaitForFirstConsumer`."""


_SYSTEM_FOLDERS = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/usr"),
    *("/tmp", "/var/tmp", "/var/log", "/var/run"),  # noqa: S108 - named so that no data are put there
    *("/var/lib/containerd", "/var/lib/containers", "/var/lib/docker", "/var/lib/etcd", "/var/lib/kubelet"),
    "/var/lib/rancher",
)
"""Folders where a broker's data would be lost, or the node: also what is below them, and what they are below."""
_SHARED_FOLDERS = ("/home", "/opt")
"""Folders of whoever uses the node; one below them may be a broker's own."""
_NESTED = "(self.path + '/').startsWith(f + '/') || f.startsWith(self.path + '/')"


class HostPath(Model):
    """A folder of the node. Needs `allowHostPath`, and a namespace whose pod security allows it."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                f"!(self.path in {list(_SHARED_FOLDERS)}) && !{list(_SYSTEM_FOLDERS)}.exists(f, {_NESTED})",
                "path must not be a folder of the node's own system: use one of its own, for example /var/lib/walrus",
            ),
            ("self.path == oldSelf.path", "the path of a pool cannot change: add another pool"),
        )
    )

    path: Annotated[
        str,
        Field(max_length=200),
        Spelled(
            "^(/[.]?[A-Za-z0-9_-][A-Za-z0-9._-]*)+$",
            "must be absolute, without '.' and '..' and a slash at its end, for example /var/lib/walrus",
        ),
    ]
    """Folder on each node; a broker's data lies below it in `<namespace>/<cluster>/<pool>`."""


class Storage(Model):
    """Where the brokers of a pool keep their data: exactly one of the three."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "[has(self.claim), has(self.local), has(self.hostPath)].filter(x, x).size() == 1",
                "storage must be exactly one of claim, local, hostPath",
            ),
            (
                " && ".join(f"has(self.{kind}) == has(oldSelf.{kind})" for kind in ("claim", "local", "hostPath")),
                "the kind of storage of a pool cannot change: add another pool",
            ),
        )
    )

    claim: Claim | None = None
    """A volume that Kubernetes provides for each broker."""
    local: Local | None = None
    """A disk of the machine itself, through a storage class of local persistent volumes."""
    host_path: HostPath | None = None
    """A folder of the node. Needs `allowHostPath`, and a namespace whose pod security allows it."""

    @property
    def size(self) -> str | None:
        """The size of each broker's volume; None for folders of nodes."""
        volume = self.claim or self.local
        return volume.size if volume is not None else None


class Spread(StrEnum):
    """What brokers, copies and voters are spread over."""

    ZONE = "zone"
    HOST = "host"


class Topology(Model):
    """How brokers are spread, so that what fails at once takes few of them along."""

    spread: Spread = Spread.ZONE
    """`zone`: over zones first (the label `topology.kubernetes.io/zone` of nodes) and then over nodes; copies of a
    segment lie in different zones, and so do voters. `host`: over nodes alone, and brokers know of no zones."""
    required: bool = False
    """Start no broker beside another one of its zone (or on its node) before there are `replication.factor` zones (or
    nodes); by default brokers start where there is room, and the condition `SurvivesZoneLoss` tells what that means."""


class Pool(Model):
    """Brokers of one kind: one StatefulSet."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.storage.hostPath) || self.allowHostPath",
                "storage.hostPath ties brokers to folders of nodes: set allowHostPath: true to accept it",
            ),
            (
                "self.backend != 'io_uring' || !has(self.storage.claim)",
                "backend: io_uring is for disks of nodes: use storage.local or storage.hostPath, or another backend",
            ),
        )
    )

    name: Annotated[
        str,
        Field(max_length=20),
        Spelled(
            "^[a-z]([-a-z0-9]*[a-z0-9])?$",
            "must start with a letter and hold only small letters, digits and '-', for example general",
        ),
    ]
    """Name of the pool; the brokers of pool `general` of cluster `orders` are the pods `orders-general-N`."""
    replicas: Annotated[int, Field(ge=1, le=100)] = 3
    """Number of brokers. A running cluster grows and shrinks by one at a time; one that goes hands over before."""
    backend: Backend = Backend.MMAP
    """How brokers write to their disks; `auto` takes the fastest that works. `io_uring` needs storage of the nodes, and
    the seccomp profile `walrus/io-uring.json` on them. What is in use is in the status."""
    storage: Storage
    """Where the brokers keep their data."""
    allow_host_path: bool = False
    """Accept that `storage.hostPath` ties brokers to folders of nodes."""
    resources: Resources | None = None
    """Compute resources of each broker's container."""
    node_selector: Annotated[dict[str, Label], Field(max_length=32)] | None = None
    """Labels that a node must bear to run brokers of this pool."""
    tolerations: list[Toleration] | None = Field(default=None, max_length=32, json_schema_extra=ATOMIC)
    """Taints of nodes that the brokers of this pool accept."""
    zone: (
        Annotated[
            str,
            Field(max_length=63),
            Spelled("^[A-Za-z0-9][A-Za-z0-9._-]*$", "must be the name of a zone, for example eu-1a"),
        ]
        | None
    ) = None
    """Zone of all brokers of this pool, in place of what the labels of their nodes say; `nodeSelector` is what puts
    brokers there. Before Kubernetes 1.35 pods do not learn the zone of their node: this tells it."""
    affinity: Affinity | None = None
    """Where the brokers of this pool may run, besides `nodeSelector`."""
    priority_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Priority class of the brokers' pods."""
    labels: Labels | None = None
    """Further labels of the brokers' pods."""
    annotations: Annotations | None = None
    """Further annotations of the brokers' pods."""
    env: list[Variable] | None = Field(default=None, max_length=64, json_schema_extra=keyed_by("name"))
    """Further variables of the brokers' containers."""


class Segments(Model):
    """When an open segment is sealed and the next one opens on another broker. A change reaches running brokers."""

    max_entries: Annotated[int, Field(ge=1, le=2**40)] = 1_000_000
    """Roll at so many records."""
    max_bytes: Quantity = "1Gi"
    """Roll at so many bytes."""
    max_age: Duration | None = None
    """Roll at this age; without it age does not matter."""
    check_interval: Annotated[
        str,
        Field(max_length=8),
        Spelled("^([1-9][0-9]{1,4}ms|[1-9][0-9]{0,3}s)$", "must be a time from 10ms to 9999s, such as 250ms or 90s"),
    ] = "10s"
    """How often each broker looks at its open segments."""


class Replication(Model):
    """On how many disks a record is. A change reaches running brokers: copies are made, or given up."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "!has(self.writeQuorum) || self.writeQuorum <= self.factor",
                "replication.writeQuorum must not be above replication.factor",
            ),
            (
                "!has(self.writeQuorum) || 2 * self.writeQuorum > self.factor",
                "replication.writeQuorum must be more than half of replication.factor",
            ),
        )
    )

    factor: Annotated[int, Field(ge=1, le=7)] = 3
    """Brokers that store each record. Not more than there are; with 1 a record is as safe as the one disk it is on."""
    write_quorum: Annotated[int, Field(ge=1, le=7)] | None = None
    """Brokers that have a record on their disks before it is acknowledged; without it the majority of `factor`. With
    `factor: 3` that is 2: any broker may be lost, and writes go on."""

    @property
    def acknowledged_by(self) -> int:
        """The write quorum, as given or by default."""
        return self.write_quorum or self.factor // 2 + 1


class FsyncMode(StrEnum):
    """When records become durable."""

    EACH = "each"
    INTERVAL = "interval"
    NEVER = "never"


class Fsync(Model):
    """When records become durable: before each acknowledgement, at an interval, or when the system writes them."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            (
                "has(self.interval) == (self.mode == 'interval')",
                "fsync.interval goes with fsync.mode: interval, and only with it",
            ),
        )
    )

    mode: FsyncMode = FsyncMode.EACH
    """`each`: before a record is acknowledged. `interval`: at least so often. `never`: left to the system."""
    interval: Duration | None = None
    """Longest time until a record is durable, with `mode: interval`."""


class DeletionPolicy(StrEnum):
    """What happens to the data when the WalrusCluster is deleted."""

    RETAIN = "Retain"
    DELETE = "Delete"


_NEVER = "never"
_BROKERS = "self.pools.map(p, p.replicas).sum()"


class ClusterSpec(Model):
    """What the cluster shall be."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("has(self.image) != has(self.version)", "give exactly one of image and version"),
            (
                "self.deletionPolicy != 'Delete' || self.pools.all(p, !has(p.storage.hostPath))",
                "deletionPolicy: Delete cannot remove folders of nodes: with storage.hostPath use Retain",
            ),
            (
                "self.podSecurity != 'Platform' || self.pools.all(p, !has(p.storage.hostPath))",
                (
                    "podSecurity: Platform gives brokers users that own no folders of nodes: with storage.hostPath"
                    " leave it out"
                ),
            ),
            (
                "self.topology.spread == 'zone' || self.pools.all(p, !has(p.zone))",
                "pools[].zone means nothing with topology.spread: host: leave one of them out",
            ),
            (
                "!self.topology.required || self.pools.all(p, !has(p.zone))",
                (
                    "topology.required is about the zones of nodes, and brokers with pools[].zone are where their pool"
                    " is: leave one of them out"
                ),
            ),
            (
                f"{_BROKERS} == 1 || self.replication.factor <= {_BROKERS}",
                "replication.factor is above the number of brokers: lower it, or add brokers",
            ),
            (
                f"{_BROKERS} > 1 || self.replication.factor == 1",
                "one broker has one copy: write replication: {factor: 1}, or add brokers",
            ),
            (
                (
                    "!has(self.listeners) || self.listeners.all(l, !has(l.port)"
                    " || self.listeners.exists_one(o, has(o.port) && o.port == l.port))"
                ),
                "two listeners have the same port: give each its own, for example 9094 and 9095",
            ),
            (
                (
                    "self.pools.size() == 1 || !has(self.listeners)"
                    " || self.listeners.all(l, !has(l.brokers) || !has(l.brokers.advertisedHost)"
                    " || l.brokers.advertisedHost.contains('{pod}') || l.brokers.advertisedHost.contains('{pool}'))"
                ),
                (
                    "brokers of several pools need hosts of their own: advertisedHost with {pod}, or with {pool} and"
                    " {ordinal}"
                ),
            ),
        )
    )

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image of the brokers, for example one pinned by digest. Instead of `version`."""
    version: (
        Annotated[
            str,
            Field(max_length=128),
            Spelled("^[A-Za-z0-9_][A-Za-z0-9._-]*$", "must be a tag of an image, for example 1.4.0"),
        ]
        | None
    ) = None
    """Version of the brokers: the tag of the node image that the operator is configured with. Instead of `image`."""
    image_pull_secrets: list[PullSecret] | None = Field(default=None, max_length=8, json_schema_extra=keyed_by("name"))
    """Secrets of this namespace with which the brokers' image is pulled from a registry that is not open to all."""
    pod_security: PodSecurity = PodSecurity.OPERATOR
    """Who says as which user and group brokers run: `Operator`, as 10001; `Platform`, which sets both itself, as
    OpenShift does. Pods are restricted in any case."""
    pools: list[Pool] = Field(min_length=1, max_length=16, json_schema_extra=keyed_by("name"))
    """The brokers, grouped by kind. The first broker of the first pool founds the cluster."""
    replication: Replication = Replication()
    """On how many disks a record is; by default on three, and acknowledged when two have it."""
    topology: Topology = Topology()
    """How brokers are spread over zones and nodes, and copies with them."""
    segments: Segments = Segments()
    """When segments roll. A change reaches running brokers without a restart."""
    fsync: Fsync = Fsync()
    """When records become durable."""
    listeners: list[Listener] = Field(
        default_factory=default_listeners, max_length=16, json_schema_extra=keyed_by("name")
    )
    """How clients reach the brokers; by default one of each protocol, inside Kubernetes."""
    network_policy: NetworkPolicy = NetworkPolicy()
    """Who may connect to brokers."""
    config: Config = Config()
    """Settings of brokers that have no field of their own."""
    update_policy: UpdatePolicy = UpdatePolicy()
    """When brokers may be stopped for what users change."""
    hibernate: bool = False
    """Stop all brokers together, and keep volumes, Services and how many brokers there were; `false` brings them back
    together."""
    lost_after: Annotated[
        str,
        Field(max_length=8),
        Spelled(f"^({_NEVER}|[1-9][0-9]{{0,4}}[smhd])$", f"must be a time such as 90s, 10m or 2h, or {_NEVER}"),
    ] = "10m"
    """How long a broker may be away whose node was deleted, and its disk with it, until the operator replaces it: the
    disk leaves the cluster for good, its claim goes under either `deletionPolicy`, and the broker comes up on another
    node. One at a time, and only while all others serve. `never`: only where `walrus.dev/replace` names the disk."""
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    """What happens to the volumes when the WalrusCluster is deleted."""

    @property
    def brokers(self) -> int:
        """How many there shall be, of all pools."""
        return sum(pool.replicas for pool in self.pools)

    @property
    def lost_after_or_never(self) -> timedelta | None:
        """How long a broker whose node is gone may be away; None: for ever."""
        return None if self.lost_after == _NEVER else timedelta(milliseconds=milliseconds_of(self.lost_after))


def parse_spec(spec: dict[str, Any]) -> ClusterSpec:
    """Parse what the API server handed out. Raises `pydantic.ValidationError`."""
    return ClusterSpec.model_validate(spec)
