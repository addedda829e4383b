"""`WalrusCluster.status`: what the operator found and what holds it up. Nothing ever decides by `phase`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from walrus_operator.api.schema import ATOMIC, Model, keyed_by

NOT_WATCHED = "NotWatched"
"""The phase of a cluster that no operator looks after; the definition's default."""


class Condition(Model):
    """One question about the cluster, answered."""

    type: str
    """The question."""
    status: Literal["True", "False", "Unknown"]
    """The answer."""
    reason: str
    """Why, in one word of a closed list."""
    message: str
    """Why, for people, and what they may do."""
    observed_generation: int
    """The generation of the spec that was looked at."""
    last_transition_time: str = Field(json_schema_extra={"format": "date-time"})
    """When the answer last changed."""


class BrokerRow(Model):
    """One broker, as it was last seen."""

    pod: str
    """Its pod."""
    pool: str
    """Its pool."""
    node: str | None = None
    """The node it runs on."""
    zone: Annotated[str, Field(max_length=63)] | None = None
    """The zone that it told; nothing where it knows none."""
    uuid: str | None = None
    """Who it is: the identity on its disk."""
    id: int | None = None
    """Its small number in the cluster."""
    state: Literal["Absent", "Pending", "Starting", "Waiting", "Serving", "NotReady", "Unreachable", "Stopping"]
    """What it is doing."""
    detail: str | None = None
    """What keeps it from serving; of one that opens its store, how far it is."""
    role: str | None = None
    """Its part in the metadata quorum."""
    segments_led: int | None = None
    """Open segments that it leads."""
    backend: str | None = None
    """The backend in use."""
    backend_reason: str | None = None
    """Why the backend is not the one asked for."""
    synced_writes: str | None = None
    """How it writes what it syncs: `direct`, or `cached` in the page cache, which is synced then."""
    cached_reason: str | None = None
    """Why its synced writes are cached."""
    disk_percent: int | None = None
    """How full its disk is, in steps of five."""
    disk_full_at: Annotated[str, Field(max_length=32)] | None = None
    """When its disk is full, if it fills up as in the last hours; not told where that is more than a month."""
    claim_size: Annotated[str, Field(max_length=32)] | None = None
    """What its claim has of what it asks for."""
    claim_state: Literal["Pending", "Bound", "Growing", "FileSystemGrowing", "Refused", "Lost"] | None = None
    """How its claim is. `FileSystemGrowing`: the volume is large enough, its file system not yet. `Refused`: its
    volume's driver does not make it as large as it asks for."""
    drain_percent: int | None = None
    """Where it goes: how much of what it stored it has handed over."""
    version: str | None = None
    """The version it runs."""
    level_known: int | None = None
    """Up to which level it knows commands of the metadata."""
    wire_versions: str | None = None
    """Which versions of the frames between brokers it speaks, for example `3 to 4`."""
    restarts: int | None = None
    """How often its container was started again."""


class MemberRow(Model):
    """One member of the cluster, as its metadata list it: a disk, whether a broker is on it or not."""

    uuid: str
    """The identity on the disk."""
    name: str
    """The pod that was last on it."""
    state: Literal["Alive", "Away", "Draining", "Lost"]
    """`Draining`: it hands over what it has, to go. `Lost`: its pod came up on a new disk, or its node is gone;
    StorageHealthy says what comes next."""


class PoolRow(Model):
    """One pool, summed up."""

    name: Annotated[str, Field(max_length=63)]
    """Its name."""
    desired: int
    """Brokers that the spec asks for."""
    replicas: int
    """Brokers that the StatefulSet has now."""
    ready: int
    """Brokers that serve."""
    updated: int
    """Brokers whose pods are made as the spec says now."""
    storage: Annotated[str, Field(max_length=32)] | None = None
    """Size of its claims; of the smallest, where they differ."""


class PlanRow(Model):
    """What comes next, or what holds it up."""

    next: str | None = None
    """The next action."""
    blocked_by: str | None = None
    """The gate that holds it up, of a closed list."""
    detail: str | None = None
    """What the gate waits for, and who can lift it."""


class ListenerBrokerRow(Model):
    """Where clients outside find a broker."""

    pod: str
    """Its pod."""
    address: str
    """What it was given to tell, `host:port`."""


class ListenerRow(Model):
    """Where clients find a listener."""

    name: str
    """The listener."""
    type: str
    """The type of its Service."""
    addresses: list[str] = Field(json_schema_extra=ATOMIC)
    """Addresses to begin with, `host:port`; `<any node>:port` where the nodes are not known."""
    brokers: list[ListenerBrokerRow] | None = Field(default=None, json_schema_extra=keyed_by("pod"))
    """Addresses of single brokers, of which its clients are told."""


class ConfigRow(Model):
    """The dynamic configuration that the brokers were given."""

    version: int
    """Its version in the cluster's metadata."""
    applied: int
    """Brokers that have it."""


class ReplicationRow(Model):
    """How segments that are opened from now on are replicated, as the brokers tell."""

    factor: int
    """Brokers that store each record."""
    write_quorum: int
    """Brokers that have a record on their disks before it is acknowledged."""
    copies_needed: int | None = None
    """The most copies that any topic keeps of its records: fewer brokers than that cannot do."""
    spare_brokers: int | None = None
    """Brokers that may stop now, whichever they are, with everything still written and read."""


class LevelRow(Model):
    """What the cluster uses of its metadata. A broker that knows less than `used` does not start."""

    used: int
    """The level of commands in use. It never goes back."""
    known_by_all: int | None = None
    """The level that all brokers know; where it is higher, `updatePolicy.finalize` says when it is used."""


class ClusterStatus(Model):
    """What the operator found."""

    observed_generation: int | None = None
    """The generation of the spec that this status is about."""
    cluster_id: str | None = None
    """The identity of the cluster, minted by the broker that founded it, and anew by `recover-metadata`."""
    phase: str | None = None
    """A summary of the conditions, for people."""
    replicas: int | None = None
    """Brokers that the spec asks for."""
    ready_replicas: int | None = None
    """Brokers that serve."""
    leader: str | None = None
    """The pod that leads the metadata."""
    version: str | None = None
    """The version or versions that run."""
    backend: str | None = None
    """The backend or backends in use."""
    term: int | None = None
    """The term of the metadata leader."""
    replication: ReplicationRow | None = None
    """How records are replicated now."""
    under_replicated: int | None = None
    """Segments with fewer copies than asked for."""
    level: LevelRow | None = None
    """What the cluster uses of its metadata, and what it could."""
    plan: PlanRow | None = None
    """What comes next, or what holds it up."""
    config: ConfigRow | None = None
    """The dynamic configuration that the brokers were given."""
    pools: list[PoolRow] | None = Field(default=None, max_length=64, json_schema_extra=keyed_by("name"))
    """The pools, summed up."""
    brokers: list[BrokerRow] | None = Field(default=None, json_schema_extra=keyed_by("pod"))
    """The brokers, one by one."""
    members: list[MemberRow] | None = Field(default=None, json_schema_extra=keyed_by("uuid"))
    """Everyone who votes or stores records, one by one."""
    listeners: list[ListenerRow] | None = Field(default=None, json_schema_extra=keyed_by("name"))
    """Where clients find the brokers."""
    conditions: list[Condition] | None = Field(default=None, json_schema_extra=keyed_by("type"))
    """Questions about the cluster, answered."""
