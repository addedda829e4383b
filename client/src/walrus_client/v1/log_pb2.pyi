from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Format(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORMAT_UNSPECIFIED: _ClassVar[Format]
    FORMAT_RECORDS: _ClassVar[Format]
    FORMAT_BATCHES: _ClassVar[Format]
FORMAT_UNSPECIFIED: Format
FORMAT_RECORDS: Format
FORMAT_BATCHES: Format

class ListNodesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListNodesResponse(_message.Message):
    __slots__ = ("cluster_id", "nodes", "former_cluster_ids")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    FORMER_CLUSTER_IDS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    nodes: _containers.RepeatedCompositeFieldContainer[Node]
    former_cluster_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cluster_id: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., former_cluster_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("topic", "partitions", "config")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: int
    config: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[int] = ..., config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic", "created")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    created: bool
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., created: _Optional[bool] = ...) -> None: ...

class AddPartitionsRequest(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: int
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class AddPartitionsResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DescribeTopicResponse(_message.Message):
    __slots__ = ("topic", "version", "settings", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    version: int
    settings: _containers.RepeatedCompositeFieldContainer[TopicSetting]
    partitions: _containers.RepeatedCompositeFieldContainer[KeptPartition]
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., version: _Optional[int] = ..., settings: _Optional[_Iterable[_Union[TopicSetting, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[KeptPartition, _Mapping]]] = ...) -> None: ...

class KeptPartition(_message.Message):
    __slots__ = ("partition", "log_start", "sealed_segments", "sealed_bytes", "reason", "until_ms", "compacted_to", "reader")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[KeptPartition.Reason]
        REASON_OPEN: _ClassVar[KeptPartition.Reason]
        REASON_FOR_EVER: _ClassVar[KeptPartition.Reason]
        REASON_AGE: _ClassVar[KeptPartition.Reason]
        REASON_BYTES: _ClassVar[KeptPartition.Reason]
        REASON_ARCHIVE: _ClassVar[KeptPartition.Reason]
        REASON_UNREPORTED: _ClassVar[KeptPartition.Reason]
        REASON_SUCCESSOR: _ClassVar[KeptPartition.Reason]
        REASON_READER: _ClassVar[KeptPartition.Reason]
    REASON_UNSPECIFIED: KeptPartition.Reason
    REASON_OPEN: KeptPartition.Reason
    REASON_FOR_EVER: KeptPartition.Reason
    REASON_AGE: KeptPartition.Reason
    REASON_BYTES: KeptPartition.Reason
    REASON_ARCHIVE: KeptPartition.Reason
    REASON_UNREPORTED: KeptPartition.Reason
    REASON_SUCCESSOR: KeptPartition.Reason
    REASON_READER: KeptPartition.Reason
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    SEALED_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SEALED_BYTES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_TO_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    partition: int
    log_start: int
    sealed_segments: int
    sealed_bytes: int
    reason: KeptPartition.Reason
    until_ms: int
    compacted_to: int
    reader: str
    def __init__(self, partition: _Optional[int] = ..., log_start: _Optional[int] = ..., sealed_segments: _Optional[int] = ..., sealed_bytes: _Optional[int] = ..., reason: _Optional[_Union[KeptPartition.Reason, str]] = ..., until_ms: _Optional[int] = ..., compacted_to: _Optional[int] = ..., reader: _Optional[str] = ...) -> None: ...

class TopicSetting(_message.Message):
    __slots__ = ("name", "value", "source", "effect", "what")
    class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SOURCE_UNSPECIFIED: _ClassVar[TopicSetting.Source]
        SOURCE_TOPIC: _ClassVar[TopicSetting.Source]
        SOURCE_CLUSTER: _ClassVar[TopicSetting.Source]
        SOURCE_NODE: _ClassVar[TopicSetting.Source]
        SOURCE_BUILT_IN: _ClassVar[TopicSetting.Source]
    SOURCE_UNSPECIFIED: TopicSetting.Source
    SOURCE_TOPIC: TopicSetting.Source
    SOURCE_CLUSTER: TopicSetting.Source
    SOURCE_NODE: TopicSetting.Source
    SOURCE_BUILT_IN: TopicSetting.Source
    class Effect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EFFECT_UNSPECIFIED: _ClassVar[TopicSetting.Effect]
        EFFECT_NEXT_APPEND: _ClassVar[TopicSetting.Effect]
        EFFECT_NEXT_SEGMENT: _ClassVar[TopicSetting.Effect]
        EFFECT_NEVER: _ClassVar[TopicSetting.Effect]
        EFFECT_WITHIN_A_MINUTE: _ClassVar[TopicSetting.Effect]
    EFFECT_UNSPECIFIED: TopicSetting.Effect
    EFFECT_NEXT_APPEND: TopicSetting.Effect
    EFFECT_NEXT_SEGMENT: TopicSetting.Effect
    EFFECT_NEVER: TopicSetting.Effect
    EFFECT_WITHIN_A_MINUTE: TopicSetting.Effect
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    source: TopicSetting.Source
    effect: TopicSetting.Effect
    what: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[_Union[TopicSetting.Source, str]] = ..., effect: _Optional[_Union[TopicSetting.Effect, str]] = ..., what: _Optional[str] = ...) -> None: ...

class AlterTopicRequest(_message.Message):
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

class DeleteRecordsRequest(_message.Message):
    __slots__ = ("topic", "starts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    starts: _containers.RepeatedCompositeFieldContainer[PartitionStart]
    def __init__(self, topic: _Optional[str] = ..., starts: _Optional[_Iterable[_Union[PartitionStart, _Mapping]]] = ...) -> None: ...

class PartitionStart(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class DeleteRecordsResponse(_message.Message):
    __slots__ = ("starts",)
    STARTS_FIELD_NUMBER: _ClassVar[int]
    starts: _containers.RepeatedCompositeFieldContainer[PartitionStart]
    def __init__(self, starts: _Optional[_Iterable[_Union[PartitionStart, _Mapping]]] = ...) -> None: ...

class ListOffsetsRequest(_message.Message):
    __slots__ = ("topic", "questions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUESTIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    questions: _containers.RepeatedCompositeFieldContainer[OffsetQuestion]
    def __init__(self, topic: _Optional[str] = ..., questions: _Optional[_Iterable[_Union[OffsetQuestion, _Mapping]]] = ...) -> None: ...

class OffsetQuestion(_message.Message):
    __slots__ = ("partition", "place", "timestamp_ms")
    class Place(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PLACE_UNSPECIFIED: _ClassVar[OffsetQuestion.Place]
        PLACE_EARLIEST: _ClassVar[OffsetQuestion.Place]
        PLACE_LATEST: _ClassVar[OffsetQuestion.Place]
        PLACE_MAX_TIMESTAMP: _ClassVar[OffsetQuestion.Place]
    PLACE_UNSPECIFIED: OffsetQuestion.Place
    PLACE_EARLIEST: OffsetQuestion.Place
    PLACE_LATEST: OffsetQuestion.Place
    PLACE_MAX_TIMESTAMP: OffsetQuestion.Place
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    place: OffsetQuestion.Place
    timestamp_ms: int
    def __init__(self, partition: _Optional[int] = ..., place: _Optional[_Union[OffsetQuestion.Place, str]] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class ListOffsetsResponse(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[OffsetAnswer]
    def __init__(self, answers: _Optional[_Iterable[_Union[OffsetAnswer, _Mapping]]] = ...) -> None: ...

class OffsetAnswer(_message.Message):
    __slots__ = ("partition", "offset", "timestamp_ms", "error")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    timestamp_ms: int
    error: Error
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic", "uuid")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    uuid: str
    def __init__(self, topic: _Optional[str] = ..., uuid: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("internal",)
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    internal: bool
    def __init__(self, internal: _Optional[bool] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "uuid", "partitions", "internal")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    uuid: str
    partitions: int
    internal: bool
    def __init__(self, name: _Optional[str] = ..., uuid: _Optional[str] = ..., partitions: _Optional[int] = ..., internal: _Optional[bool] = ...) -> None: ...

class InitProducerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InitProducerResponse(_message.Message):
    __slots__ = ("producer_id", "producer_epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class Producer(_message.Message):
    __slots__ = ("id", "epoch", "base_sequence")
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    id: int
    epoch: int
    base_sequence: int
    def __init__(self, id: _Optional[int] = ..., epoch: _Optional[int] = ..., base_sequence: _Optional[int] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("key", "value", "headers", "timestamp_ms", "offset")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    timestamp_ms: int
    offset: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., timestamp_ms: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Records(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("topic", "partition", "records", "batch", "producer", "correlation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    records: Records
    batch: bytes
    producer: Producer
    correlation: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., records: _Optional[_Union[Records, _Mapping]] = ..., batch: _Optional[bytes] = ..., producer: _Optional[_Union[Producer, _Mapping]] = ..., correlation: _Optional[int] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("correlation", "base_offset", "end_offset", "duplicate", "error")
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    correlation: int
    base_offset: int
    end_offset: int
    duplicate: bool
    error: Error
    def __init__(self, correlation: _Optional[int] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., duplicate: _Optional[bool] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "reason", "message", "retryable", "facts")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: str
    message: str
    retryable: bool
    facts: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ..., facts: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("topic", "partition", "offset", "end_offset", "bytes_max", "wait_ms", "format", "segment")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    end_offset: int
    bytes_max: int
    wait_ms: int
    format: Format
    segment: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., bytes_max: _Optional[int] = ..., wait_ms: _Optional[int] = ..., format: _Optional[_Union[Format, str]] = ..., segment: _Optional[str] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("records", "batches", "next_offset", "high_watermark", "log_start")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    batches: bytes
    next_offset: int
    high_watermark: int
    log_start: int
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., batches: _Optional[bytes] = ..., next_offset: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_start: _Optional[int] = ...) -> None: ...

class ListSegmentsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ListSegmentsResponse(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("partition", "log_start", "high_watermark", "segments")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    log_start: int
    high_watermark: int
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    def __init__(self, partition: _Optional[int] = ..., log_start: _Optional[int] = ..., high_watermark: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("uuid", "number", "epoch", "base_offset", "end_offset", "state", "leader", "replicas", "bytes", "epochs")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Segment.State]
        STATE_OPEN: _ClassVar[Segment.State]
        STATE_SEALING: _ClassVar[Segment.State]
        STATE_SEALED: _ClassVar[Segment.State]
    STATE_UNSPECIFIED: Segment.State
    STATE_OPEN: Segment.State
    STATE_SEALING: Segment.State
    STATE_SEALED: Segment.State
    UUID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    number: int
    epoch: int
    base_offset: int
    end_offset: int
    state: Segment.State
    leader: Node
    replicas: _containers.RepeatedCompositeFieldContainer[Node]
    bytes: int
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStart]
    def __init__(self, uuid: _Optional[str] = ..., number: _Optional[int] = ..., epoch: _Optional[int] = ..., base_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., state: _Optional[_Union[Segment.State, str]] = ..., leader: _Optional[_Union[Node, _Mapping]] = ..., replicas: _Optional[_Iterable[_Union[Node, _Mapping]]] = ..., bytes: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[EpochStart, _Mapping]]] = ...) -> None: ...

class EpochStart(_message.Message):
    __slots__ = ("epoch", "first_offset")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    first_offset: int
    def __init__(self, epoch: _Optional[int] = ..., first_offset: _Optional[int] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("id", "grpc_address", "alive")
    ID_FIELD_NUMBER: _ClassVar[int]
    GRPC_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    id: int
    grpc_address: str
    alive: bool
    def __init__(self, id: _Optional[int] = ..., grpc_address: _Optional[str] = ..., alive: _Optional[bool] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("name", "kind", "state", "members", "protocol", "lag")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Group.Kind]
        KIND_CONSUMER: _ClassVar[Group.Kind]
        KIND_CURSOR: _ClassVar[Group.Kind]
    KIND_UNSPECIFIED: Group.Kind
    KIND_CONSUMER: Group.Kind
    KIND_CURSOR: Group.Kind
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Group.State]
        STATE_EMPTY: _ClassVar[Group.State]
        STATE_PREPARING: _ClassVar[Group.State]
        STATE_SHARING: _ClassVar[Group.State]
        STATE_STABLE: _ClassVar[Group.State]
    STATE_UNSPECIFIED: Group.State
    STATE_EMPTY: Group.State
    STATE_PREPARING: Group.State
    STATE_SHARING: Group.State
    STATE_STABLE: Group.State
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: Group.Kind
    state: Group.State
    members: int
    protocol: str
    lag: int
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[Group.Kind, str]] = ..., state: _Optional[_Union[Group.State, str]] = ..., members: _Optional[int] = ..., protocol: _Optional[str] = ..., lag: _Optional[int] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    def __init__(self, groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("name", "kind")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: Group.Kind
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[Group.Kind, str]] = ...) -> None: ...

class DescribeGroupResponse(_message.Message):
    __slots__ = ("group", "members", "positions")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    group: Group
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    positions: _containers.RepeatedCompositeFieldContainer[GroupPosition]
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ..., positions: _Optional[_Iterable[_Union[GroupPosition, _Mapping]]] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("id", "instance", "client_id", "host", "shares")
    ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    id: str
    instance: str
    client_id: str
    host: str
    shares: _containers.RepeatedCompositeFieldContainer[GroupShare]
    def __init__(self, id: _Optional[str] = ..., instance: _Optional[str] = ..., client_id: _Optional[str] = ..., host: _Optional[str] = ..., shares: _Optional[_Iterable[_Union[GroupShare, _Mapping]]] = ...) -> None: ...

class GroupShare(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupPosition(_message.Message):
    __slots__ = ("topic", "partition", "offset", "end", "member", "metadata")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    end: int
    member: str
    metadata: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., end: _Optional[int] = ..., member: _Optional[str] = ..., metadata: _Optional[str] = ...) -> None: ...

class ResetGroupRequest(_message.Message):
    __slots__ = ("name", "topic", "starts")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic: str
    starts: _containers.RepeatedCompositeFieldContainer[PartitionStart]
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ..., starts: _Optional[_Iterable[_Union[PartitionStart, _Mapping]]] = ...) -> None: ...

class ResetGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
