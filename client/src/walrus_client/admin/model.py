"""What the admin client hands out: frozen values, made once from the messages of `walrus_client.v1`."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from walrus_client.v1 import admin_pb2


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a node is. `cluster_id` and `node_id` are None as long as it waits to be admitted."""

    cluster_id: str | None
    node_id: int | None
    disk: str  # minted on an empty disk: this is the node
    process: str  # minted at each start
    node_name: str
    version: str
    former_cluster_ids: tuple[str, ...] = ()  # what the cluster was called before forced recoveries of its metadata

    @classmethod
    def parse(cls, message: admin_pb2.IdentityResponse) -> "Identity":
        return cls(
            cluster_id=message.cluster_id or None,
            node_id=message.node_id or None,
            disk=message.disk,
            process=message.process,
            node_name=message.node_name,
            version=message.version,
            former_cluster_ids=tuple(message.former_cluster_ids),
        )


class MetadataRole(StrEnum):
    """What a node is in the metadata's Raft; an observer does not vote."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    OBSERVER = "observer"


@dataclass(frozen=True, slots=True)
class MetadataStatus:
    """The metadata as one node sees it; nodes by their ids, `leader` is None where none is known."""

    leader: int | None
    term: int
    version: int
    role: MetadataRole
    voters: tuple[int, ...]
    level: int  # level of the commands that the cluster uses; 0 where the node does not tell
    level_reachable: int  # which all members know, so that `finalize_level` can raise it to this one

    @classmethod
    def parse(cls, message: admin_pb2.MetadataStatus) -> "MetadataStatus":
        return cls(
            leader=message.leader or None,
            term=message.term,
            version=message.version,
            role=_ROLES[message.role],
            voters=tuple(message.voters),
            level=message.level,
            level_reachable=message.level_reachable,
        )


@dataclass(frozen=True, slots=True)
class OrganisationLimits:
    """What an organisation may have, beside the limits of the cluster; None: those alone."""

    topics_max: int | None = None
    partitions_max: int | None = None  # all its topics count together
    creations_per_second_max: int | None = None  # topics that may be created in one second


@dataclass(frozen=True, slots=True)
class Organisation:
    """A namespace of topics, with its limits and what it has; `version` grows with each change of the limits."""

    name: str
    limits: OrganisationLimits
    topics: int
    partitions: int
    version: int

    @classmethod
    def parse(cls, message: admin_pb2.Organisation) -> "Organisation":
        return cls(
            name=message.name,
            limits=OrganisationLimits(**{field.name: value for field, value in message.limits.ListFields()}),
            topics=message.topics,
            partitions=message.partitions,
            version=message.version,
        )


@dataclass(frozen=True, slots=True)
class Listener:
    """Where clients of an organisation reach a node; `protocol` is "text" or "grpc"."""

    protocol: str
    org: str
    address: str

    @classmethod
    def parse(cls, message: admin_pb2.OrganisationListener) -> "Listener":
        return cls(protocol=message.protocol, org=message.org, address=message.address)


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as the metadata lists it; `alive` means that its lease had not lapsed."""

    node_id: int
    disk: str
    process: str
    name: str
    raft_address: str
    peer_address: str
    text_address: str
    grpc_address: str
    http_address: str
    admin_address: str
    state: str  # "up", "full", "draining" or "stopping"
    alive: bool
    voter: bool
    listeners: tuple[Listener, ...] = ()  # those for organisations other than `default`
    level_known: int = 0  # up to which level its process knows commands of the metadata; 0 where nobody tells
    zone: str = ""  # that it is in; empty where nobody tells

    @classmethod
    def parse(cls, message: admin_pb2.ClusterNode) -> "NodeView":
        told = {name: getattr(message, name) for name in cls.__dataclass_fields__}
        return cls(**{**told, "listeners": tuple(map(Listener.parse, message.listeners))})


@dataclass(frozen=True, slots=True)
class WireVersions:
    """Versions of the frames between brokers that a node speaks, both ends included."""

    oldest: int
    newest: int

    @classmethod
    def parse(cls, message: admin_pb2.WireVersions) -> "WireVersions":
        return cls(oldest=message.oldest, newest=message.newest)


