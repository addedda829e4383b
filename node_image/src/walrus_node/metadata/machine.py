"""The state machine that Raft replicates: `walrus_core.Metadata`, and the nodes it lists as Python values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import walrus_core

from walrus_node.files import DataRefusedError
from walrus_node.metadata import reports
from walrus_node.metadata.store import Applied, Rejected

_NOT_UNDERSTOOD = ("Malformed", "UnsupportedVersion", "UnsupportedLevel")


@dataclass(frozen=True)
class RegisteredNode:
    """A node as metadata lists it, as far as its registration goes."""

    node_id: int
    disk: UUID
    process: UUID
    raft_address: str
    # It is given no new segments and passes on those that it leads.
    draining: bool


@dataclass(frozen=True)
class ClusterConfig:
    """The cluster-wide settings; `version` is that of the metadata at their last change, 0 if none was made."""

    version: int
    entries: Mapping[str, int]


@dataclass(frozen=True)
class ClusterState:
    """One version of the metadata. `metadata` is a copy that nobody changes."""

    metadata: walrus_core.Metadata
    nodes: Mapping[UUID, RegisteredNode]
    config: ClusterConfig


class MetadataMachine:
    """Implements `store.StateMachine[ClusterState]`."""

    def __init__(self, level: int = walrus_core.Metadata.LEVEL) -> None:
        """*level*: up to which commands are known."""
        self._level = level
        self._metadata = walrus_core.Metadata(level)
        self._nodes: Mapping[UUID, RegisteredNode] = {}
        self._addresses: Mapping[UUID, str] = {}
        self._config = ClusterConfig(0, {})

    def check(self, command: bytes) -> Rejected | None:
        try:
            self._metadata.check(command)
        except walrus_core.RejectedError as error:
            return Rejected(error.reason, str(error), error.facts)
        return None

    def apply(self, command: bytes) -> Applied | Rejected:
        try:
            applied = json.loads(self._metadata.apply(command))
        except walrus_core.RejectedError as error:
            if error.reason in _NOT_UNDERSTOOD:
                raise DataRefusedError(f"a committed command is not understood: {error}") from None
            return Rejected(error.reason, str(error), error.facts)
        answer = applied["answer"]
        if isinstance(answer, dict) and "node" in answer:
            self._list_nodes()
        if isinstance(answer, dict) and "config" in answer:
            self._config = ClusterConfig(**self._metadata.config())
        return Applied(applied["version"], answer)

    def snapshot(self) -> bytes:
        return self._metadata.snapshot()

    def snapshot_as(self, cluster_id: UUID) -> bytes:
        """The state as that of another cluster."""
        return self._metadata.continued_as(str(cluster_id)).snapshot()

    def restore(self, snapshot: bytes) -> None:
        try:
            self._metadata = walrus_core.Metadata.restore(snapshot, self._level)
        except walrus_core.WalrusError as error:
            raise ValueError(str(error)) from None
        self._list_nodes()
        self._config = ClusterConfig(**self._metadata.config())

    def view(self) -> ClusterState:
        return ClusterState(self._metadata.copy(), self._nodes, self._config)

    def version(self) -> int:
        return self._metadata.version

    def raft_addresses(self) -> Mapping[UUID, str]:
        return self._addresses

    def _list_nodes(self) -> None:
        nodes = [
            RegisteredNode(node.node_id, node.disk, node.process, node.raft_address, node.state == "draining")
            for node in reports.nodes(self._metadata)
        ]
        self._nodes = {node.disk: node for node in nodes}
        self._addresses = {node.disk: node.raft_address for node in nodes}
