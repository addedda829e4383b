"""Electing: PySyncObj's election behind a question, with durable votes that are counted by voter."""

from __future__ import annotations

import logging
import random
from uuid import UUID

from walrus_node.metadata.raft.parts import Parts
from walrus_node.metadata.raft.pinned import CANDIDATE, ELECTION_S, FOLLOWER, LEADER, Node, disk_of, monotonic
from walrus_node.metadata.raft.proposals import Proposals
from walrus_node.metadata.wire import Message

log = logging.getLogger(__name__)

# Where nobody is believed to lead, waiting protects nothing: only the split of votes is to be avoided.
LEADERLESS_S = (0.15, 0.6)
LEADER_LOST_S = (0.03, 0.25)
# While another is to lead, this leader appends nothing for so long: who lacks its last entry loses the vote.
HANDED_OVER_S = 0.5
# A peer that has not answered for so many beats is as good as gone, though its connection is open: it may be frozen.
SILENT_S = 2.0


class Election(Proposals):
    """Before the term grows, a majority must say that it misses the leader too: who was cut off disturbs nobody."""

    def __init__(self, parts: Parts) -> None:
        self._votes_for_me: set[Node] = set()
        self._would_vote: set[Node] = set()
        self._may_stand = False
        # By the leader itself, whose appends are still on their way: they do not take it back.
        self._told_to_stand = False
        self._leader_heard_at = -ELECTION_S[1]
        # Whether this leader is to let somebody lead, and whom.
        self._transferring: tuple[UUID | None] | None = None
        super().__init__(parts)

    def _ask_before_standing(self) -> None:
        due = self.role != LEADER and monotonic() > self.election_deadline
        if not due or not self.is_voter or not self.other_voters or self._may_stand:
            return
        self.leader = None
        self.election_deadline = monotonic() + self._SyncObj__generateRaftTimeout()
        self._would_vote = {self._me}
        question = {
            "type": "ask_vote",
            "term": self.term + 1,
            "last_log_index": self.last.index,
            "last_log_term": self.last.term,
        }
        for node in self.other_voters:
            self._send(node, question)

    def _on_ask_vote(self, node: Node, message: Message) -> None:
        hears_leader = self.leader == self._me or monotonic() - self._leader_heard_at < ELECTION_S[0]
        if self.leader not in (None, node) and hears_leader:
            return
        # Whether this disk votes is the candidate's to say, which may know of a change that has not come here yet: the
        # candidate counts its own voters only. Ongaro, "Consensus: Bridging Theory and Practice", 4.2.2.
        if message["term"] > self.term and self._is_up_to_date(message):
            self._send(node, {"type": "would_vote", "term": message["term"]})

    def _on_would_vote(self, node: Node, message: Message) -> None:
        if self.role == LEADER or message["term"] != self.term + 1 or self.leader is not None:
            return
        self._would_vote.add(node)
        if self._is_majority(self._would_vote):
            self._would_vote = set()
            self._may_stand = True
            self.election_deadline = 0.0

    def transfer(self, to: UUID | None) -> None:
        """Let another voter lead; thread-safe. What is proposed here waits for that, for a moment at most."""
        self._appends_from = monotonic() + HANDED_OVER_S
        self._transferring = (to,)

    def _hand_over(self) -> None:
        """Tell a voter that holds everything to stand, without a question: it would lose the vote otherwise."""
        if self._transferring is None:
            return
        if self.role != LEADER:
            self._transferring = None
            return
        (to,) = self._transferring
        able = [
            node
            for node in self.other_voters & self.connected
            if to in (None, disk_of(node.id)) and self.hears(node) and self.match_index.get(node) == self.last.index
        ]
        if able:
            self._transferring = None
            self._appends_from = monotonic() + HANDED_OVER_S
            self._send(max(able, key=lambda node: self.heard_at[node]), {"type": "stand", "term": self.term})

    def _on_stand(self, node: Node, message: Message) -> None:
        if self.is_voter and node == self.leader and message["term"] == self.term:
            self._may_stand = self._told_to_stand = True
            self.election_deadline = 0.0

    def hears(self, node: Node) -> bool:
        """Whether a peer of this leader has answered within the time after which the leader itself would be missed."""
        return monotonic() - self.heard_at.get(node, 0.0) < SILENT_S

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802 - overrides PySyncObj
        """PySyncObj stands for election only where this is true and its deadline has passed."""
        may_stand, self._may_stand, self._told_to_stand = self._may_stand, False, False
        return may_stand or not self.other_voters

    def _on_request_vote(self, node: Node, message: Message) -> None:
        if message["term"] < self.term or self.role == LEADER:
            return
        if self.voted_for not in (None, node.id) or not self._is_up_to_date(message):
            return
        self.set_term(self.term, node)
        self.election_deadline = monotonic() + self._SyncObj__generateRaftTimeout()
        self._send(node, {"type": "vote", "term": self.term})

    def _on_vote(self, node: Node, message: Message) -> None:
        if self.role != CANDIDATE or message["term"] != self.term:
            return
        self._votes_for_me.add(node)
        if self._is_majority(self._votes_for_me):
            self._SyncObj__onBecomeLeader()

    def _is_up_to_date(self, message: Message) -> bool:
        return (message["last_log_term"], message["last_log_index"]) >= (self.last.term, self.last.index)

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802 - overrides PySyncObj
        return random.uniform(*(LEADERLESS_S if self.leader is None else ELECTION_S))  # noqa: S311

    def _SyncObj__setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Durable before anything is said about it. A vote for oneself starts the count."""
        super()._SyncObj__setCurrentTerm(term, votedForNodeId)
        self._told_to_stand = False
        self._votes_for_me = {self._me} if votedForNodeId == self._me.id else set()

    def _SyncObj__onBecomeLeader(self) -> None:  # noqa: N802
        # What peers acknowledged to an earlier leadership of this node may be gone since.
        self.next_index.clear()
        self.match_index.clear()
        super()._SyncObj__onBecomeLeader()
        self._journal.sync()
        log.info("metadata leader of term %d", self.term)

    def _SyncObj__onLeaderChanged(self) -> None:  # noqa: N802
        self._forget_forwarded(None)

    def _follow(self, leader: Node | None) -> None:
        """Be a follower, of this leader if there is one."""
        if self.leader != leader:
            self._forget_forwarded(None)
        if self.role == LEADER:
            self.election_deadline = monotonic() + random.uniform(*ELECTION_S)  # noqa: S311
            log.info("no longer metadata leader, term is %d", self.term)
        self.leader = leader
        self._SyncObj__setState(FOLLOWER)
        if leader is not None:
            self._leader_heard_at = monotonic()
        if leader is not None and not self._told_to_stand:
            self._may_stand = False
            self.election_deadline = monotonic() + self._SyncObj__generateRaftTimeout()

    def _miss_leader(self) -> None:
        """Its connection closed: ask the others soon."""
        self.leader = None
        self.election_deadline = monotonic() + random.uniform(*LEADER_LOST_S)  # noqa: S311
