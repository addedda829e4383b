"""What `walrus_core.Metadata` reports of the cluster, parsed once: nodes, loads, copies and segments."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import walrus_core


@dataclass(frozen=True)
class Listener:
    """A listener of clients of one organisation, as they reach it."""

    # `text`, `grpc` or `kafka`.
    protocol: str
    org: str
    address: str
    # One that was registered before all members knew of names has none.
    name: str = ""

    @property
    def is_default(self) -> bool:
        """Whether it is the listener that every node has of the protocol; none need have one of Kafka's."""
        return self.protocol == self.name != "kafka"


@dataclass(frozen=True)
class Node:
    """A node as the metadata list it now."""

    node_id: int
    disk: UUID
    process: UUID
    name: str
    # `up`, `full`, `draining` or `stopping`.
    state: str
    raft_address: str
    peer_address: str
    text_address: str
    grpc_address: str
    http_address: str
    admin_address: str
    # The zone that it is in; empty where nobody has said it.
    zone: str
    # Up to which level its process knows commands of the metadata.
    level: int
    # Those of clients beside the two that every node has.
    listeners: tuple[Listener, ...] = ()


@dataclass(frozen=True)
class Replication:
    """How many disks store a segment, and how many of them an acknowledgement waits for."""

    factor: int
    write_quorum: int


@dataclass(frozen=True)
class OrganisationLimits:
    """What an organisation may have, beside the limits of the cluster; `None`: those alone."""

    topics_max: int | None = None
    partitions_max: int | None = None
    creations_per_second_max: int | None = None


@dataclass(frozen=True)
class Organisation:
    """A namespace of topics, and what it has."""

    name: str
    limits: OrganisationLimits
    topics: int
    partitions: int
    # Version of the metadata at the last change of its limits.
    version: int


@dataclass(frozen=True)
class Load:
    """Segments that a node leads, holds, and of these has no whole copy of yet; bytes of the sealed ones it holds."""

    led: int = 0
    held: int = 0
    filling: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Census:
    """How segments lie on the nodes that are alive."""

    loads: Mapping[int, Load]
    under_replicated: int
    # Nodes that may stop with every segment still written and read; `None` where nothing is stored.
    spare_nodes: int | None
    # The replication of new segments.
    replication: Replication
    # The most copies that any segment shall have.
    copies_needed: int

    def load(self, node_id: int) -> Load:
        """The load of a node; none where it is not listed."""
        return self.loads.get(node_id, Load())


@dataclass(frozen=True)
class StopImpact:
    """What would lack its quorum if a node stopped: numbers of segments, and the topics of some."""

    open_without_quorum: int
    sealed_without_copy: int
    led: int
    topics: Sequence[str]


@dataclass(frozen=True)
class CopyProgress:
    """How far the copies of sealed segments are."""

    under_replicated: int
    without_copy: int
    moving: int
    lost: int
    damaged: int
    in_one_zone: int


@dataclass(frozen=True)
class CopyChange:
    """A change of one segment's copies; *command* is what `set_copies` takes."""

    segment: str
    # Ids of the nodes that are to make a copy, and that are to give theirs up.
    added: Sequence[int]
    given_up: Sequence[int]
    command: Mapping[str, object]


@dataclass(frozen=True)
class Upkeep:
    """Changes of copies to propose now, the most urgent first, and how far things are."""

    changes: Sequence[CopyChange]
    progress: CopyProgress


@dataclass(frozen=True)
class Copy:
    """A copy of a segment on one disk."""

    node: int
    disk: str
    state: str
    alive: bool


@dataclass(frozen=True)
class Segment:
    """A segment and its copies."""

    topic: str
    partition: int
    number: int
    uuid: str
    state: str
    leader: int
    epoch: int
    base_offset: int
    # `None` as long as it is open.
    end_offset: int | None
    copies: Sequence[Copy]
    under_replicated: bool


_TEXTS = tuple(Node.__dataclass_fields__.keys() - {"node_id", "disk", "process", "level", "listeners", "zone"})


def nodes(metadata: walrus_core.Metadata) -> list[Node]:
    """The nodes by id."""
    return [
        Node(
            node_id=node["id"],
            disk=UUID(node["disk"]),
            process=UUID(node["process"]),
            level=node["level"],
            listeners=tuple(Listener(**listener) for listener in node.get("listeners", ())),
            zone=node.get("zone", ""),
            **{name: node[name] for name in _TEXTS},
        )
        for node in metadata.nodes()
    ]


def census(metadata: walrus_core.Metadata, alive: Sequence[int]) -> Census:
    """Count the segments; a replica or a verified copy counts where its node is in *alive*."""
    found = metadata.census(alive)
    return Census(
        loads={int(node_id): Load(**load) for node_id, load in found["nodes"].items()},
        under_replicated=found["under_replicated"],
        spare_nodes=found["spare_nodes"],
        replication=Replication(**found["replication"]),
        copies_needed=found["copies_needed"],
    )


def stop_impact(
    metadata: walrus_core.Metadata, node_id: int, *, alive: Collection[int], current: Collection[int]
) -> StopImpact:
    """What would lack its quorum if that node stopped; replicas of open segments count on *current* nodes."""
    return StopImpact(**metadata.stop_impact(node_id, alive=list(alive), current=list(current)))


def upkeep(metadata: walrus_core.Metadata, present: walrus_core.Present) -> Upkeep:
    """What is to be done for the copies of sealed segments."""
    found = metadata.upkeep(present)
    return Upkeep([_copy_change(change) for change in found["changes"]], CopyProgress(**found["progress"]))


def segments(
    metadata: walrus_core.Metadata, alive: Sequence[int], *, topic: str | None, under_replicated: bool, limit: int
) -> list[Segment]:
    """Segments in order: of one topic (`organisation/name`), or that lack copies, if wanted."""
    lines = metadata.segments(alive, topic=topic, under_replicated=under_replicated, limit=limit)
    return [Segment(**{**line, "copies": [Copy(**copy) for copy in line["copies"]]}) for line in lines]


def organisations(metadata: walrus_core.Metadata) -> list[Organisation]:
    """The organisations by name."""
    return [
        Organisation(**{**found, "limits": OrganisationLimits(**found["limits"])}) for found in metadata.organisations()
    ]


def _copy_change(change: Mapping[str, Any]) -> CopyChange:
    return CopyChange(
        segment=change["segment"],
        added=[replica["node"] for replica in change["added"]],
        given_up=[replica["node"] for replica in change["given_up"]],
        command=change,
    )
