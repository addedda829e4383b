"""A Raft member: the roles together, messages to their handlers, time to what is due."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from walrus_node.metadata.raft.parts import Parts
from walrus_node.metadata.raft.pinned import LEADER, Node, disk_of, monotonic
from walrus_node.metadata.raft.replication import Replication
from walrus_node.metadata.store import Member, Status
from walrus_node.metadata.wire import BadFrameError, Message

_ROLE_NAMES = ("follower", "candidate", "leader")
_NOTHING_DUE_S = 60.0
# What only voters say. What is asked of, or told to, a leader may come from any member.
_CLAIMS = frozenset({"ask_vote", "request_vote", "append", "snapshot", "stand"})
# No election raises the term by more than one. Whoever were to raise it to its end would end all elections.
TERM_STEP_MAX = 2**32


class Raft(Replication):
    """Voter or observer. Everything but `submit` and `status` runs in the thread that calls `tick`."""

    def __init__(self, parts: Parts) -> None:
        """Reads the disk; raises `DataRefusedError`."""
        self._handlers: Mapping[str, Callable[[Node, Message], None]] = {
            "ask_vote": self._on_ask_vote,
            "would_vote": self._on_would_vote,
            "stand": self._on_stand,
            "request_vote": self._on_request_vote,
            "vote": self._on_vote,
            "append": self._on_append,
            "append_reply": self._on_append_reply,
            "snapshot": self._on_snapshot,
            "snapshot_reply": self._on_snapshot_reply,
            "propose": self._on_propose,
            "proposed": self._on_proposed,
        }
        super().__init__(parts)
        self._load()

    def tick(self, timeout_s: float) -> None:
        """Do what is due, then wait for messages or a wake, at most so long."""
        self._hand_over()
        self._ask_before_standing()
        self._onTick(timeout_s)

    def _due_in_s(self) -> float:
        now = monotonic()
        if self._proposals and self.leader is not None and not self._holds_back():
            return 0.0
        if self.role == LEADER:
            if not self.other_voters and self.last.index > self.commit_index:
                return 0.0
            due_at = float(self._SyncObj__newAppendEntriesTime) if self.peers else now + _NOTHING_DUE_S
            if self._proposals:
                due_at = min(due_at, self._appends_from)
            return max(0.0, due_at - now)
        return max(0.0, self.election_deadline - now) if self.is_voter else _NOTHING_DUE_S

    def receive(self, peer: str, message: Message) -> None:
        """Handle one checked message of a connected peer.

        Raises `BadFrameError` for one that no member of this version sends: nothing was changed, or only the term.
        """
        node = Node(peer)
        kind = message["type"]
        term = message.get("term", 0)
        if term > self.term + TERM_STEP_MAX:
            raise BadFrameError(f"term {term} is too far from term {self.term} of this node")
        if kind in _CLAIMS and not self._may_lead(node):
            return
        # Whoever raises the term ends a leadership: an observer that is ahead waits for the next election.
        is_voters = kind in _CLAIMS or node in self.other_voters
        # The terms of these are not the sender's.
        if is_voters and kind not in ("ask_vote", "would_vote", "proposed") and term > self.term:
            self.set_term(term, None)
            self._follow(None)
        self._handlers[kind](node, message)

    def peer_connected(self, peer: str) -> None:
        """A connection is there; what the peer holds is not known any more."""
        node = Node(peer)
        self.connected.add(node)
        if node not in self.other_voters:
            self._SyncObj__readonlyNodes.add(node)
        self._outgoing.pop(node, None)
        self._expect_anything(node)

    def peer_disconnected(self, peer: str) -> None:
        """The connection is gone, with all that was under way on it."""
        node = Node(peer)
        self.connected.discard(node)
        self._SyncObj__readonlyNodes.discard(node)
        if node not in self.other_voters:
            self.next_index.pop(node, None)
            self.match_index.pop(node, None)
        self._outgoing.pop(node, None)
        self._forget_forwarded(node)
        if node == self.leader:
            self._miss_leader()

    def status(self) -> Status:
        """Thread-safe: everything it looks at is replaced or copied as a whole."""
        leader, last, leads = self.leader, self.last, self.role == LEADER
        connected, matched = set(self.connected), dict(self.match_index)
        disks = self.voters | {disk_of(node.id) for node in connected} | {disk_of(self._me.id)}
        members = []
        for disk in sorted(disks):
            node = Node(str(disk))
            mine = node == self._me
            lag = 0 if mine else max(0, last.index - matched.get(node, 0))
            there = mine or (node in connected and (not leads or self.hears(node)))
            members.append(Member(disk, disk in self.voters, there, lag if leads else None))
        return Status(
            state=_ROLE_NAMES[self.role] if self.is_voter else "observer",
            term=self.term,
            leader=disk_of(leader.id) if leader is not None else None,
            commit_index=self.commit_index,
            applied_index=self.applied_index,
            last_index=last.index,
            members=tuple(members),
            version=self._machine.version(),
            failure=None,
            last_term=last.term,
        )
