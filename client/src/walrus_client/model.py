"""What the client hands out: frozen values, made once from the messages of `walrus_client.v1`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from walrus_client.v1 import log_pb2


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; `partitions` is their number."""

    name: str
    uuid: str
    partitions: int
    internal: bool

    @classmethod
    def parse(cls, message: log_pb2.Topic) -> "Topic":
        return cls(name=message.name, uuid=message.uuid, partitions=message.partitions, internal=message.internal)


class SettingSource(StrEnum):
    """Where the value of a topic's setting comes from."""

    TOPIC = "topic"
    CLUSTER = "cluster"
    NODE = "node"
    BUILT_IN = "built in"


class SettingEffect(StrEnum):
    """When a change of a topic's setting is in force; `NEVER`: it is stored and shown, because Kafka has it."""

    NEXT_APPEND = "next append"
    NEXT_SEGMENT = "next segment"
    WITHIN_A_MINUTE = "within a minute"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """A setting of a topic as it is in force; `what` says what it does."""

    name: str
    value: str
    source: SettingSource | None  # None: of a kind that only newer clients know
    effect: SettingEffect | None
    what: str

    @classmethod
    def parse(cls, message: log_pb2.TopicSetting) -> "TopicSetting":
        return cls(
            name=message.name,
            value=message.value,
            source=_SOURCES.get(message.source),
            effect=_EFFECTS.get(message.effect),
            what=message.what,
        )


_SOURCES = {
    log_pb2.TopicSetting.SOURCE_TOPIC: SettingSource.TOPIC,
    log_pb2.TopicSetting.SOURCE_CLUSTER: SettingSource.CLUSTER,
    log_pb2.TopicSetting.SOURCE_NODE: SettingSource.NODE,
    log_pb2.TopicSetting.SOURCE_BUILT_IN: SettingSource.BUILT_IN,
}
_EFFECTS = {
    log_pb2.TopicSetting.EFFECT_NEXT_APPEND: SettingEffect.NEXT_APPEND,
    log_pb2.TopicSetting.EFFECT_NEXT_SEGMENT: SettingEffect.NEXT_SEGMENT,
    log_pb2.TopicSetting.EFFECT_WITHIN_A_MINUTE: SettingEffect.WITHIN_A_MINUTE,
    log_pb2.TopicSetting.EFFECT_NEVER: SettingEffect.NEVER,
}


class OffsetPlace(StrEnum):
    """A point of a partition that is no time on the clock."""

    EARLIEST = "earliest"  # the first offset that can be read
    LATEST = "latest"  # where the next record will be
    MAX_TIMESTAMP = "max timestamp"  # the record with the greatest timestamp, the first of them


PLACES = {
    OffsetPlace.EARLIEST: log_pb2.OffsetQuestion.PLACE_EARLIEST,
    OffsetPlace.LATEST: log_pb2.OffsetQuestion.PLACE_LATEST,
    OffsetPlace.MAX_TIMESTAMP: log_pb2.OffsetQuestion.PLACE_MAX_TIMESTAMP,
}


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The offset at a point of time, None where no record is there; `timestamp_ms` is that record's."""

    offset: int | None
    timestamp_ms: int | None  # also None where the question was not about a record

    @classmethod
    def parse(cls, message: log_pb2.OffsetAnswer) -> "FoundOffset":
        return cls(
            offset=message.offset if message.HasField("offset") else None,
            timestamp_ms=message.timestamp_ms if message.HasField("timestamp_ms") else None,
        )


class KeptReason(StrEnum):
    """Why the oldest segment of a partition is still there."""

    OPEN = "open"  # it takes appends, or its end is being decided
    FOR_EVER = "kept for ever"
    AGE = "too young"
    BYTES = "too few bytes behind it"
    ARCHIVE = "not in the archive"
    UNREPORTED = "size not reported yet"
    SUCCESSOR = "next segment not on enough disks yet"
    READER = "not read yet"


