"""One look at the topics of a cluster: what people wrote, and what its brokers tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import ValidationError

from walrus_operator.api.topic import TopicSpec, parse_topic
from walrus_operator.desired.names import TOPIC_FINALIZER
from walrus_operator.desired.topics import Wanted, wanted
from walrus_operator.objects import TOPIC, Key, Kind, Manifest, TopicsKey, uid_of
from walrus_operator.observe.snapshot import Snapshot


@dataclass(frozen=True)
class Topic:
    """The custom resource."""

    name: str
    namespace: str
    uid: str
    created: str
    generation: int
    spec: TopicSpec | None
    """None where this operator cannot read it."""
    problem: str
    """Why it cannot."""
    status: Mapping[str, Any]
    deleting: bool
    held: bool
    """Whether its deletion waits for the operator."""
    wanted: Wanted | None
    """The topic that it asks for; None where the spec cannot be read."""

    kind: ClassVar[Kind] = TOPIC

    @classmethod
    def parse(cls, manifest: Manifest) -> Topic:
        """From the API server's object."""
        metadata = manifest["metadata"]
        spec, problem = None, ""
        try:
            spec = parse_topic(dict(manifest.get("spec", {})))
        except ValidationError as error:
            told = (f"spec.{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors()[:5])
            problem = "; ".join(told)
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=uid_of(manifest),
            created=metadata.get("creationTimestamp", ""),
            generation=metadata.get("generation", 0),
            spec=spec,
            problem=problem,
            status=manifest.get("status", {}),
            deleting="deletionTimestamp" in metadata,
            held=TOPIC_FINALIZER in metadata.get("finalizers", ()),
            wanted=wanted(spec, metadata["name"]) if spec is not None else None,
        )

    @property
    def key(self) -> Key:
        """Where it lies."""
        return Key(self.namespace, self.name)


@dataclass(frozen=True)
class Difference:
    """A setting that a topic does not have as it is wanted."""

    name: str
    wanted: str | None
    """As it would be stored; None: the topic is not to set it."""
    found: str | None
    """None: the topic does not set it."""


@dataclass(frozen=True)
class FoundTopic:
    """A topic that is there."""

    id: str
    partitions: int
    version: int
    """The version of its settings."""
    factor: int
    """Copies of its next segments."""
    differences: tuple[Difference, ...]
    settings: tuple[tuple[str, str, str], ...]
    """Name, value and source of the settings in force."""
    leaders: Mapping[str, int]
    """How many partitions each broker leads, by its name."""
    sealed_bytes: int


@dataclass(frozen=True)
class Compared:
    """A wanted topic beside what there is."""

    refused: str
    """Why no topic can have the wanted settings, in the brokers' words; "": one can."""
    found: FoundTopic | None


@dataclass(frozen=True)
class TopicsSnapshot:
    """One look."""

    key: TopicsKey
    topics: tuple[Topic, ...]
    """All that name this cluster, in the order in which they were made."""
    cluster: Snapshot | None
    """None where there is no such cluster."""
    seen: Mapping[str, Compared] = field(default_factory=dict)
    """What brokers tell, by uid; nothing where none of them answers."""
    trouble: str = ""
    """Why brokers tell nothing."""

    def hosts(self) -> list[str]:
        """Brokers to be asked, the one that leads the metadata first: it knows the latest."""
        if self.cluster is None:
            return []
        told = self.cluster.brokers.items()
        members = sorted((one.role != "Leader", name) for name, one in told if one is not None and one.cluster_id)
        hosts = [self.cluster.pods[name].ip for _, name in members]
        return [host for host in hosts if host is not None]
