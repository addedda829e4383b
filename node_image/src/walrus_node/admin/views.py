"""What the admin service shows, as messages: made from one state of the metadata. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from walrus_client.v1 import admin_pb2

from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.store import Status

_ROLES = {
    "leader": admin_pb2.MetadataStatus.ROLE_LEADER,
    "follower": admin_pb2.MetadataStatus.ROLE_FOLLOWER,
    "candidate": admin_pb2.MetadataStatus.ROLE_CANDIDATE,
    "observer": admin_pb2.MetadataStatus.ROLE_OBSERVER,
}
_ADDRESSES = ("raft", "peer", "text", "grpc", "http", "admin")


def cluster_nodes(nodes: Iterable[Mapping[str, Any]], voters: frozenset[UUID], alive: Collection[int]) -> list[Any]:
    """The nodes as metadata lists them, by id."""
    return [
        admin_pb2.ClusterNode(
            node_id=node["id"],
            disk=node["disk"],
            process=node["process"],
            name=node["name"],
            **{f"{name}_address": node[f"{name}_address"] for name in _ADDRESSES},
            state=node["state"],
            alive=node["id"] in alive,
            voter=UUID(node["disk"]) in voters,
        )
        for node in sorted(nodes, key=lambda node: int(node["id"]))
    ]


def segment_view(line: Mapping[str, Any]) -> Any:
    """A segment, as `walrus_core.Metadata.segments` tells it."""
    copies = [
        admin_pb2.CopyView(node_id=copy["node"], disk=copy["disk"], state=copy["state"], alive=copy["alive"])
        for copy in line["copies"]
    ]
    return admin_pb2.SegmentView(**{**line, "copies": copies})


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
    )
