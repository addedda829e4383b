"""`WalrusTopic` as a user writes it: descriptions, defaults and rules of its CRD and of the chart's values."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from walrus_operator.api.cluster import DeletionPolicy
from walrus_operator.api.listeners import DEFAULT_ORG
from walrus_operator.api.schema import Duration, Model, Quantity, Spelled, rules
from walrus_operator.api.units import bytes_of, milliseconds_of

KIND = "WalrusTopic"
PLURAL = "walrustopics"


class ManagementPolicy(StrEnum):
    """Whether the topic is kept as the spec says."""

    FULL = "Full"
    OBSERVE_ONLY = "ObserveOnly"


class TopicSegments(Model):
    """When an open segment of the topic is sealed; what is not given is the cluster's."""

    max_entries: Annotated[int, Field(ge=1, le=2**40)] | None = None
    """Roll at so many records: the setting `walrus.segment.entries`."""
    max_bytes: Quantity | None = None
    """Roll at so many bytes: the setting `segment.bytes`."""
    max_age: Duration | None = None
    """Roll at this age: the setting `segment.ms`."""


class TopicRetention(Model):
    """When records of the topic go; without it they stay for ever."""

    age: Duration | None = None
    """Records go at this age: the setting `retention.ms`."""
    bytes: Quantity | None = None
    """A partition keeps so many bytes: the setting `retention.bytes`."""


_FIELDS = {
    "replicationFactor": "walrus.replication.factor",
    "segments.maxEntries": "walrus.segment.entries",
    "segments.maxBytes": "segment.bytes",
    "segments.maxAge": "segment.ms",
    "retention.age": "retention.ms",
    "retention.bytes": "retention.bytes",
}
"""Fields that stand for a setting of the topic."""


def _set_once(field: str, setting: str) -> tuple[str, str]:
    outer, _, inner = field.partition(".")
    given = f"has(self.{outer})" + (f" && has(self.{outer}.{inner})" if inner else "")
    return (
        f"!(has(self.configs) && '{setting}' in self.configs && {given})",
        f"{field} is the setting {setting}: give one of the two, not both",
    )


ConfigValue = Annotated[int | str, Field(json_schema_extra={"x-kubernetes-int-or-string": True, "maxLength": 4096})]


class TopicSpec(Model):
    """What the topic shall be."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            ("self.cluster == oldSelf.cluster", "the cluster of a topic cannot change: make another WalrusTopic"),
            ("self.org == oldSelf.org", "the organisation of a topic cannot change: make another WalrusTopic"),
            (
                "has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)",
                "the name of a topic cannot change: make another WalrusTopic",
            ),
            (
                "self.deletionPolicy != 'Delete' || self.managementPolicy == 'Full'",
                "managementPolicy: ObserveOnly changes nothing: deletionPolicy must be Retain then",
            ),
            *(_set_once(field, setting) for field, setting in _FIELDS.items()),
        )
    )

    cluster: Annotated[
        str,
        Field(max_length=45),
        Spelled("^[a-z]([-a-z0-9]*[a-z0-9])?$", "must be the name of a WalrusCluster, for example orders"),
    ]
    """The WalrusCluster of this namespace that has the topic. It cannot change."""
    org: Annotated[
        str,
        Field(max_length=63),
        Spelled("^[A-Za-z0-9][A-Za-z0-9._-]*$", "must be the name of an organisation, for example acme"),
    ] = DEFAULT_ORG
    """Organisation whose topic it is; there must be one of this name. It cannot change."""
    name: (
        Annotated[
            str,
            Field(max_length=249),
            Spelled(
                "^[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*$", "must be the name of a topic, for example orders.v1"
            ),
        ]
        | None
    ) = None
    """Name of the topic, as clients call it; without it `metadata.name`. It cannot change."""
    partitions: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of partitions. It may grow; none is ever taken away."""
    replication_factor: Annotated[int, Field(ge=1, le=9)] | None = None
    """Brokers that store each record: the setting `walrus.replication.factor`. Without it the cluster's."""
    segments: TopicSegments | None = None
    """When segments roll."""
    retention: TopicRetention | None = None
    """When records go."""
    configs: Annotated[dict[str, ConfigValue], Field(max_length=64)] | None = None
    """Further settings of the topic, by name: all that brokers know, for example `{cleanup.policy: compact}`."""
    management_policy: ManagementPolicy = ManagementPolicy.FULL
    """`Full`: the topic is made, and kept as the spec says; settings that the spec does not name go back to their
    defaults. `ObserveOnly`: it is looked at, what differs is in the status, and nothing is changed."""
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    """What happens to the topic when the WalrusTopic is deleted; `Delete` takes all its records along."""

    def settings(self) -> dict[str, str]:
        """All the settings that the topic shall have itself, by name."""
        segments, retention = self.segments or TopicSegments(), self.retention or TopicRetention()
        given: dict[str, int | None] = {
            "walrus.replication.factor": self.replication_factor,
            "walrus.segment.entries": segments.max_entries,
            "segment.bytes": bytes_of(segments.max_bytes) if segments.max_bytes else None,
            "segment.ms": milliseconds_of(segments.max_age) if segments.max_age else None,
            "retention.ms": milliseconds_of(retention.age) if retention.age else None,
            "retention.bytes": bytes_of(retention.bytes) if retention.bytes else None,
        }
        set_ = {name: str(value) for name, value in given.items() if value is not None}
        return {**{name: str(value) for name, value in (self.configs or {}).items()}, **set_}


def parse_topic(spec: dict[str, Any]) -> TopicSpec:
    """Parse what the API server handed out. Raises `pydantic.ValidationError`."""
    return TopicSpec.model_validate(spec)
