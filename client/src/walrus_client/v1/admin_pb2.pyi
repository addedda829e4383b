from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IdentityRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IdentityResponse(_message.Message):
    __slots__ = ("cluster_id", "node_id", "disk", "process", "node_name", "version", "former_cluster_ids")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FORMER_CLUSTER_IDS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    node_id: int
    disk: str
    process: str
    node_name: str
    version: str
    former_cluster_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ..., disk: _Optional[str] = ..., process: _Optional[str] = ..., node_name: _Optional[str] = ..., version: _Optional[str] = ..., former_cluster_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("ready", "missing", "identity", "metadata", "nodes", "storage", "segments_led", "segments_held", "config_version", "under_replicated", "copies", "replication", "spare_nodes", "log_level", "bytes_held", "copies_needed", "level_known", "wire_versions")
    READY_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_LED_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_HELD_FIELD_NUMBER: _ClassVar[int]
    CONFIG_VERSION_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FIELD_NUMBER: _ClassVar[int]
    SPARE_NODES_FIELD_NUMBER: _ClassVar[int]
    LOG_LEVEL_FIELD_NUMBER: _ClassVar[int]
    BYTES_HELD_FIELD_NUMBER: _ClassVar[int]
    COPIES_NEEDED_FIELD_NUMBER: _ClassVar[int]
    LEVEL_KNOWN_FIELD_NUMBER: _ClassVar[int]
    WIRE_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    ready: bool
    missing: _containers.RepeatedScalarFieldContainer[str]
    identity: IdentityResponse
    metadata: MetadataStatus
    nodes: _containers.RepeatedCompositeFieldContainer[ClusterNode]
    storage: StorageStatus
    segments_led: int
    segments_held: int
    config_version: int
    under_replicated: int
    copies: CopiesStatus
    replication: ReplicationStatus
    spare_nodes: int
    log_level: str
    bytes_held: int
    copies_needed: int
    level_known: int
    wire_versions: WireVersions
    def __init__(self, ready: _Optional[bool] = ..., missing: _Optional[_Iterable[str]] = ..., identity: _Optional[_Union[IdentityResponse, _Mapping]] = ..., metadata: _Optional[_Union[MetadataStatus, _Mapping]] = ..., nodes: _Optional[_Iterable[_Union[ClusterNode, _Mapping]]] = ..., storage: _Optional[_Union[StorageStatus, _Mapping]] = ..., segments_led: _Optional[int] = ..., segments_held: _Optional[int] = ..., config_version: _Optional[int] = ..., under_replicated: _Optional[int] = ..., copies: _Optional[_Union[CopiesStatus, _Mapping]] = ..., replication: _Optional[_Union[ReplicationStatus, _Mapping]] = ..., spare_nodes: _Optional[int] = ..., log_level: _Optional[str] = ..., bytes_held: _Optional[int] = ..., copies_needed: _Optional[int] = ..., level_known: _Optional[int] = ..., wire_versions: _Optional[_Union[WireVersions, _Mapping]] = ...) -> None: ...

class WireVersions(_message.Message):
    __slots__ = ("oldest", "newest")
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    oldest: int
    newest: int
    def __init__(self, oldest: _Optional[int] = ..., newest: _Optional[int] = ...) -> None: ...

class ReplicationStatus(_message.Message):
    __slots__ = ("factor", "write_quorum")
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    factor: int
    write_quorum: int
    def __init__(self, factor: _Optional[int] = ..., write_quorum: _Optional[int] = ...) -> None: ...

class CopiesStatus(_message.Message):
    __slots__ = ("under_replicated", "without_copy", "moving", "damaged", "lost", "in_one_zone")
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_COPY_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    IN_ONE_ZONE_FIELD_NUMBER: _ClassVar[int]
    under_replicated: int
    without_copy: int
    moving: int
    damaged: int
    lost: int
    in_one_zone: int
    def __init__(self, under_replicated: _Optional[int] = ..., without_copy: _Optional[int] = ..., moving: _Optional[int] = ..., damaged: _Optional[int] = ..., lost: _Optional[int] = ..., in_one_zone: _Optional[int] = ...) -> None: ...

