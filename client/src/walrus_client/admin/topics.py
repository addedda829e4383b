"""Topics of any organisation, as the admin service compares them with what somebody wants."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from walrus_client.admin.model import Replication
from walrus_client.v1 import admin_pb2


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A topic as it is wanted; `config` has all the settings that it is to have itself."""

    org: str
    name: str
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting that a topic does not have as it is wanted."""

    name: str
    wanted: str | None  # as it would be stored; None: the topic is not to set it
    found: str | None  # None: the topic does not set it

    @classmethod
    def parse(cls, message: admin_pb2.SettingDifference) -> "SettingDifference":
        return cls(
            name=message.name,
            wanted=message.wanted if message.HasField("wanted") else None,
            found=message.found if message.HasField("found") else None,
        )


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """A setting of a topic as it is in force; `source` is "topic", "cluster", "node" or "built_in"."""

    name: str
    value: str
    source: str

    @classmethod
    def parse(cls, message: admin_pb2.SettingInForce) -> "SettingInForce":
        return cls(message.name, message.value, message.source)


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """What there is of a topic that is wanted."""

    topic: str  # uuid
    partitions: int
    version: int  # version of the settings that it has itself; 0: it has never had any
    replication: Replication  # how its next segments are stored
    differences: tuple[SettingDifference, ...]
    settings: tuple[SettingInForce, ...]  # those that act, and those that the topic has itself
    leaders: Mapping[str, int]  # how many of its partitions each node leads, by the node's name or "node ID"
    sealed_bytes: int

    @classmethod
    def parse(cls, message: admin_pb2.FoundTopic) -> "FoundTopic":
        return cls(
            topic=message.topic,
            partitions=message.partitions,
            version=message.version,
            replication=Replication.parse(message.replication),
            differences=tuple(map(SettingDifference.parse, message.differences)),
            settings=tuple(map(SettingInForce.parse, message.settings)),
            leaders={one.name or f"node {one.node_id}": one.partitions for one in message.leaders},
            sealed_bytes=message.sealed_bytes,
        )


@dataclass(frozen=True, slots=True)
class ComparedTopic:
    """A wanted topic beside what there is; `refused` says why no topic can have the wanted settings."""

    refused: str | None
    found: FoundTopic | None  # None: there is no topic of that name

    @classmethod
    def parse(cls, message: admin_pb2.ComparedTopic) -> "ComparedTopic":
        return cls(message.refused or None, FoundTopic.parse(message.found) if message.HasField("found") else None)
