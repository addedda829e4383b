"""`WalrusTopic.status`: what the operator found of the topic. Nothing ever decides by `phase`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from walrus_operator.api.schema import Model, keyed_by
from walrus_operator.api.status import Condition


class SettingRow(Model):
    """A setting as it is in force."""

    name: str
    """Its name."""
    value: str
    """Its value."""
    source: str
    """Where that comes from: `topic`, `cluster`, `node` (an option of the brokers) or `built_in`."""


class DriftRow(Model):
    """Something that is not as the spec says."""

    field: str
    """`topic`, `partitions`, or the name of a setting."""
    wanted: str | None = None
    """What the spec asks for; a setting that it does not name has none."""
    found: str | None = None
    """What there is; a setting that the topic does not have itself has none."""


class LeaderRow(Model):
    """A broker that leads partitions of the topic."""

    broker: str
    """Its pod."""
    partitions: int
    """How many it leads."""


class TopicStatus(Model):
    """What the operator found."""

    observed_generation: int | None = None
    """The generation of the spec that this status is about."""
    phase: str | None = None
    """A summary of the conditions, for people."""
    name: str | None = None
    """Organisation and name of the topic, `acme/orders`."""
    topic_id: str | None = None
    """The identity of the topic. Another topic of its name has another one."""
    partitions: int | None = None
    """Partitions that the topic has."""
    replication_factor: int | None = None
    """Brokers that store each record of the topic's next segments."""
    size: Annotated[str, Field(max_length=32)] | None = None
    """Bytes of its sealed segments, each counted once; rounded, and brought up to date every few minutes."""
    settings: list[SettingRow] | None = Field(default=None, json_schema_extra=keyed_by("name"))
    """The settings that act, or that the topic has itself, as they are in force."""
    drift: list[DriftRow] | None = Field(default=None, json_schema_extra=keyed_by("field"))
    """What is not as the spec says."""
    leaders: list[LeaderRow] | None = Field(default=None, json_schema_extra=keyed_by("broker"))
    """Who leads its partitions; brought up to date every few minutes."""
    conditions: list[Condition] | None = Field(default=None, json_schema_extra=keyed_by("type"))
    """Questions about the topic, answered."""
