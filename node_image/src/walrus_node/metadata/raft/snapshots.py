"""Snapshots: taken in place of a long log, sent in pieces to a member that is far behind, checked, then installed."""

from __future__ import annotations

import logging
import random
import zlib
from dataclasses import dataclass
from functools import partial

from walrus_node.files import DataRefusedError
from walrus_node.metadata.raft.election import LEADERLESS_S, Election
from walrus_node.metadata.raft.parts import Parts
from walrus_node.metadata.raft.pinned import LEADER, SUCCESS, Node, monotonic
from walrus_node.metadata.reserve import is_no_space
from walrus_node.metadata.snapshot import Snapshot, load_snapshot, save_snapshot
from walrus_node.metadata.wire import BadFrameError, Message

log = logging.getLogger(__name__)

PIECE_BYTES = 256 * 1024
_NO_SPACE_PAUSE_S = 10
SNAPSHOT_BYTES_MAX = 1024 * 1024 * 1024


@dataclass
class _Outgoing:
    """On its way to one peer; the next piece leaves when the last one was acknowledged."""

    index: int
    content: bytes
    position: int = 0


@dataclass
class _Incoming:
    index: int
    size: int
    content: bytearray


class Snapshots(Election):
    """The state is small and lies in memory, so a snapshot is written in the ticking thread, without a fork."""

    def __init__(self, parts: Parts) -> None:
        self._outgoing: dict[Node, _Outgoing] = {}
        self._incoming: _Incoming | None = None
        self._snapshot_bytes = 0
        self._compaction_after = 0.0
        super().__init__(parts)

    def _load(self) -> None:
        """State, voters and indexes from disk."""
        snapshot = self._load_snapshot()
        if snapshot is not None:
            self._restore(snapshot)
            if self.term_at(snapshot.index) != snapshot.term:
                # Stopped between taking over a leader's snapshot and starting the log behind it.
                self._journal.compact(index=snapshot.index, term=snapshot.term)
            self._snapshot_index, self._snapshot_voters = snapshot.index, snapshot.voters
            self._snapshot_bytes = len(snapshot.state)
        votes = self._parts.disk.votes
        self._SyncObj__raftCurrentTerm = max(votes.term, self.last.term)
        voted = votes.term == self.term and votes.voted_for is not None
        self._SyncObj__votedForNodeId = str(votes.voted_for) if voted else None
        self._SyncObj__raftLastApplied = self._snapshot_index
        self._SyncObj__raftCommitIndex = max(self._snapshot_index, self._journal.commit_hint)
        self._adopt_voters()
        # What is known to be committed is read from the first moment on, also where no majority is.
        self._apply_committed()
        alone = self.is_voter and not self.other_voters
        self.election_deadline = monotonic() + (0.0 if alone else random.uniform(*LEADERLESS_S))  # noqa: S311

    def _load_snapshot(self) -> Snapshot | None:
        path, base = self._parts.disk.snapshot_path, self._journal.base.index
        snapshot = load_snapshot(path)
        remedy = "give this node an empty data directory and let it join again"
        if snapshot is None:
            if base > 0:
                raise DataRefusedError(f"metadata snapshot {path} is missing, the journal begins behind it; {remedy}")
        elif snapshot.cluster_id != self._parts.cluster_id:
            raise DataRefusedError(
                f"metadata snapshot {path} is of cluster {snapshot.cluster_id}, not {self._parts.cluster_id}; {remedy}"
            )
        elif snapshot.index < base:
            raise DataRefusedError(
                f"metadata snapshot {path} ends at entry {snapshot.index}, the journal begins at {base}; {remedy}"
            )
        return snapshot

    def _restore(self, snapshot: Snapshot) -> None:
        try:
            self._machine.restore(snapshot.state)
        except ValueError as error:
            raise DataRefusedError(
                f"metadata snapshot {self._parts.disk.snapshot_path} cannot be read: {error}; "
                "start a newer walrus-node, or give this node an empty data directory and let it join again"
            ) from None

    # Taking

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802 - overrides PySyncObj
        journal, limits = self._journal, self._parts.compaction
        bytes_max = max(limits.bytes, 2 * self._snapshot_bytes)
        if len(journal) <= limits.entries and journal.size_bytes <= bytes_max:
            return
        if self.applied_index - self._snapshot_index < min(limits.entries, len(journal)) // 2:
            return  # the log is long because little of it is applied: a snapshot would not shorten it
        applied, term = self.applied_index, self.term_at(self.applied_index)
        assert term is not None, "what was applied since the snapshot is in the log"
        if monotonic() < self._compaction_after:
            return
        state = self._machine.snapshot()
        kept_from = max(journal.base.index, applied - limits.entries_kept)
        kept_term = self.term_at(kept_from)
        assert kept_term is not None, "it lies between base and end"
        try:
            self._save(Snapshot(self._parts.cluster_id, applied, term, self._voters_at(applied), state))
            journal.compact(index=kept_from, term=kept_term)
        except OSError as error:
            if not is_no_space(error):
                raise
            self._compaction_after = monotonic() + _NO_SPACE_PAUSE_S
            log.warning("no space for a metadata snapshot: tried again in %d s", _NO_SPACE_PAUSE_S)
            return
        log.info("metadata snapshot at entry %d: %d bytes, checksum %08x", applied, len(state), zlib.crc32(state))

    def _save(self, snapshot: Snapshot) -> None:
        """Durable on return."""
        path, reserve = self._parts.disk.snapshot_path, self._parts.disk.reserve
        save = partial(save_snapshot, path, snapshot)
        reserve.spend(save) if reserve else save()
        self._snapshot_index, self._snapshot_voters = snapshot.index, snapshot.voters
        self._snapshot_bytes = len(snapshot.state)

    # Sending

    def _send_piece(self, node: Node) -> None:
        outgoing = self._outgoing.get(node)
        if outgoing is None or outgoing.index != self._snapshot_index:
            content = self._parts.disk.snapshot_path.read_bytes()
            outgoing = self._outgoing[node] = _Outgoing(self._snapshot_index, content)
        message = {
            "type": "snapshot",
            "term": self.term,
            "index": outgoing.index,
            "size": len(outgoing.content),
            "position": outgoing.position,
            "data": outgoing.content[outgoing.position : outgoing.position + PIECE_BYTES],
        }
        self._send(node, message)

    def _on_snapshot_reply(self, node: Node, message: Message) -> None:
        outgoing = self._outgoing.get(node)
        if self.role != LEADER or message["term"] != self.term or outgoing is None:
            return
        self.heard_at[node] = monotonic()
        if message["index"] == outgoing.index and outgoing.position < message["position"] <= len(outgoing.content):
            outgoing.position = message["position"]
            self._send_piece(node)

    # Receiving

    def _on_snapshot(self, node: Node, message: Message) -> None:
        if message["term"] < self.term:
            self._reply(node, success=False, next_index=0)
            return
        if self.role == LEADER:
            raise BadFrameError(f"it claims to lead term {self.term}, which this node leads")
        index, size, position = message["index"], message["size"], message["position"]
        if size > SNAPSHOT_BYTES_MAX:
            raise BadFrameError(f"a snapshot of {size} bytes is announced, {SNAPSHOT_BYTES_MAX} are allowed")
        self._follow(node)
        if index <= self.commit_index:
            self._reply(node, success=True, next_index=self.commit_index + 1)
            return
        if position == 0:
            self._incoming = _Incoming(index, size, bytearray())
        incoming = self._incoming
        if incoming is None or (incoming.index, incoming.size) != (index, size):
            return
        if position == len(incoming.content):
            incoming.content += message["data"]
        if len(incoming.content) < size:
            reply = {"type": "snapshot_reply", "term": self.term, "index": index, "position": len(incoming.content)}
            self._send(node, reply)
            return
        self._incoming = None
        if self._install(node, index, bytes(incoming.content)):
            self._reply(node, success=True, next_index=index + 1)

    def _install(self, node: Node, index: int, content: bytes) -> bool:
        """Take over a leader's snapshot: checked, made durable, then the log starts behind it."""
        try:
            snapshot = Snapshot.decode(content)
            if snapshot.cluster_id != self._parts.cluster_id:
                raise ValueError(f"it is of cluster {snapshot.cluster_id}")
            if snapshot.index != index:
                raise ValueError(f"it ends at entry {snapshot.index}, entry {index} was announced")
            self._machine.restore(snapshot.state)
        except ValueError as error:
            log.error("snapshot of metadata leader %s refused: %s", node.id, error)
            return False
        self._save(snapshot)
        self._journal.compact(index=snapshot.index, term=snapshot.term)
        self.commit_index = snapshot.index
        self._SyncObj__raftLastApplied = snapshot.index
        for index in [index for index in self._SyncObj__commandsWaitingCommit if index <= snapshot.index]:
            for _, waiter in self._SyncObj__commandsWaitingCommit.pop(index):
                waiter(None, SUCCESS + 1)
        self._change_voters()
        self._tell_applied()
        log.info("took over the metadata snapshot at entry %d from %s", snapshot.index, node.id)
        return True

    def _reply(self, node: Node, *, success: bool, next_index: int) -> None:
        """Answer an append or a snapshot; an acknowledgement counts only in the term it was given for."""
        reply = {"type": "append_reply", "term": self.term, "success": success, "next_index": next_index}
        self._send(node, reply)