_REASONS = {
    log_pb2.KeptPartition.REASON_OPEN: KeptReason.OPEN,
    log_pb2.KeptPartition.REASON_FOR_EVER: KeptReason.FOR_EVER,
    log_pb2.KeptPartition.REASON_AGE: KeptReason.AGE,
    log_pb2.KeptPartition.REASON_BYTES: KeptReason.BYTES,
    log_pb2.KeptPartition.REASON_ARCHIVE: KeptReason.ARCHIVE,
    log_pb2.KeptPartition.REASON_UNREPORTED: KeptReason.UNREPORTED,
    log_pb2.KeptPartition.REASON_SUCCESSOR: KeptReason.SUCCESSOR,
    log_pb2.KeptPartition.REASON_READER: KeptReason.READER,
}


@dataclass(frozen=True, slots=True)
class KeptPartition:
    """What a partition still has: from `log_start` on it can be read; `sealed_bytes` are those of its sealed segments.

    `reason` tells why its oldest segment stays (None: a reason that only newer clients know); with `AGE`, `until_ms` is
    when it goes, milliseconds since the epoch; with `READER`, `reader` is who has not read it. Compactions have looked
    at all records below `compacted_to` (None: the topic is not compacted).
    """

    partition: int
    log_start: int
    sealed_segments: int
    sealed_bytes: int
    reason: KeptReason | None
    until_ms: int | None
    compacted_to: int | None = None
    reader: str | None = None

    @classmethod
    def parse(cls, message: log_pb2.KeptPartition) -> "KeptPartition":
        return cls(
            partition=message.partition,
            log_start=message.log_start,
            sealed_segments=message.sealed_segments,
            sealed_bytes=message.sealed_bytes,
            reason=_REASONS.get(message.reason),
            until_ms=message.until_ms if message.HasField("until_ms") else None,
            compacted_to=message.compacted_to if message.HasField("compacted_to") else None,
            reader=message.reader if message.HasField("reader") else None,
        )


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with all settings as they are in force, by name, and what its partitions still have.

    `version` is that of the settings that it has itself.
    """

    topic: Topic
    version: int
    settings: tuple[TopicSetting, ...]
    partitions: tuple[KeptPartition, ...]

    @classmethod
    def parse(cls, message: log_pb2.DescribeTopicResponse) -> "TopicDescription":
        settings = tuple(TopicSetting.parse(setting) for setting in message.settings)
        partitions = tuple(KeptPartition.parse(partition) for partition in message.partitions)
        return cls(topic=Topic.parse(message.topic), version=message.version, settings=settings, partitions=partitions)

    def value(self, name: str) -> str:
        """The value of a setting; raises KeyError where the node knows none of that name."""
        return {setting.name: setting.value for setting in self.settings}[name]


@dataclass(frozen=True, slots=True)
class Node:
    """A node as metadata knows it; `alive` means that its lease had not lapsed."""

    id: int
    grpc_address: str
    alive: bool

    @classmethod
    def parse(cls, message: log_pb2.Node) -> "Node":
        return cls(id=message.id, grpc_address=message.grpc_address, alive=message.alive)


class SegmentState(StrEnum):
    """Whether a segment takes appends, has its end decided, or never changes again."""

    OPEN = "open"
    SEALING = "sealing"
    SEALED = "sealed"


@dataclass(frozen=True, slots=True)
class EpochStart:
    """Offsets from one on, up to the next epoch's or the segment's end, were written under this epoch."""

    epoch: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of offsets `[base_offset, end_offset)`; of an open segment the end is its high watermark."""

    uuid: str
    number: int
    epoch: int
    base_offset: int
    end_offset: int
    state: SegmentState
    leader: Node | None
    replicas: tuple[Node, ...]
    bytes: int  # size of the batches below end_offset; 0 where no replica could be asked
    epochs: tuple[EpochStart, ...] = ()  # who wrote its offsets, in order: several where a compaction joined segments

    @classmethod
    def parse(cls, message: log_pb2.Segment) -> "Segment":
        return cls(
            uuid=message.uuid,
            number=message.number,
            epoch=message.epoch,
            base_offset=message.base_offset,
            end_offset=message.end_offset,
            state=_STATES[message.state],
            leader=Node.parse(message.leader) if message.HasField("leader") else None,
            replicas=tuple(Node.parse(node) for node in message.replicas),
            bytes=message.bytes,
            epochs=tuple(EpochStart(start.epoch, start.first_offset) for start in message.epochs),
        )


