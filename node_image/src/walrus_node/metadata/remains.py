"""What disks hold of topics that the metadata have lost, as `walrus_core` says and takes it.

The shapes are those of its JSON, field by field: `dataclasses.asdict` gives it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import walrus_core


@dataclass(frozen=True)
class TopicFacts:
    """What a disk knows of a topic beside its segments."""

    org: str
    name: str
    internal: bool
    partitions: int


@dataclass(frozen=True)
class ReplicaRef:
    """A disk that stores a segment."""

    node: int
    disk: str


@dataclass(frozen=True)
class LeaderRef:
    """A process that leads a segment."""

    node: int
    process: str


@dataclass(frozen=True)
class Descriptor:
    """A segment's identity, its leader and its replicas."""

    uuid: str
    topic: str
    partition: int
    number: int
    base_offset: int | None
    epoch: int
    leader: LeaderRef
    replicas: Sequence[ReplicaRef]
    write_quorum: int

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> Descriptor:
        """Read what `walrus_core` gives."""
        replicas = [ReplicaRef(**replica) for replica in found["replicas"]]
        return cls(**{**found, "leader": LeaderRef(**found["leader"]), "replicas": replicas})


@dataclass(frozen=True)
class SegmentRemains:
    """What a disk holds of one segment."""

    segment: str
    partition: int
    number: int
    base_offset: int
    end_offset: int
    epoch: int
    is_sealed: bool
    bytes: int
    descriptor: Descriptor | None


@dataclass(frozen=True)
class Remains:
    """What a disk holds of one topic."""

    replica: ReplicaRef
    topic: str
    facts: TopicFacts | None
    segments: Sequence[SegmentRemains]

    @classmethod
    def parse(cls, found: Mapping[str, Any]) -> Remains:
        """Read what `walrus_core` gives."""
        return cls(
            ReplicaRef(**found["replica"]),
            found["topic"],
            _facts(found["facts"]),
            [
                SegmentRemains(**{**segment, "descriptor": _descriptor(segment["descriptor"])})
                for segment in found["segments"]
            ],
        )


@dataclass(frozen=True)
class Ambiguity:
    """Several segments of one number that hold records, so that none of them is known to be a partition's first."""

    number: int
    segments: Sequence[str]

    def __str__(self) -> str:
        return f"several segments of number {self.number} hold records: {', '.join(self.segments)}"


@dataclass(frozen=True)
class LostPartition:
    """What the disks together hold of one partition."""

    index: int
    # The descriptor of its first segment.
    first: Descriptor | None
    begins: int
    ends: int
    bytes: int
    # The segments of which each could be the first: with these it cannot be taken up again.
    ambiguity: Ambiguity | None


@dataclass(frozen=True)
class LostTopic:
    """What the disks together hold of one topic."""

    topic: str
    facts: TopicFacts | None
    partitions: Sequence[LostPartition]


@dataclass(frozen=True)
class TopicRecovery:
    """The command that names a lost topic again, under *name*."""

    name: str
    command: Mapping[str, object]


def remains_of(data_plane: walrus_core.DataPlane) -> list[Remains]:
    """What lies on this node's disk of topics that the metadata do not name."""
    return [Remains.parse(found) for found in data_plane.remains()]


def lost_topics(metadata: walrus_core.Metadata, remains: Iterable[Remains]) -> list[LostTopic]:
    """Topics that this state does not name, put together from what all disks hold."""
    found = metadata.lost_topics(json.dumps([asdict(each) for each in remains]))
    return [
        LostTopic(
            topic["topic"],
            _facts(topic["facts"]),
            [
                LostPartition(
                    **{
                        **partition,
                        "first": _descriptor(partition["first"]),
                        "ambiguity": _ambiguity(partition["ambiguity"]),
                    }
                )
                for partition in topic["partitions"]
            ],
        )
        for topic in found
    ]


def recover_topic(
    metadata: walrus_core.Metadata, lost: LostTopic, name: str | None, present: walrus_core.Present
) -> TopicRecovery:
    """Plan to name a lost topic again, under *name* if one is given; raises `ValueError` that says why it cannot be."""
    command = metadata.recover_topic(json.dumps(asdict(lost)), name, present)
    return TopicRecovery(command["recover_topic"]["name"], command)


def _facts(found: Mapping[str, Any] | None) -> TopicFacts | None:
    return None if found is None else TopicFacts(**found)


def _descriptor(found: Mapping[str, Any] | None) -> Descriptor | None:
    return None if found is None else Descriptor.parse(found)


def _ambiguity(found: Mapping[str, Any] | None) -> Ambiguity | None:
    return None if found is None else Ambiguity(**found)
