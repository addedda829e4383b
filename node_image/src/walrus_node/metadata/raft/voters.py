"""Who votes: every membership entry carries the whole set, and it counts from where it stands in the log.

So the set goes back when such an entry is cut, and no address or dump can override it. A member whose log is empty or
behind does not know who votes by now: it takes the word of whoever answered its request to join.
"""

from __future__ import annotations

import logging
from uuid import UUID

from walrus_node.metadata.journal import Entry
from walrus_node.metadata.raft.parts import Parts
from walrus_node.metadata.raft.pinned import MEMBERSHIP, Node, PinnedSyncObj, disk_of, monotonic
from walrus_node.metadata.wire import BadFrameError

log = logging.getLogger(__name__)


class Voters(PinnedSyncObj):
    """Keeps PySyncObj's sets of nodes as the log says."""

    def __init__(self, parts: Parts) -> None:
        self.voters: frozenset[UUID] = frozenset()
        self._snapshot_voters: frozenset[UUID] = frozenset()
        self._snapshot_index = 0
        # Voters by the answer to a join; replaced as a whole by any thread.
        self._told_voters: frozenset[UUID] = frozenset()
        super().__init__(parts)

    def introduce(self, voters: frozenset[UUID]) -> None:
        """Believe that these disks vote, until the log tells; thread-safe."""
        self._told_voters = voters

    @property
    def told_voters(self) -> frozenset[UUID]:
        """Voters by the answer to a join, as long as the log does not tell."""
        return self._told_voters

    def _may_lead(self, node: Node) -> bool:
        """Whether a claim to lead, or to be elected, is listened to: only that of a voter is."""
        disk = disk_of(node.id)
        if disk in self.voters or disk in self._told_voters:
            return True
        self._parts.hooks.on_unknown_voter(disk)
        return False

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
        self._SyncObj__selfNode = self._me if disk_of(self._me.id) in voters else None
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
        term_began = self._SyncObj__noopIDx is not None and self._SyncObj__noopIDx <= self.commit_index
        return len(voters ^ self.voters) == 1 and disk_of(self._me.id) in voters and term_began and not pending

    def _is_majority(self, nodes: set[Node]) -> bool:
        return 2 * len({disk_of(node.id) for node in nodes} & self.voters) > len(self.voters)

    def _expect_anything(self, node: Node) -> None:
        """Nothing is known of what the peer holds; its first reply tells."""
        self.next_index[node] = self.last.index + 1
        self.match_index[node] = 0
        self.heard_at.setdefault(node, monotonic())


def encode_voters(voters: frozenset[UUID]) -> bytes:
    """The command of a membership entry: the whole set."""
    return b",".join(sorted(str(voter).encode() for voter in voters))


def decode_voters(command: bytes) -> frozenset[UUID]:
    """The reverse of `encode_voters`; raises `ValueError`."""
    return frozenset(UUID(voter) for voter in command.decode().split(",") if voter)


def check_entries(entries: list[Entry], previous: int) -> None:
    """Raises `BadFrameError` unless they follow entry *previous* without a gap, and changes of the voters name some."""
    for place, entry in enumerate(entries, 1):
        if entry.index != previous + place:
            raise BadFrameError(f"entries with a gap behind {previous} were sent")
        if entry.command[0] == MEMBERSHIP:
            try:
                voters = decode_voters(entry.command[1:])
            except ValueError:
                voters = frozenset()
            if not voters:
                raise BadFrameError(f"entry {entry.index} names no voters")