_STATES = {
    log_pb2.Segment.STATE_OPEN: SegmentState.OPEN,
    log_pb2.Segment.STATE_SEALING: SegmentState.SEALING,
    log_pb2.Segment.STATE_SEALED: SegmentState.SEALED,
}


@dataclass(frozen=True, slots=True)
class Partition:
    """One ordered log: readable from `log_start` up to `high_watermark`; its segments by base offset."""

    topic: str
    partition: int
    log_start: int
    high_watermark: int
    segments: tuple[Segment, ...]

    @classmethod
    def parse(cls, topic: str, message: log_pb2.Partition) -> "Partition":
        return cls(
            topic=topic,
            partition=message.partition,
            log_start=message.log_start,
            high_watermark=message.high_watermark,
            segments=tuple(Segment.parse(segment) for segment in message.segments),
        )


@dataclass(frozen=True, slots=True)
class TopicSegments:
    """A topic and what it consists of, as one answer told it."""

    topic: Topic
    partitions: tuple[Partition, ...]

    @classmethod
    def parse(cls, message: log_pb2.ListSegmentsResponse) -> "TopicSegments":
        topic = Topic.parse(message.topic)
        return cls(topic, tuple(Partition.parse(topic.name, partition) for partition in message.partitions))


class GroupKind(StrEnum):
    """Who remembers how far a topic is read."""

    CONSUMER = "consumer group"  # clients of Kafka
    CURSOR = "shared cursor"  # all who GET the topic

    @property
    def message(self) -> "log_pb2.Group.Kind":
        return _KIND_MESSAGES[self]


_KIND_MESSAGES = {GroupKind.CONSUMER: log_pb2.Group.KIND_CONSUMER, GroupKind.CURSOR: log_pb2.Group.KIND_CURSOR}
_KINDS = {message: kind for kind, message in _KIND_MESSAGES.items()}


class GroupState(StrEnum):
    """What a consumer group is doing."""

    EMPTY = "empty"
    PREPARING = "preparing"
    SHARING = "sharing"
    STABLE = "stable"


