"""Entries from the leader to the others, both ends: what is sent, what is taken, what an acknowledgement means."""

from __future__ import annotations

from walrus_node.metadata.journal import Entry
from walrus_node.metadata.raft.parts import DivergedError
from walrus_node.metadata.raft.pinned import HEARTBEAT_S, LEADER, MEMBERSHIP, Node, disk_of, monotonic
from walrus_node.metadata.raft.snapshots import Snapshots
from walrus_node.metadata.raft.voters import check_entries
from walrus_node.metadata.wire import BadFrameError, Message

BATCH_BYTES = 256 * 1024
BATCH_ENTRIES = 1_024
# A peer that takes no more is sent signs of life only.
UNSENT_BYTES_PAUSE = 4 * 1024 * 1024


class Replication(Snapshots):
    """The log is cut only where an entry of another term stands; an acknowledgement covers only what was compared."""

    # Sending

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802 - overrides PySyncObj
        self._SyncObj__newAppendEntriesTime = monotonic() + HEARTBEAT_S
        for node in self.peers & self.connected:
            self._send_entries(node, beat=True)

    def _send_entries(self, node: Node, *, beat: bool = False) -> None:
        """All that the peer lacks, as far as it takes it; with *beat* at least a sign of life."""
        while beat or self.next_index[node] <= self.last.index:
            next_index = self.next_index[node]
            previous_term = self.term_at(next_index - 1)
            if next_index <= self._journal.base.index or previous_term is None:
                self._send_piece(node)
                return
            pause = self._parts.hooks.unsent(node.id) > UNSENT_BYTES_PAUSE
            batch = [] if pause else self._batch(next_index)
            if not batch and not beat:
                return
            beat = False
            self.next_index[node] = next_index + len(batch)
            message = {
                "type": "append",
                "term": self.term,
                "commit": self.commit_index,
                "previous_index": next_index - 1,
                "previous_term": previous_term,
                "entries": batch,
            }
            if not self._send(node, message) or not batch:
                return

    def _batch(self, index: int) -> list[Entry]:
        start = index - self._journal.base.index
        batch: list[Entry] = []
        size = 0
        for entry in self._journal.entries(start, start + BATCH_ENTRIES):
            size += len(entry.command)
            if batch and size > BATCH_BYTES:
                break
            batch.append(entry)
        return batch

    def _on_append_reply(self, node: Node, message: Message) -> None:
        if self.role != LEADER or message["term"] != self.term or node not in self.peers:
            return
        self.heard_at[node] = monotonic()
        next_index, end = message["next_index"], self.last.index + 1
        if message["success"] and next_index > end:
            raise BadFrameError(f"entry {next_index - 1} is acknowledged, the log ends at {end - 1}")
        if message["success"]:
            self.match_index[node] = max(self.match_index[node], next_index - 1)
            self.next_index[node] = max(self.next_index[node], next_index)
            if next_index > self._snapshot_index:
                self._outgoing.pop(node, None)
        else:
            self.next_index[node] = max(self.match_index[node] + 1, min(next_index, end))
        if self.next_index[node] < end:
            self._send_entries(node)

    # Taking

    def _on_append(self, node: Node, message: Message) -> None:
        if message["term"] < self.term:
            self._reply(node, success=False, next_index=0)
            return
        if self.role == LEADER:
            raise BadFrameError(f"it claims to lead term {self.term}, which this node leads")
        entries = [Entry(*entry) for entry in message["entries"]]
        previous = message["previous_index"]
        check_entries(entries, previous)
        if self.told_voters and disk_of(node.id) in self.voters:
            self.introduce(frozenset())  # the log tells again
        self._follow(node)
        matched = previous + len(entries)
        base = self._journal.base.index
        if previous < base:
            # A late message: what the base covers is committed, so the leader's log agrees with it.
            entries = [entry for entry in entries if entry.index > base]
            matched = max(matched, base)
        elif self.term_at(previous) != message["previous_term"]:
            self._refuse(node, previous, message["previous_term"])
            return
        self._take(entries)
        # Only up to what was just compared: further entries of ours may be another leader's.
        commit = max(self.commit_index, min(message["commit"], matched))
        told_commit_only = not message["entries"] and commit > self.commit_index
        self.commit_index = commit
        self._SyncObj__leaderCommitIndex = message["commit"]
        if not told_commit_only:  # the leader has heard of these entries, and each of its beats is answered
            self._reply(node, success=True, next_index=matched + 1)

    def _refuse(self, node: Node, previous: int, previous_term: int) -> None:
        """Tell the leader where to look for the last entry in common: before the term that differs."""
        held = self.term_at(previous)
        if held is None:
            self._reply(node, success=False, next_index=self.last.index + 1)
            return
        if previous <= self.commit_index:
            raise DivergedError(
                f"entry {previous} is committed here in term {held}, metadata leader {node.id} has {previous_term}"
            )
        while previous > self.commit_index + 1 and self.term_at(previous - 1) == held:
            previous -= 1
        self._reply(node, success=False, next_index=previous)

    def _take(self, entries: list[Entry]) -> None:
        """Append what is missing; cut only where an entry of another term stands in its place. Durable on return."""
        voters_changed = False
        cut: Entry | None = None
        for entry in entries:
            held = self.term_at(entry.index)
            if held == entry.term:
                continue
            if held is not None:
                if entry.index <= self.commit_index:
                    raise DivergedError(f"entry {entry.index} is committed here in term {held}, not in {entry.term}")
                voters_changed |= any(gone.command[0] == MEMBERSHIP for gone in self.entries_from(entry.index))
                self._journal.cut(entry.index)
                cut = cut or entry
            self._journal.append(entry, commit=self.commit_index)
            voters_changed |= entry.command[0] == MEMBERSHIP
        self._journal.sync()
        if voters_changed:
            self._change_voters()
        if cut is not None:
            self._disappoint(cut)
