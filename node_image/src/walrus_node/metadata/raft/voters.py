"""Who votes: every membership entry carries the whole set, and it counts from where it stands in the log.

So the set goes back when such an entry is cut, and no address or dump can override it.
"""

from __future__ import annotations

import logging
from uuid import UUID

from walrus_node.metadata.raft.parts import Parts
from walrus_node.metadata.raft.pinned import MEMBERSHIP, Node, PinnedSyncObj, monotonic

log = logging.getLogger(__name__)


class Voters(PinnedSyncObj):
    """Keeps PySyncObj's sets of nodes as the log says."""

    def __init__(self, parts: Parts) -> None:
        self.voters: frozenset[UUID] = frozenset()
        self._snapshot_voters: frozenset[UUID] = frozenset()
        self._snapshot_index = 0
        super().__init__(parts)

    def _voters_at(self, index: int) -> frozenset[UUID]:
        for entry in reversed(self.entries_from(self._snapshot_index + 1)):
            if entry.index <= index and entry.command[0] == MEMBERSHIP:
                return decode_voters(entry.command[1:])
        return self._snapshot_voters

    def _adopt_voters(self) -> None:
        voters = self._voters_at(self.last.index)
        if voters == self.voters:
            return
        self.voters = voters
        others = {Node(str(disk)) for disk in voters if str(disk) != self._me.id}
        self._SyncObj__selfNode = self._me if UUID(self._me.id) in voters else None
        self._SyncObj__otherNodes = others
        self._SyncObj__readonlyNodes = self.connected - others
        for node in others:
            if node not in self.next_index:
                self._expect_anything(node)
        log.info("voters: %s", ", ".join(sorted(map(str, voters))))

    def _change_voters(self) -> None:
        self._adopt_voters()
        self._parts.hooks.on_voters_changed()

    def _may_change_voters(self, voters: frozenset[UUID]) -> bool:
        """One at a time, and only when the change before and an entry of this term are committed."""
        pending = any(entry.command[0] == MEMBERSHIP for entry in self.entries_from(self.commit_index + 1))
        settled = self._SyncObj__noopIDx is not None and self._SyncObj__noopIDx <= self.commit_index
        return len(voters ^ self.voters) == 1 and UUID(self._me.id) in voters and settled and not pending

    def _is_majority(self, nodes: set[Node]) -> bool:
        return 2 * len({UUID(node.id) for node in nodes} & self.voters) > len(self.voters)

    def _expect_anything(self, node: Node) -> None:
        """Nothing is known of what the peer holds; its first reply tells."""
        self.next_index[node] = self.last.index + 1
        self.match_index[node] = 0
        self.heard_at.setdefault(node, monotonic())


def encode_voters(voters: frozenset[UUID]) -> bytes:
    """The command of a membership entry: the whole set."""
    return b",".join(sorted(str(voter).encode() for voter in voters))


def decode_voters(command: bytes) -> frozenset[UUID]:
    """The reverse of `encode_voters`."""
    return frozenset(UUID(voter) for voter in command.decode().split(",") if voter)
