"""Proposals on their way: appended by the leader (many with one sync), forwarded by others, answered when applied."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from walrus_node.files import DataRefusedError
from walrus_node.metadata.journal import Entry
from walrus_node.metadata.raft.parts import Parts
from walrus_node.metadata.raft.pinned import LEADER, MEMBERSHIP, NO_OP, REGULAR, SUCCESS, Node, Waiter, monotonic
from walrus_node.metadata.raft.voters import Voters, decode_voters
from walrus_node.metadata.store import Applied, Rejected
from walrus_node.metadata.wire import FRAME_BYTES_MAX, Message

COMMAND_BYTES_MAX = 8 * 1024 * 1024
assert COMMAND_BYTES_MAX < FRAME_BYTES_MAX

# Called in the ticking thread with the result, or with `None` and why nobody knows it.
Answered = Callable[[Applied | Rejected | None, str], None]

_LEADER_CHANGED = "the metadata leader changed"


@dataclass(frozen=True)
class Proposal:
    """A command; it was proposed here (`answered`), or forwarded by another member under its number (`origin`)."""

    command: bytes
    answered: Answered | None
    origin: tuple[Node, int] | None = None


class Proposals(Voters):
    """Also applies: a proposer hears after the state that has its command was published."""

    def __init__(self, parts: Parts) -> None:
        self._proposals: deque[Proposal] = deque()
        self._forwarded: dict[int, tuple[Node, Answered]] = {}
        # An answer to a request of the process before must not be taken for one to a request of this one.
        self._next_request = random.getrandbits(60)
        self._decided: list[Callable[[], None]] = []
        # A leader appends nothing before this moment, while it lets another lead.
        self._appends_from = 0.0
        super().__init__(parts)

    def submit(self, kind: int, command: bytes, answered: Answered) -> None:
        """Propose; thread-safe."""
        self._proposals.append(Proposal(bytes([kind]) + command, answered))

    def _checkCommandsToApply(self) -> None:  # noqa: N802 - overrides PySyncObj
        """Append or forward what waits; without a leader, or while another is about to lead, it keeps waiting."""
        leader = self.leader
        if leader is None or not self._proposals or self._holds_back():
            return
        before = self.last.index
        for _ in range(len(self._proposals)):
            proposal = self._proposals.popleft()
            if self.role == LEADER:
                self._append_proposal(proposal)
            elif proposal.answered is not None:
                self._forward(leader, proposal.command, proposal.answered)
            elif proposal.origin is not None:
                self._answer_origin(proposal.origin, index=None)
        if self.last.index > before:
            # Followers write while this member syncs.
            self._SyncObj__sendAppendEntries()
            self._journal.sync()

    def _holds_back(self) -> bool:
        return bool(self.role == LEADER) and monotonic() < self._appends_from

    def _append_proposal(self, proposal: Proposal) -> None:
        """Durable only after the journal's sync, which the caller does for many."""
        changes_voters = proposal.command[0] == MEMBERSHIP
        if changes_voters and not self._may_change_voters(decode_voters(proposal.command[1:])):
            if proposal.answered is not None:
                proposal.answered(Rejected("membership_refused", "another change of the voters is under way"), "")
            return
        index = self.last.index + 1
        self._journal.append(Entry(proposal.command, index, self.term), commit=self.commit_index)
        if changes_voters:
            self._change_voters()
        if proposal.origin is not None:
            self._answer_origin(proposal.origin, index=index)
        if proposal.answered is not None:
            self.waiting_at(index).append((self.term, self._waiter(proposal.answered)))

    def _waiter(self, answered: Answered) -> Waiter:
        def decide(result: Applied | Rejected | None, reason: int) -> None:
            why = "" if reason == SUCCESS else _LEADER_CHANGED
            self._decided.append(lambda: answered(result, why))

        return decide

    # Forwarding

    def _forward(self, leader: Node, command: bytes, answered: Answered) -> None:
        if command[0] == MEMBERSHIP:
            answered(Rejected("not_leader", f"only the metadata leader {leader.id} changes the voters"), "")
            return
        self._next_request += 1
        self._forwarded[self._next_request] = (leader, answered)
        if not self._send(leader, {"type": "propose", "request": self._next_request, "command": command}):
            self._forget_forwarded(leader)

    def _on_propose(self, node: Node, message: Message) -> None:
        command, origin = message["command"], (node, message["request"])
        may = command and command[0] in (REGULAR, NO_OP) and len(command) <= COMMAND_BYTES_MAX
        if may and command[0] == REGULAR:
            # A newer member's: what this one does not understand must not be committed by it.
            may = self._machine.check(command[1:]) is None
        if may and self.role == LEADER:
            self._proposals.append(Proposal(command, None, origin))
        else:
            self._answer_origin(origin, index=None)

    def _answer_origin(self, origin: tuple[Node, int], *, index: int | None) -> None:
        """Tell who forwarded a proposal where it stands in the log; it waits there for the commit."""
        node, request = origin
        place = {"index": index or 0, "term": self.term if index else 0, "refused": index is None}
        self._send(node, {"type": "proposed", "request": request, **place})

    def _on_proposed(self, node: Node, message: Message) -> None:
        leader, answered = self._forwarded.pop(message["request"], (None, None))
        if answered is None or leader != node:
            return
        if message["refused"] or message["index"] <= self.applied_index:
            answered(None, _LEADER_CHANGED)
        else:
            self.waiting_at(message["index"]).append((message["term"], self._waiter(answered)))

    def _forget_forwarded(self, leader: Node | None) -> None:
        """Nobody will tell what became of what was forwarded (to this leader)."""
        for request, (to, answered) in list(self._forwarded.items()):
            if leader is None or to == leader:
                del self._forwarded[request]
                answered(None, _LEADER_CHANGED)

    def _disappoint(self, cut: Entry) -> None:
        """Tell whose entries stood in the place of this one, or behind it, in an older term: they do not come back."""
        for index in [index for index in self.waited_for() if index >= cut.index]:
            waiting = self.waiting_at(index)
            over = [waiter for term, waiter in waiting if term < cut.term]
            waiting[:] = [(term, waiter) for term, waiter in waiting if term >= cut.term]
            for waiter in over:
                waiter(None, SUCCESS + 1)
        self._tell_applied()

    # Applying

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802 - overrides PySyncObj
        """Apply what is committed, publish the state, then tell the proposers. True: followers should hear of it."""
        before = self.applied_index
        self._apply_committed()
        if self.applied_index == before:
            return False
        self._tell_applied()
        return True

    def _apply_committed(self) -> None:
        super()._SyncObj__applyLogEntries()

    def _tell_applied(self) -> None:
        self._parts.hooks.on_applied()
        decided, self._decided = self._decided, []
        for tell in decided:
            tell()

    def _SyncObj__doApplyCommand(self, command: bytes) -> Applied | Rejected:  # noqa: N802 - overrides PySyncObj
        kind = command[0]
        if kind == REGULAR:
            return self._machine.apply(command[1:])
        if kind in (NO_OP, MEMBERSHIP):
            return Applied(self._machine.version(), None)
        raise DataRefusedError(f"metadata entry of kind {kind} is unknown to this version; start a newer walrus-node")