@dataclass(frozen=True, slots=True)
class Storage:
    """A node's store; `backend_in_use` and `synced_writes` are None as long as it is not open, `reason` and
    `cached_reason` None where nothing was refused.
    """

    backend_asked: str
    backend_in_use: str | None
    reason: str | None
    data_dir: str
    bytes_free: int
    bytes_total: int
    copies_not_whole: int  # on this disk, of open segments too: they lacked something for longer than `lacking_ms_max`
    synced_writes: str | None  # "direct", or "cached": through the page cache, which is synced then
    cached_reason: str | None

    @classmethod
    def parse(cls, message: admin_pb2.StorageStatus) -> "Storage":
        return cls(
            backend_asked=message.backend_asked,
            backend_in_use=message.backend_in_use or None,
            reason=message.reason or None,
            data_dir=message.data_dir,
            bytes_free=message.bytes_free,
            bytes_total=message.bytes_total,
            copies_not_whole=message.copies_not_whole,
            synced_writes=message.synced_writes or None,
            cached_reason=message.cached_reason or None,
        )


@dataclass(frozen=True, slots=True)
class Copies:
    """How the copies of the cluster's sealed segments are."""

    under_replicated: int  # segments with fewer verified copies than there should be on nodes that stay
    without_copy: int  # those of the under-replicated segments that have no verified copy at all
    moving: int  # copies that are being made
    damaged: int  # copies with damage that their holders cannot mend
    lost: int  # segments that no node has any more; not among the ones above
    in_one_zone: int = 0  # segments that the loss of one zone would leave without a quorum, or without a sealed copy

    @classmethod
    def parse(cls, message: admin_pb2.CopiesStatus) -> "Copies":
        return cls(**{name: getattr(message, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class Replication:
    """How segments that are opened from now on are replicated."""

    factor: int  # replicas of a segment
    write_quorum: int  # that have a record on their disks before it is acknowledged

    @classmethod
    def parse(cls, message: admin_pb2.ReplicationStatus) -> "Replication":
        return cls(factor=message.factor, write_quorum=message.write_quorum)


@dataclass(frozen=True, slots=True)
class Status:
    """How a node is and how it sees the cluster; `metadata` is None as long as it is in none."""

    ready: bool
    missing: tuple[str, ...]  # what keeps it from being ready
    identity: Identity
    metadata: MetadataStatus | None
    nodes: tuple[NodeView, ...]
    storage: Storage
    segments_led: int  # by this node
    segments_held: int  # replicas on this node's disk
    config_version: int
    under_replicated: int  # segments of the cluster with fewer copies on nodes that are alive than there should be
    copies: Copies | None  # None as long as it is in no cluster
    replication: Replication | None  # None as long as it is in no cluster
    spare_nodes: int | None  # that may stop now, whichever they are; known to the node that leads the metadata
    log_level: str  # what the node logs now, as `set_log_level` takes it; empty where it does not tell
    bytes_held: int = 0  # bytes of sealed segments on this node's disk, or that it is to store
    copies_needed: int = 0  # the most copies that any segment shall have: with fewer nodes it never has them all
    level_known: int = 0  # up to which level it knows commands of the metadata; 0 where it does not tell
    wire_versions: WireVersions | None = None  # None where it does not tell

    @classmethod
    def parse(cls, message: admin_pb2.StatusResponse) -> "Status":
        return cls(
            ready=message.ready,
            missing=tuple(message.missing),
            identity=Identity.parse(message.identity),
            metadata=MetadataStatus.parse(message.metadata) if message.HasField("metadata") else None,
            nodes=tuple(map(NodeView.parse, message.nodes)),
            storage=Storage.parse(message.storage),
            segments_led=message.segments_led,
            segments_held=message.segments_held,
            config_version=message.config_version,
            under_replicated=message.under_replicated,
            copies=Copies.parse(message.copies) if message.HasField("copies") else None,
            replication=Replication.parse(message.replication) if message.HasField("replication") else None,
            spare_nodes=message.spare_nodes if message.HasField("spare_nodes") else None,
            log_level=message.log_level,
            bytes_held=message.bytes_held,
            copies_needed=message.copies_needed,
            level_known=message.level_known,
            wire_versions=WireVersions.parse(message.wire_versions) if message.HasField("wire_versions") else None,
        )


@dataclass(frozen=True, slots=True)
class CopyView:
    """A copy of a segment."""

    node_id: int
    disk: str
    state: str  # "replica" of a segment that is not sealed, "filling", "verified", "damaged", "leaving" or "lost"
    alive: bool

    @classmethod
    def parse(cls, message: admin_pb2.CopyView) -> "CopyView":
        return cls(**{name: getattr(message, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A segment as the metadata lists it; `end_offset` is None until it is sealed."""

    topic: str  # organisation/name
    partition: int
    number: int
    uuid: str
    state: str  # "open", "sealing" or "sealed"
    leader: int
    epoch: int
    base_offset: int
    end_offset: int | None
    copies: tuple[CopyView, ...]
    under_replicated: bool

    @classmethod
    def parse(cls, message: admin_pb2.SegmentView) -> "SegmentView":
        return cls(
            topic=message.topic,
            partition=message.partition,
            number=message.number,
            uuid=message.uuid,
            state=message.state,
            leader=message.leader,
            epoch=message.epoch,
            base_offset=message.base_offset,
            end_offset=message.end_offset if message.HasField("end_offset") else None,
            copies=tuple(map(CopyView.parse, message.copies)),
            under_replicated=message.under_replicated,
        )


@dataclass(frozen=True, slots=True)
class StopImpact:
    """What the cluster would lack if a node stopped; `reasons` say why it should not."""

    can_stop: bool
    reasons: tuple[str, ...]
    open_without_quorum: int  # open segments that could take no append before it is back
    sealed_without_copy: int  # sealed segments that could not be read
    segments_led: int  # open segments that it leads: they move to another leader, or wait
    metadata_without_majority: bool
    topics: tuple[str, ...]  # some of those that would be harmed

    @classmethod
    def parse(cls, message: admin_pb2.CanStopResponse) -> "StopImpact":
        return cls(
            can_stop=message.can_stop,
            reasons=tuple(message.reasons),
            open_without_quorum=message.open_without_quorum,
            sealed_without_copy=message.sealed_without_copy,
            segments_led=message.segments_led,
            metadata_without_majority=message.metadata_without_majority,
            topics=tuple(message.topics),
        )


@dataclass(frozen=True, slots=True)
class Drain:
    """How far a drain is; `done`: the node is drained and neither leads nor stores anything."""

    node_id: int
    draining: bool
    segments_led: int
    segments_held: int
    done: bool

    @classmethod
    def parse(cls, message: admin_pb2.DrainStatus) -> "Drain":
        return cls(**{name: getattr(message, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class Config:
    """The cluster-wide settings; `version` grows with each change of one, and is 0 as long as none was made."""

    version: int
    entries: Mapping[str, int]  # what is not here is each node's own option

    @classmethod
    def parse(cls, message: admin_pb2.GetConfigResponse) -> "Config":
        return cls(version=message.version, entries=MappingProxyType(dict(sorted(message.entries.items()))))


_ROLES = {
    admin_pb2.MetadataStatus.ROLE_LEADER: MetadataRole.LEADER,
    admin_pb2.MetadataStatus.ROLE_FOLLOWER: MetadataRole.FOLLOWER,
    admin_pb2.MetadataStatus.ROLE_CANDIDATE: MetadataRole.CANDIDATE,
    admin_pb2.MetadataStatus.ROLE_OBSERVER: MetadataRole.OBSERVER,
}


@dataclass(frozen=True, slots=True)
class LostPartition:
    """What is left of a partition of a lost topic: offsets from `begins` to below `ends`, `bytes` in one copy."""

    partition: int
    begins: int
    ends: int
    bytes: int
    problem: str | None  # why it cannot be recovered

    @classmethod
    def parse(cls, message: admin_pb2.LostPartition) -> "LostPartition":
        return cls(message.partition, message.begins, message.ends, message.bytes, message.problem or None)


@dataclass(frozen=True, slots=True)
class LostTopic:
    """A topic that the metadata do not name, and of which records lie on disks."""

    topic: str  # uuid
    name: str | None  # None: no disk knows it
    internal: bool  # one of Walrus's own
    partitions: tuple[LostPartition, ...]

    @classmethod
    def parse(cls, message: admin_pb2.LostTopic) -> "LostTopic":
        return cls(
            topic=message.topic,
            name=message.facts.name or None,
            internal=message.facts.internal,
            partitions=tuple(map(LostPartition.parse, message.partitions)),
        )


@dataclass(frozen=True, slots=True)
class LostTopics:
    """Lost topics by uuid; `silent` names the members that did not answer: on their disks there may be more."""

    topics: tuple[LostTopic, ...]
    silent: tuple[str, ...]

    @classmethod
    def parse(cls, message: admin_pb2.ListLostTopicsResponse) -> "LostTopics":
        return cls(tuple(map(LostTopic.parse, message.topics)), tuple(message.silent))
