"""What the admin service shows, as messages: made from one state of the metadata. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict
from uuid import UUID

from walrus_client.v1 import admin_pb2

from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.reports import Node, Organisation, OrganisationLimits, Segment
from walrus_node.metadata.store import Status

_ROLES = {
    "leader": admin_pb2.MetadataStatus.ROLE_LEADER,
    "follower": admin_pb2.MetadataStatus.ROLE_FOLLOWER,
    "candidate": admin_pb2.MetadataStatus.ROLE_CANDIDATE,
    "observer": admin_pb2.MetadataStatus.ROLE_OBSERVER,
}


def cluster_nodes(
    nodes: Iterable[Node], voters: frozenset[UUID], alive: Collection[int]
) -> list[admin_pb2.ClusterNode]:
    """The nodes as metadata lists them, by id."""
    return [
        admin_pb2.ClusterNode(
            node_id=node.node_id,
            disk=str(node.disk),
            process=str(node.process),
            name=node.name,
            raft_address=node.raft_address,
            peer_address=node.peer_address,
            text_address=node.text_address,
            grpc_address=node.grpc_address,
            http_address=node.http_address,
            admin_address=node.admin_address,
            state=node.state,
            alive=node.node_id in alive,
            voter=node.disk in voters,
            level_known=node.level,
            zone=node.zone,
            listeners=[
                admin_pb2.OrganisationListener(protocol=one.protocol, org=one.org, address=one.address)
                for one in node.listeners
            ],
        )
        for node in sorted(nodes, key=lambda node: node.node_id)
    ]


def organisation_view(organisation: Organisation) -> admin_pb2.Organisation:
    """An organisation with its limits and what it has."""
    return admin_pb2.Organisation(
        name=organisation.name,
        limits=admin_pb2.OrganisationLimits(**asdict(organisation.limits)),
        topics=organisation.topics,
        partitions=organisation.partitions,
        version=organisation.version,
    )


def limits_of(message: admin_pb2.OrganisationLimits) -> OrganisationLimits:
    """The limits that a message names."""
    return OrganisationLimits(**{field.name: value for field, value in message.ListFields()})


def segment_view(segment: Segment) -> admin_pb2.SegmentView:
    """A segment and its copies."""
    return admin_pb2.SegmentView(
        topic=segment.topic,
        partition=segment.partition,
        number=segment.number,
        uuid=segment.uuid,
        state=segment.state,
        leader=segment.leader,
        epoch=segment.epoch,
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        copies=[
            admin_pb2.CopyView(node_id=copy.node, disk=copy.disk, state=copy.state, alive=copy.alive)
            for copy in segment.copies
        ],
        under_replicated=segment.under_replicated,
    )


def metadata_status(status: Status, state: ClusterState) -> admin_pb2.MetadataStatus:
    """Raft, with node ids where the disks are registered."""
    ids = {disk: node.node_id for disk, node in state.nodes.items()}
    return admin_pb2.MetadataStatus(
        leader=ids.get(status.leader, 0) if status.leader else 0,
        term=status.term,
        version=status.version,
        role=_ROLES[status.state],
        voters=sorted(ids[disk] for disk in status.voters() if disk in ids),
        last_index=status.last_index,
        last_term=status.last_term,
        level=state.metadata.level,
        level_reachable=state.metadata.reachable_level() or state.metadata.level,
    )