class MetadataStatus(_message.Message):
    __slots__ = ("leader", "term", "version", "role", "voters", "last_index", "last_term", "level", "level_reachable")
    class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ROLE_UNSPECIFIED: _ClassVar[MetadataStatus.Role]
        ROLE_LEADER: _ClassVar[MetadataStatus.Role]
        ROLE_FOLLOWER: _ClassVar[MetadataStatus.Role]
        ROLE_CANDIDATE: _ClassVar[MetadataStatus.Role]
        ROLE_OBSERVER: _ClassVar[MetadataStatus.Role]
    ROLE_UNSPECIFIED: MetadataStatus.Role
    ROLE_LEADER: MetadataStatus.Role
    ROLE_FOLLOWER: MetadataStatus.Role
    ROLE_CANDIDATE: MetadataStatus.Role
    ROLE_OBSERVER: MetadataStatus.Role
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LEVEL_REACHABLE_FIELD_NUMBER: _ClassVar[int]
    leader: int
    term: int
    version: int
    role: MetadataStatus.Role
    voters: _containers.RepeatedScalarFieldContainer[int]
    last_index: int
    last_term: int
    level: int
    level_reachable: int
    def __init__(self, leader: _Optional[int] = ..., term: _Optional[int] = ..., version: _Optional[int] = ..., role: _Optional[_Union[MetadataStatus.Role, str]] = ..., voters: _Optional[_Iterable[int]] = ..., last_index: _Optional[int] = ..., last_term: _Optional[int] = ..., level: _Optional[int] = ..., level_reachable: _Optional[int] = ...) -> None: ...

class ClusterNode(_message.Message):
    __slots__ = ("node_id", "disk", "process", "name", "raft_address", "peer_address", "text_address", "grpc_address", "http_address", "admin_address", "state", "alive", "voter", "listeners", "zone", "level_known")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RAFT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PEER_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TEXT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HTTP_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ADMIN_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    VOTER_FIELD_NUMBER: _ClassVar[int]
    LISTENERS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_KNOWN_FIELD_NUMBER: _ClassVar[int]
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
    state: str
    alive: bool
    voter: bool
    listeners: _containers.RepeatedCompositeFieldContainer[OrganisationListener]
    zone: str
    level_known: int
    def __init__(self, node_id: _Optional[int] = ..., disk: _Optional[str] = ..., process: _Optional[str] = ..., name: _Optional[str] = ..., raft_address: _Optional[str] = ..., peer_address: _Optional[str] = ..., text_address: _Optional[str] = ..., grpc_address: _Optional[str] = ..., http_address: _Optional[str] = ..., admin_address: _Optional[str] = ..., state: _Optional[str] = ..., alive: _Optional[bool] = ..., voter: _Optional[bool] = ..., listeners: _Optional[_Iterable[_Union[OrganisationListener, _Mapping]]] = ..., zone: _Optional[str] = ..., level_known: _Optional[int] = ...) -> None: ...