_GROUP_STATES = {
    log_pb2.Group.STATE_EMPTY: GroupState.EMPTY,
    log_pb2.Group.STATE_PREPARING: GroupState.PREPARING,
    log_pb2.Group.STATE_SHARING: GroupState.SHARING,
    log_pb2.Group.STATE_STABLE: GroupState.STABLE,
}


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group, or the shared cursor of the topic `name`.

    `state` is None for a cursor; `protocol` is empty until the members have agreed on how they share the work.
    """

    name: str
    kind: GroupKind | None
    state: GroupState | None
    members: int
    protocol: str
    # Records left to read, as measured some seconds ago; None for a cursor, and before the first measurement.
    lag: int | None

    @classmethod
    def parse(cls, message: log_pb2.Group) -> "Group":
        return cls(
            name=message.name,
            kind=_KINDS.get(message.kind),
            state=_GROUP_STATES.get(message.state),
            members=message.members,
            protocol=message.protocol,
            lag=message.lag if message.HasField("lag") else None,
        )


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a consumer group; `assigned` has the partitions that it reads, by topic."""

    id: str
    instance: str | None
    client_id: str
    host: str
    assigned: dict[str, tuple[int, ...]]

    @classmethod
    def parse(cls, message: log_pb2.GroupMember) -> "GroupMember":
        return cls(
            id=message.id,
            instance=message.instance if message.HasField("instance") else None,
            client_id=message.client_id,
            host=message.host,
            assigned={share.topic: tuple(share.partitions) for share in message.shares},
        )


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """How far somebody has read a partition: `offset` is the next one, `end` where the partition ends (None: not known
    just now), `member` the id of who reads it.
    """

    topic: str
    partition: int
    offset: int
    end: int | None
    member: str | None
    metadata: str

    @property
    def lag(self) -> int | None:
        """How many offsets are left to read."""
        return None if self.end is None else max(0, self.end - self.offset)

    @classmethod
    def parse(cls, message: log_pb2.GroupPosition) -> "GroupPosition":
        return cls(
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            end=message.end if message.HasField("end") else None,
            member=message.member if message.HasField("member") else None,
            metadata=message.metadata,
        )


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members, and how far it has read, by topic and partition."""

    group: Group
    members: tuple[GroupMember, ...]
    positions: tuple[GroupPosition, ...]

    @classmethod
    def parse(cls, message: log_pb2.DescribeGroupResponse) -> "GroupDescription":
        return cls(
            group=Group.parse(message.group),
            members=tuple(GroupMember.parse(member) for member in message.members),
            positions=tuple(GroupPosition.parse(position) for position in message.positions),
        )


class Header(NamedTuple):
    """One header of a record."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """One record as it is stored. A tuple, because one is made for each record read."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    @classmethod
    def parse(cls, message: log_pb2.Record) -> "Record":
        return cls(
            message.offset,
            message.timestamp_ms,
            message.key if message.HasField("key") else None,
            message.value if message.HasField("value") else None,
            tuple(Header(header.key, header.value if header.HasField("value") else None) for header in message.headers)
            if message.headers
            else (),
        )


class BatchPage(NamedTuple):
    """One answer of a read in batches: RecordBatch v2 back to back, as stored; the first may begin below the offset
    that was asked for. `next_offset` is where to go on.
    """

    batches: memoryview
    next_offset: int
    high_watermark: int
    log_start: int

    @classmethod
    def parse(cls, answer: bytes) -> "BatchPage":
        """The page of an encoded ReadResponse; raises protobuf's DecodeError.

        The batches, megabytes, stay where they are in `answer`. Protobuf would copy them twice. Brokers send them
        first, as protobuf encodes them; where anything else comes first, protobuf takes it all.
        """
        start, end = _first_field(answer, log_pb2.ReadResponse.BATCHES_FIELD_NUMBER)
        rest = log_pb2.ReadResponse.FromString(answer[end:])
        batches = memoryview(rest.batches) if rest.batches else memoryview(answer)[start:end]
        return cls(batches, rest.next_offset, rest.high_watermark, rest.log_start)


@dataclass(frozen=True, slots=True)
class Appended:
    """A batch that is durable, at `[base_offset, end_offset)`; `duplicate` says that an earlier try stored it."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    duplicate: bool


def _first_field(message: bytes, number: int) -> tuple[int, int]:
    """Where the contents of the first field lie if it is that one, of bytes, and whole; an empty range at 0 if not."""
    if message[:1] != bytes([number << 3 | _LENGTH_DELIMITED]):
        return 0, 0
    length = 0
    for at in range(1, min(len(message), _LENGTH_BYTES_MAX + 1)):
        length |= (message[at] & 0x7F) << 7 * (at - 1)
        if message[at] < 0x80:
            end = at + 1 + length
            return (at + 1, end) if end <= len(message) else (0, 0)
    return 0, 0


# Protobuf's wire type of bytes and texts, and the longest number in front of one.
_LENGTH_DELIMITED = 2
_LENGTH_BYTES_MAX = 5
