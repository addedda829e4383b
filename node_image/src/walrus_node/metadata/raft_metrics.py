"""Raft as `METRICS` of the text protocol shows it, with node ids where the nodes are registered. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from uuid import UUID

from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.store import Status

# A node's id, or its disk where the disk is not registered.
Name = int | str


@dataclass(frozen=True)
class Membership:
    """Who votes and who only hears of everything."""

    voters: Sequence[Name]
    observers: Sequence[Name]


@dataclass(frozen=True)
class Reach:
    """Whether a member is connected, and how many entries it lacks; `None` where only the leader knows."""

    connected: bool
    lag: int | None


@dataclass(frozen=True)
class RaftMetrics:
    """The fields of `METRICS`, in their order."""

    state: str
    current_leader: Name | None
    term: int
    last_log_index: int
    last_applied: int
    commit_index: int
    membership: Membership
    replication: Mapping[str, Reach]

    @classmethod
    def of(cls, status: Status, state: ClusterState) -> RaftMetrics:
        """What a moment of the store shows."""

        def name(disk: UUID) -> Name:
            node = state.nodes.get(disk)
            return node.node_id if node else str(disk)

        return cls(
            state=status.state.capitalize(),
            current_leader=None if status.leader is None else name(status.leader),
            term=status.term,
            last_log_index=status.last_index,
            last_applied=status.applied_index,
            commit_index=status.commit_index,
            membership=Membership(
                voters=sorted((name(member.disk) for member in status.members if member.voter), key=str),
                observers=sorted((name(disk) for disk in state.nodes if disk not in status.voters()), key=str),
            ),
            replication={str(name(member.disk)): Reach(member.connected, member.lag) for member in status.members},
        )

    def to_json(self) -> str:
        """The metrics as `walrus_core.DataPlane.set_raft_status` takes them."""
        return json.dumps(asdict(self), separators=(",", ":"))