class OrganisationListener(_message.Message):
    __slots__ = ("protocol", "org", "address")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ORG_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    protocol: str
    org: str
    address: str
    def __init__(self, protocol: _Optional[str] = ..., org: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class StorageStatus(_message.Message):
    __slots__ = ("backend_asked", "backend_in_use", "reason", "data_dir", "bytes_free", "bytes_total", "copies_not_whole", "synced_writes", "cached_reason")
    BACKEND_ASKED_FIELD_NUMBER: _ClassVar[int]
    BACKEND_IN_USE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DATA_DIR_FIELD_NUMBER: _ClassVar[int]
    BYTES_FREE_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    COPIES_NOT_WHOLE_FIELD_NUMBER: _ClassVar[int]
    SYNCED_WRITES_FIELD_NUMBER: _ClassVar[int]
    CACHED_REASON_FIELD_NUMBER: _ClassVar[int]
    backend_asked: str
    backend_in_use: str
    reason: str
    data_dir: str
    bytes_free: int
    bytes_total: int
    copies_not_whole: int
    synced_writes: str
    cached_reason: str
    def __init__(self, backend_asked: _Optional[str] = ..., backend_in_use: _Optional[str] = ..., reason: _Optional[str] = ..., data_dir: _Optional[str] = ..., bytes_free: _Optional[int] = ..., bytes_total: _Optional[int] = ..., copies_not_whole: _Optional[int] = ..., synced_writes: _Optional[str] = ..., cached_reason: _Optional[str] = ...) -> None: ...

class GetConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetConfigResponse(_message.Message):
    __slots__ = ("version", "entries")
    class EntriesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    version: int
    entries: _containers.ScalarMap[str, int]
    def __init__(self, version: _Optional[int] = ..., entries: _Optional[_Mapping[str, int]] = ...) -> None: ...

class SetConfigRequest(_message.Message):
    __slots__ = ("entries", "unset", "expect_version")
    class EntriesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    EXPECT_VERSION_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.ScalarMap[str, int]
    unset: _containers.RepeatedScalarFieldContainer[str]
    expect_version: int
    def __init__(self, entries: _Optional[_Mapping[str, int]] = ..., unset: _Optional[_Iterable[str]] = ..., expect_version: _Optional[int] = ...) -> None: ...

class SetConfigResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class SetReplicationRequest(_message.Message):
    __slots__ = ("replication",)
    REPLICATION_FIELD_NUMBER: _ClassVar[int]
    replication: ReplicationStatus
    def __init__(self, replication: _Optional[_Union[ReplicationStatus, _Mapping]] = ...) -> None: ...

class SetReplicationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OrganisationLimits(_message.Message):
    __slots__ = ("topics_max", "partitions_max", "creations_per_second_max")
    TOPICS_MAX_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    CREATIONS_PER_SECOND_MAX_FIELD_NUMBER: _ClassVar[int]
    topics_max: int
    partitions_max: int
    creations_per_second_max: int
    def __init__(self, topics_max: _Optional[int] = ..., partitions_max: _Optional[int] = ..., creations_per_second_max: _Optional[int] = ...) -> None: ...

class Organisation(_message.Message):
    __slots__ = ("name", "limits", "topics", "partitions", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    limits: OrganisationLimits
    topics: int
    partitions: int
    version: int
    def __init__(self, name: _Optional[str] = ..., limits: _Optional[_Union[OrganisationLimits, _Mapping]] = ..., topics: _Optional[int] = ..., partitions: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class ListOrganisationsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListOrganisationsResponse(_message.Message):
    __slots__ = ("organisations",)
    ORGANISATIONS_FIELD_NUMBER: _ClassVar[int]
    organisations: _containers.RepeatedCompositeFieldContainer[Organisation]
    def __init__(self, organisations: _Optional[_Iterable[_Union[Organisation, _Mapping]]] = ...) -> None: ...

class SetOrganisationRequest(_message.Message):
    __slots__ = ("name", "limits", "expect_version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    EXPECT_VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    limits: OrganisationLimits
    expect_version: int
    def __init__(self, name: _Optional[str] = ..., limits: _Optional[_Union[OrganisationLimits, _Mapping]] = ..., expect_version: _Optional[int] = ...) -> None: ...

class SetOrganisationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveOrganisationRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RemoveOrganisationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WantedTopic(_message.Message):
    __slots__ = ("org", "name", "config")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ORG_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    org: str
    name: str
    config: _containers.ScalarMap[str, str]
    def __init__(self, org: _Optional[str] = ..., name: _Optional[str] = ..., config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CompareTopicsRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[WantedTopic]
    def __init__(self, topics: _Optional[_Iterable[_Union[WantedTopic, _Mapping]]] = ...) -> None: ...

class CompareTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[ComparedTopic]
    def __init__(self, topics: _Optional[_Iterable[_Union[ComparedTopic, _Mapping]]] = ...) -> None: ...

class ComparedTopic(_message.Message):
    __slots__ = ("refused", "found")
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    refused: str
    found: FoundTopic
    def __init__(self, refused: _Optional[str] = ..., found: _Optional[_Union[FoundTopic, _Mapping]] = ...) -> None: ...

class FoundTopic(_message.Message):
    __slots__ = ("topic", "partitions", "version", "replication", "differences", "settings", "leaders", "sealed_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    SEALED_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: int
    version: int
    replication: ReplicationStatus
    differences: _containers.RepeatedCompositeFieldContainer[SettingDifference]
    settings: _containers.RepeatedCompositeFieldContainer[SettingInForce]
    leaders: _containers.RepeatedCompositeFieldContainer[LeaderCount]
    sealed_bytes: int
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[int] = ..., version: _Optional[int] = ..., replication: _Optional[_Union[ReplicationStatus, _Mapping]] = ..., differences: _Optional[_Iterable[_Union[SettingDifference, _Mapping]]] = ..., settings: _Optional[_Iterable[_Union[SettingInForce, _Mapping]]] = ..., leaders: _Optional[_Iterable[_Union[LeaderCount, _Mapping]]] = ..., sealed_bytes: _Optional[int] = ...) -> None: ...

class SettingDifference(_message.Message):
    __slots__ = ("name", "wanted", "found")
    NAME_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    name: str
    wanted: str
    found: str
    def __init__(self, name: _Optional[str] = ..., wanted: _Optional[str] = ..., found: _Optional[str] = ...) -> None: ...

class SettingInForce(_message.Message):
    __slots__ = ("name", "value", "source")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    source: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class LeaderCount(_message.Message):
    __slots__ = ("node_id", "name", "partitions")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    name: str
    partitions: int
    def __init__(self, node_id: _Optional[int] = ..., name: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class MakeTopicRequest(_message.Message):
    __slots__ = ("org", "name", "partitions", "config")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ORG_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    org: str
    name: str
    partitions: int
    config: _containers.ScalarMap[str, str]
    def __init__(self, org: _Optional[str] = ..., name: _Optional[str] = ..., partitions: _Optional[int] = ..., config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class MakeTopicResponse(_message.Message):
    __slots__ = ("topic", "created")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    created: bool
    def __init__(self, topic: _Optional[str] = ..., created: _Optional[bool] = ...) -> None: ...

class SetTopicConfigRequest(_message.Message):
    __slots__ = ("topic", "set", "unset", "expect_version")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    EXPECT_VERSION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    set: _containers.ScalarMap[str, str]
    unset: _containers.RepeatedScalarFieldContainer[str]
    expect_version: int
    def __init__(self, topic: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., unset: _Optional[_Iterable[str]] = ..., expect_version: _Optional[int] = ...) -> None: ...

class SetTopicConfigResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetTopicPartitionsRequest(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: int
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class SetTopicPartitionsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemoveTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class RemoveTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListMembersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListMembersResponse(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[ClusterNode]
    def __init__(self, nodes: _Optional[_Iterable[_Union[ClusterNode, _Mapping]]] = ...) -> None: ...

class CanStopRequest(_message.Message):
    __slots__ = ("disk",)
    DISK_FIELD_NUMBER: _ClassVar[int]
    disk: str
    def __init__(self, disk: _Optional[str] = ...) -> None: ...

class CanStopResponse(_message.Message):
    __slots__ = ("can_stop", "reasons", "open_without_quorum", "sealed_without_copy", "segments_led", "metadata_without_majority", "topics")
    CAN_STOP_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    OPEN_WITHOUT_QUORUM_FIELD_NUMBER: _ClassVar[int]
    SEALED_WITHOUT_COPY_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_LED_FIELD_NUMBER: _ClassVar[int]
    METADATA_WITHOUT_MAJORITY_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    can_stop: bool
    reasons: _containers.RepeatedScalarFieldContainer[str]
    open_without_quorum: int
    sealed_without_copy: int
    segments_led: int
    metadata_without_majority: bool
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, can_stop: _Optional[bool] = ..., reasons: _Optional[_Iterable[str]] = ..., open_without_quorum: _Optional[int] = ..., sealed_without_copy: _Optional[int] = ..., segments_led: _Optional[int] = ..., metadata_without_majority: _Optional[bool] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeSegmentsRequest(_message.Message):
    __slots__ = ("topic", "under_replicated", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    under_replicated: bool
    limit: int
    def __init__(self, topic: _Optional[str] = ..., under_replicated: _Optional[bool] = ..., limit: _Optional[int] = ...) -> None: ...

class DescribeSegmentsResponse(_message.Message):
    __slots__ = ("segments", "more")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[SegmentView]
    more: bool
    def __init__(self, segments: _Optional[_Iterable[_Union[SegmentView, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class SegmentView(_message.Message):
    __slots__ = ("topic", "partition", "number", "uuid", "state", "leader", "epoch", "base_offset", "end_offset", "copies", "under_replicated")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    UNDER_REPLICATED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    number: int
    uuid: str
    state: str
    leader: int
    epoch: int
    base_offset: int
    end_offset: int
    copies: _containers.RepeatedCompositeFieldContainer[CopyView]
    under_replicated: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., number: _Optional[int] = ..., uuid: _Optional[str] = ..., state: _Optional[str] = ..., leader: _Optional[int] = ..., epoch: _Optional[int] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., copies: _Optional[_Iterable[_Union[CopyView, _Mapping]]] = ..., under_replicated: _Optional[bool] = ...) -> None: ...

class CopyView(_message.Message):
    __slots__ = ("node_id", "disk", "state", "alive")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    disk: str
    state: str
    alive: bool
    def __init__(self, node_id: _Optional[int] = ..., disk: _Optional[str] = ..., state: _Optional[str] = ..., alive: _Optional[bool] = ...) -> None: ...

class CaughtUpRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CaughtUpResponse(_message.Message):
    __slots__ = ("caught_up", "missing", "open_whole")
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    OPEN_WHOLE_FIELD_NUMBER: _ClassVar[int]
    caught_up: bool
    missing: _containers.RepeatedScalarFieldContainer[str]
    open_whole: bool
    def __init__(self, caught_up: _Optional[bool] = ..., missing: _Optional[_Iterable[str]] = ..., open_whole: _Optional[bool] = ...) -> None: ...

class FinalizeLevelRequest(_message.Message):
    __slots__ = ("level",)
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    level: int
    def __init__(self, level: _Optional[int] = ...) -> None: ...

class FinalizeLevelResponse(_message.Message):
    __slots__ = ("level",)
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    level: int
    def __init__(self, level: _Optional[int] = ...) -> None: ...

class TransferLeadershipRequest(_message.Message):
    __slots__ = ("to",)
    TO_FIELD_NUMBER: _ClassVar[int]
    to: str
    def __init__(self, to: _Optional[str] = ...) -> None: ...

class TransferLeadershipResponse(_message.Message):
    __slots__ = ("leader",)
    LEADER_FIELD_NUMBER: _ClassVar[int]
    leader: int
    def __init__(self, leader: _Optional[int] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("disk",)
    DISK_FIELD_NUMBER: _ClassVar[int]
    disk: str
    def __init__(self, disk: _Optional[str] = ...) -> None: ...

class DrainStatus(_message.Message):
    __slots__ = ("node_id", "draining", "segments_led", "segments_held", "done")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_LED_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_HELD_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    draining: bool
    segments_led: int
    segments_held: int
    done: bool
    def __init__(self, node_id: _Optional[int] = ..., draining: _Optional[bool] = ..., segments_led: _Optional[int] = ..., segments_held: _Optional[int] = ..., done: _Optional[bool] = ...) -> None: ...

class RemoveMemberRequest(_message.Message):
    __slots__ = ("disk", "lost", "replaced_by")
    DISK_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    REPLACED_BY_FIELD_NUMBER: _ClassVar[int]
    disk: str
    lost: bool
    replaced_by: str
    def __init__(self, disk: _Optional[str] = ..., lost: _Optional[bool] = ..., replaced_by: _Optional[str] = ...) -> None: ...

class RemoveMemberResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRemainsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRemainsResponse(_message.Message):
    __slots__ = ("remains",)
    REMAINS_FIELD_NUMBER: _ClassVar[int]
    remains: _containers.RepeatedCompositeFieldContainer[Remains]
    def __init__(self, remains: _Optional[_Iterable[_Union[Remains, _Mapping]]] = ...) -> None: ...

class Remains(_message.Message):
    __slots__ = ("node_id", "disk", "topic", "facts", "segments")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    disk: str
    topic: str
    facts: TopicFacts
    segments: _containers.RepeatedCompositeFieldContainer[SegmentRemains]
    def __init__(self, node_id: _Optional[int] = ..., disk: _Optional[str] = ..., topic: _Optional[str] = ..., facts: _Optional[_Union[TopicFacts, _Mapping]] = ..., segments: _Optional[_Iterable[_Union[SegmentRemains, _Mapping]]] = ...) -> None: ...

class TopicFacts(_message.Message):
    __slots__ = ("org", "name", "internal", "partitions")
    ORG_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    org: str
    name: str
    internal: bool
    partitions: int
    def __init__(self, org: _Optional[str] = ..., name: _Optional[str] = ..., internal: _Optional[bool] = ..., partitions: _Optional[int] = ...) -> None: ...

class SegmentRemains(_message.Message):
    __slots__ = ("segment", "partition", "number", "base_offset", "end_offset", "epoch", "is_sealed", "bytes", "descriptor")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IS_SEALED_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTOR_FIELD_NUMBER: _ClassVar[int]
    segment: str
    partition: int
    number: int
    base_offset: int
    end_offset: int
    epoch: int
    is_sealed: bool
    bytes: int
    descriptor: RecordedDescriptor
    def __init__(self, segment: _Optional[str] = ..., partition: _Optional[int] = ..., number: _Optional[int] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., epoch: _Optional[int] = ..., is_sealed: _Optional[bool] = ..., bytes: _Optional[int] = ..., descriptor: _Optional[_Union[RecordedDescriptor, _Mapping]] = ...) -> None: ...

class RecordedDescriptor(_message.Message):
    __slots__ = ("leader_node", "leader_process", "replicas", "write_quorum")
    LEADER_NODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_PROCESS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUORUM_FIELD_NUMBER: _ClassVar[int]
    leader_node: int
    leader_process: str
    replicas: _containers.RepeatedCompositeFieldContainer[RecordedReplica]
    write_quorum: int
    def __init__(self, leader_node: _Optional[int] = ..., leader_process: _Optional[str] = ..., replicas: _Optional[_Iterable[_Union[RecordedReplica, _Mapping]]] = ..., write_quorum: _Optional[int] = ...) -> None: ...

class RecordedReplica(_message.Message):
    __slots__ = ("node_id", "disk")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DISK_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    disk: str
    def __init__(self, node_id: _Optional[int] = ..., disk: _Optional[str] = ...) -> None: ...

class ListLostTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListLostTopicsResponse(_message.Message):
    __slots__ = ("topics", "silent")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[LostTopic]
    silent: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[_Union[LostTopic, _Mapping]]] = ..., silent: _Optional[_Iterable[str]] = ...) -> None: ...

class LostTopic(_message.Message):
    __slots__ = ("topic", "facts", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    facts: TopicFacts
    partitions: _containers.RepeatedCompositeFieldContainer[LostPartition]
    def __init__(self, topic: _Optional[str] = ..., facts: _Optional[_Union[TopicFacts, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[LostPartition, _Mapping]]] = ...) -> None: ...

class LostPartition(_message.Message):
    __slots__ = ("partition", "begins", "ends", "bytes", "problem")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    partition: int
    begins: int
    ends: int
    bytes: int
    problem: str
    def __init__(self, partition: _Optional[int] = ..., begins: _Optional[int] = ..., ends: _Optional[int] = ..., bytes: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class RecoverTopicRequest(_message.Message):
    __slots__ = ("topic", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class RecoverTopicResponse(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RecoverMetadataRequest(_message.Message):
    __slots__ = ("gone", "follow", "seeds")
    GONE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    gone: _containers.RepeatedScalarFieldContainer[str]
    follow: str
    seeds: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, gone: _Optional[_Iterable[str]] = ..., follow: _Optional[str] = ..., seeds: _Optional[_Iterable[str]] = ...) -> None: ...

class RecoverMetadataResponse(_message.Message):
    __slots__ = ("cluster_id", "left_behind")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    LEFT_BEHIND_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    left_behind: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cluster_id: _Optional[str] = ..., left_behind: _Optional[_Iterable[str]] = ...) -> None: ...

class SetLogLevelRequest(_message.Message):
    __slots__ = ("level",)
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    level: str
    def __init__(self, level: _Optional[str] = ...) -> None: ...

class SetLogLevelResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
