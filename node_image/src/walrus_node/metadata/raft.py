"""Raft by PySyncObj, hardened: the only file that imports it. One pinned subclass, private methods included.

PySyncObj's election, commit rule, applying and stepping down are kept. Replaced, because they lose acknowledged entries
or trust what arrives: the log (`journal`), term and vote (`votes`), snapshots, the handling of messages, the sending of
entries, membership, the transport, every use of pickle. Added: who would stand for election first asks whether others
miss the leader too, and a closed connection to the leader makes it ask at once.
"""

from __future__ import annotations

import logging
import random
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import pysyncobj.version
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf
from pysyncobj import syncobj as pysyncobj_module
from pysyncobj.monotonic import monotonic
from pysyncobj.node import Node
from pysyncobj.transport import Transport as TransportInterface

from walrus_node.files import DataRefusedError
from walrus_node.metadata.journal import Entry, Journal
from walrus_node.metadata.snapshot import Snapshot, load_snapshot, save_snapshot
from walrus_node.metadata.store import Applied, Member, Rejected, StateMachine, Status
from walrus_node.metadata.votes import Votes
from walrus_node.metadata.wire import FRAME_BYTES_MAX, Message

log = logging.getLogger(__name__)

PINNED_VERSION = "0.3.17"

HEARTBEAT_SECONDS = 0.25
ELECTION_SECONDS = (1.0, 2.0)
# Where nobody is believed to lead, waiting protects nothing: only the split of votes is to be avoided.
LEADERLESS_ELECTION_SECONDS = (0.15, 0.6)
LEADER_LOST_SECONDS = (0.03, 0.25)
LEADER_WITHOUT_QUORUM_SECONDS = 2.0
COMMAND_BYTES_MAX = 8 * 1024 * 1024
BATCH_BYTES = 256 * 1024
PIECE_BYTES = 256 * 1024
UNSENT_BYTES_PAUSE = 4 * 1024 * 1024
SNAPSHOT_BYTES_MAX = 1024 * 1024 * 1024

REGULAR, NO_OP, MEMBERSHIP = 0, 1, 2
_FOLLOWER, _CANDIDATE, _LEADER = 0, 1, 2
_STATE_NAMES = ("follower", "candidate", "leader")

assert COMMAND_BYTES_MAX < FRAME_BYTES_MAX

Answered = Callable[[Applied | Rejected | None, str], None]


class DivergedError(Exception):
    """This node holds as committed what the leader does not: it must stop before it does harm."""


@dataclass
class Compaction:
    """When a snapshot replaces the log, and how many entries stay for followers that are a little behind."""

    entries: int = 8_192
    bytes: int = 8 * 1024 * 1024
    entries_kept: int = 1_024


@dataclass(frozen=True)
class Disk:
    """The durable parts of a member."""

    journal: Journal
    votes: Votes
    snapshot_path: Path


class _NoPickle:
    """PySyncObj's pickle, taken out: the subclass reaches none of its uses, and nothing else may."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"pickle.{name} must not be used on Raft data")


class _Log:
    """The journal and the votes, in the shape that PySyncObj asks for."""

    def __init__(self, disk: Disk, commit: Callable[[], int]) -> None:
        self._journal = disk.journal
        self._votes = disk.votes
        self._commit = commit

    def add(self, command: bytes, idx: int, term: int) -> None:
        self._journal.append(Entry(command, idx, term), commit=self._commit())

    def __len__(self) -> int:
        return len(self._journal)

    def __getitem__(self, place: int | slice) -> Entry | list[Entry]:
        if isinstance(place, slice):
            return self._journal.entries(place.start, place.stop)
        return self._journal[place]

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803 - PySyncObj's names
        self._votes.record(term, UUID(votedForNodeId) if votedForNodeId else None)

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        """Nothing to do: each entry carries the commit index known when it was written."""

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Nothing waits to be saved."""


class _Wiring(TransportInterface):  # type: ignore[misc] # PySyncObj has no types
    """PySyncObj's side of the transport: its nodes are disks."""

    def __init__(self, send: Callable[[str, Message], bool]) -> None:
        super().__init__(None, None, ())
        self._send_to = send

    def send(self, node: Node, message: Message) -> bool:
        return self._send_to(node.id, message)


@dataclass
class _Proposal:
    command: bytes
    answered: Answered | None
    # Who forwarded it, and under which number.
    origin: tuple[Node, int] | None = None


@dataclass
class _Outgoing:
    """A snapshot on its way to one peer; the next piece leaves when the last one was acknowledged."""

    index: int
    content: bytes
    position: int = 0


@dataclass
class _Incoming:
    index: int
    size: int
    content: bytearray


class Raft(SyncObj):  # type: ignore[misc] # PySyncObj has no types
    """One member, voter or observer. Everything but `submit` and `status` runs in the thread that calls `tick`."""

    def __init__(
        self,
        me: UUID,
        cluster_id: UUID,
        disk: Disk,
        machine: StateMachine[object],
        send: Callable[[str, Message], bool],
        unsent: Callable[[str], int],
        poll: Callable[[float], None],
        compaction: Compaction,
        *,
        on_applied: Callable[[], None],
        on_voters_changed: Callable[[], None],
    ) -> None:
        if pysyncobj.version.VERSION != PINNED_VERSION:
            raise RuntimeError(f"PySyncObj {PINNED_VERSION} is needed, {pysyncobj.version.VERSION} is installed")
        pysyncobj_module.pickle = _NoPickle()
        self._me = Node(str(me))
        self._cluster_id = cluster_id
        self._disk = disk
        self._machine = machine
        self._unsent = unsent
        self._wait = poll
        self._compaction = compaction
        self._on_applied = on_applied
        self._on_voters_changed = on_voters_changed
        self._voters: frozenset[UUID] = frozenset()
        self._proposals: deque[_Proposal] = deque()
        self._forwarded: dict[int, tuple[Node, Answered]] = {}
        self._next_request = 0
        self._decided: list[Callable[[], None]] = []
        self._votes_for_me: set[Node] = set()
        self._would_vote: set[Node] = set()
        self._may_stand = False
        self._leader_heard_at = -ELECTION_SECONDS[1]
        self._outgoing: dict[Node, _Outgoing] = {}
        self._incoming: _Incoming | None = None
        self._snapshot_bytes = 0
        self._SyncObj__raftLeader: Node | None = None
        self._SyncObj__raftElectionDeadline = 0.0
        super().__init__(None, (), _configuration(), transport=_Wiring(send))
        self._poller = self
        self._SyncObj__raftLog = _Log(disk, lambda: self._commit_index)
        self._SyncObj__needLoadDumpFile = False
        self._load()

    # What the store calls

    def submit(self, kind: int, command: bytes, answered: Answered) -> None:
        """Propose; thread-safe. *answered* is called in the ticking thread, with `None` where nobody knows."""
        self._proposals.append(_Proposal(bytes([kind]) + command, answered))

    def tick(self, seconds_max: float) -> None:
        """Do what is due, then wait for messages or a wake, at most so long."""
        self._ask_before_standing()
        self._onTick(seconds_max)

    def poll(self, seconds_max: float) -> None:
        """The end of PySyncObj's tick: wait for messages, for a wake, or for what is due next."""
        self._wait(min(seconds_max, self._seconds_until_due()))

    def status(self) -> Status:
        leader: Node | None = self._SyncObj__raftLeader
        last = self._last.index
        is_leader = self._raft_state == _LEADER
        known = self._voters | {UUID(node.id) for node in list(self._SyncObj__connectedNodes)}
        matched = dict(self._SyncObj__raftMatchIndex)
        members = []
        for disk in sorted(known | {UUID(self._me.id)}):
            node = Node(str(disk))
            mine = node == self._me
            lag = 0 if mine else max(0, last - matched.get(node, 0))
            connected = mine or node in self._SyncObj__connectedNodes
            members.append(Member(disk, disk in self._voters, connected, lag if is_leader else None))
        return Status(
            state=_STATE_NAMES[self._raft_state] if self._is_voter else "observer",
            term=self._SyncObj__raftCurrentTerm,
            leader=UUID(leader.id) if leader is not None else None,
            commit_index=self._commit_index,
            applied_index=self._SyncObj__raftLastApplied,
            last_index=last,
            members=tuple(members),
            version=self._machine.version(),
            failure=None,
        )

    @property
    def voters(self) -> frozenset[UUID]:
        return self._voters

    # What the transport calls

    def peer_connected(self, peer: str) -> None:
        node = Node(peer)
        self._SyncObj__connectedNodes.add(node)
        if node not in self._SyncObj__otherNodes:
            self._SyncObj__readonlyNodes.add(node)
        self._expect_anything(node)

    def peer_disconnected(self, peer: str) -> None:
        node = Node(peer)
        self._SyncObj__connectedNodes.discard(node)
        self._SyncObj__readonlyNodes.discard(node)
        if node not in self._SyncObj__otherNodes:
            self._SyncObj__raftNextIndex.pop(node, None)
            self._SyncObj__raftMatchIndex.pop(node, None)
        self._outgoing.pop(node, None)
        self._forget_forwarded(node)
        if node == self._SyncObj__raftLeader and self._raft_state != _LEADER:
            self._SyncObj__raftLeader = None
            self._SyncObj__raftElectionDeadline = monotonic() + random.uniform(*LEADER_LOST_SECONDS)  # noqa: S311

    def receive(self, peer: str, message: Message) -> None:
        """Handle one checked message of a connected peer."""
        node = Node(peer)
        kind = message["type"]
        if kind == "ask_vote":
            self._on_ask_vote(node, message)
            return
        if message.get("term", 0) > self._term and kind not in ("would_vote", "proposed"):
            self._SyncObj__setCurrentTerm(message["term"], None)
            self._follow(None)
        {
            "would_vote": self._on_would_vote,
            "request_vote": self._on_request_vote,
            "vote": self._on_vote,
            "append": self._on_append,
            "append_reply": self._on_append_reply,
            "snapshot": self._on_snapshot,
            "snapshot_reply": self._on_snapshot_reply,
            "propose": self._on_propose,
            "proposed": self._on_proposed,
        }[kind](node, message)

    # Starting

    def _load(self) -> None:
        """State, voters and indexes from disk. Addresses and voters come from the log alone, never from a dump."""
        journal = self._disk.journal
        snapshot = load_snapshot(self._disk.snapshot_path)
        if snapshot is None:
            if journal.base.index > 0:
                raise DataRefusedError(
                    f"metadata snapshot {self._disk.snapshot_path} is missing, and the journal begins behind it; "
                    "give this node an empty data directory and let it join again"
                )
        else:
            if snapshot.cluster_id != self._cluster_id:
                raise DataRefusedError(
                    f"metadata snapshot {self._disk.snapshot_path} is of cluster {snapshot.cluster_id}, "
                    f"not of {self._cluster_id}"
                )
            if snapshot.index < journal.base.index:
                raise DataRefusedError(
                    f"metadata snapshot {self._disk.snapshot_path} ends at entry {snapshot.index}, the journal begins "
                    f"at {journal.base.index}; give this node an empty data directory and let it join again"
                )
            self._restore(snapshot)
            if self._term_at(snapshot.index) != snapshot.term:
                # Stopped between taking over a leader's snapshot and starting the log behind it.
                journal.compact(index=snapshot.index, term=snapshot.term)
        base = snapshot.index if snapshot else 0
        self._snapshot_bytes = len(snapshot.state) if snapshot else 0
        self._SyncObj__raftCurrentTerm = max(self._disk.votes.term, self._last.term)
        self._SyncObj__votedForNodeId = None
        if self._disk.votes.term == self._term and self._disk.votes.voted_for is not None:
            self._SyncObj__votedForNodeId = str(self._disk.votes.voted_for)
        self._SyncObj__raftLastApplied = base
        self._SyncObj__raftCommitIndex = max(base, journal.commit_hint)
        self._snapshot_voters = snapshot.voters if snapshot else frozenset()
        self._snapshot_index = base
        self._adopt_voters()
        alone = self._is_voter and not self._SyncObj__otherNodes
        wait = 0.0 if alone else random.uniform(*LEADERLESS_ELECTION_SECONDS)  # noqa: S311
        self._SyncObj__raftElectionDeadline = monotonic() + wait

    def _restore(self, snapshot: Snapshot) -> None:
        try:
            self._machine.restore(snapshot.state)
        except ValueError as error:
            raise DataRefusedError(
                f"metadata snapshot {self._disk.snapshot_path} cannot be read: {error}; "
                "start a newer walrus-node, or give this node an empty data directory and let it join again"
            ) from None

    # Names for PySyncObj's private fields

    @property
    def _term(self) -> int:
        return int(self._SyncObj__raftCurrentTerm)

    @property
    def _raft_state(self) -> int:
        return int(self._SyncObj__raftState)

    @property
    def _commit_index(self) -> int:
        return int(self._SyncObj__raftCommitIndex)

    @property
    def _last(self) -> Entry:
        return self._disk.journal.last

    @property
    def _is_voter(self) -> bool:
        return self._SyncObj__selfNode is not None

    def _term_at(self, index: int) -> int | None:
        """Term of an entry that the log holds (its base included)."""
        place = index - self._disk.journal.base.index
        return self._disk.journal[place].term if 0 <= place < len(self._disk.journal) else None

    # Time

    def _seconds_until_due(self) -> float:
        now: float = monotonic()
        if self._proposals and self._SyncObj__raftLeader is not None:
            return 0.0
        if self._raft_state == _LEADER:
            alone = not self._SyncObj__otherNodes
            if alone and self._last.index > self._commit_index:
                return 0.0
            return max(0.0, self._SyncObj__newAppendEntriesTime - now) if self._peers() else 60.0
        if self._is_voter:
            return max(0.0, self._SyncObj__raftElectionDeadline - now)
        return 60.0

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802 - overrides PySyncObj
        leaderless = self._SyncObj__raftLeader is None
        return random.uniform(*(LEADERLESS_ELECTION_SECONDS if leaderless else ELECTION_SECONDS))  # noqa: S311

    # Electing

    def _ask_before_standing(self) -> None:
        """Before the term grows, a majority must say that it misses the leader too: who was cut off disturbs nobody."""
        due = self._raft_state != _LEADER and monotonic() > self._SyncObj__raftElectionDeadline
        if not due or not self._is_voter or not self._SyncObj__otherNodes:
            return
        if self._may_stand:
            return
        self._SyncObj__raftLeader = None
        self._SyncObj__raftElectionDeadline = monotonic() + self._SyncObj__generateRaftTimeout()
        self._would_vote = {self._me}
        question = {
            "type": "ask_vote",
            "term": self._term + 1,
            "last_log_index": self._last.index,
            "last_log_term": self._last.term,
        }
        for node in self._SyncObj__otherNodes:
            self._SyncObj__transport.send(node, question)

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802
        """PySyncObj stands for election only where this is true and its deadline has passed."""
        may_stand, self._may_stand = self._may_stand, False
        return may_stand or not self._SyncObj__otherNodes

    def _on_ask_vote(self, node: Node, message: Message) -> None:
        leader = self._SyncObj__raftLeader
        if leader is not None and (leader == self._me or monotonic() - self._leader_heard_at < ELECTION_SECONDS[0]):
            return
        if self._is_voter and message["term"] > self._term and self._is_up_to_date(message):
            self._SyncObj__transport.send(node, {"type": "would_vote", "term": message["term"]})

    def _on_would_vote(self, node: Node, message: Message) -> None:
        if self._raft_state == _LEADER or message["term"] != self._term + 1 or self._SyncObj__raftLeader is not None:
            return
        self._would_vote.add(node)
        if self._is_majority(self._would_vote):
            self._would_vote = set()
            self._may_stand = True
            self._SyncObj__raftElectionDeadline = 0.0

    def _on_request_vote(self, node: Node, message: Message) -> None:
        if not self._is_voter or message["term"] < self._term or self._raft_state == _LEADER:
            return
        if self._SyncObj__votedForNodeId not in (None, node.id) or not self._is_up_to_date(message):
            return
        self._SyncObj__setCurrentTerm(self._term, node.id)
        self._SyncObj__raftElectionDeadline = monotonic() + self._SyncObj__generateRaftTimeout()
        self._SyncObj__transport.send(node, {"type": "vote", "term": self._term})

    def _on_vote(self, node: Node, message: Message) -> None:
        if self._raft_state != _CANDIDATE or message["term"] != self._term:
            return
        self._votes_for_me.add(node)
        if self._is_majority(self._votes_for_me):
            self._SyncObj__onBecomeLeader()

    def _is_up_to_date(self, message: Message) -> bool:
        return (message["last_log_term"], message["last_log_index"]) >= (self._last.term, self._last.index)

    def _is_majority(self, nodes: set[Node]) -> bool:
        return 2 * len({UUID(node.id) for node in nodes} & self._voters) > len(self._voters)

    def _SyncObj__setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Durable before anything is said about it. A vote for oneself starts the count."""
        super()._SyncObj__setCurrentTerm(term, votedForNodeId)
        self._votes_for_me = {self._me} if votedForNodeId == self._me.id else set()

    def _SyncObj__onBecomeLeader(self) -> None:  # noqa: N802
        # What peers acknowledged to an earlier leadership of this node may be gone since.
        self._SyncObj__raftNextIndex.clear()
        self._SyncObj__raftMatchIndex.clear()
        self._outgoing.clear()
        super()._SyncObj__onBecomeLeader()
        self._disk.journal.sync()
        log.info("metadata leader of term %d", self._term)

    def _SyncObj__onLeaderChanged(self) -> None:  # noqa: N802
        self._forget_forwarded(None)

    def _follow(self, leader: Node | None) -> None:
        if self._SyncObj__raftLeader != leader:
            self._forget_forwarded(None)
        if self._raft_state == _LEADER:
            self._SyncObj__raftElectionDeadline = monotonic() + random.uniform(*ELECTION_SECONDS)  # noqa: S311
            log.info("no longer metadata leader, term is %d", self._term)
        self._SyncObj__raftLeader = leader
        self._SyncObj__setState(_FOLLOWER)
        if leader is not None:
            self._may_stand = False
            self._leader_heard_at = monotonic()
            self._SyncObj__raftElectionDeadline = monotonic() + self._SyncObj__generateRaftTimeout()

    # Following

    def _on_append(self, node: Node, message: Message) -> None:
        if message["term"] < self._term:
            self._reply(node, success=False, next_index=0)
            return
        if self._raft_state == _LEADER:
            raise DivergedError(f"{node.id} leads term {self._term}, and so does this node")
        self._follow(node)
        entries = [Entry(*entry) for entry in message["entries"]]
        previous = message["previous_index"]
        if any(entry.index != previous + place for place, entry in enumerate(entries, 1)):
            raise DivergedError(f"metadata leader {node.id} sent entries with a gap behind {previous}")
        matched = previous + len(entries)
        base = self._disk.journal.base.index
        if previous < base:
            # A late message: what the base covers is committed, so the leader's log agrees with it.
            entries = [entry for entry in entries if entry.index > base]
            matched = max(matched, base)
        elif self._term_at(previous) != message["previous_term"]:
            self._refuse(node, previous, message["previous_term"])
            return
        self._take(entries)
        if message["commit"] > self._commit_index:
            # Only up to what was just compared: further entries of ours may be another leader's.
            self._SyncObj__raftCommitIndex = max(self._commit_index, min(message["commit"], matched))
        self._SyncObj__leaderCommitIndex = message["commit"]
        self._reply(node, success=True, next_index=matched + 1)

    def _refuse(self, node: Node, previous: int, previous_term: int) -> None:
        """Tell the leader where to look for the last entry in common."""
        if previous <= self._commit_index and previous <= self._last.index:
            raise DivergedError(
                f"entry {previous} is committed here in term {self._term_at(previous)}, "
                f"metadata leader {node.id} has it in term {previous_term}"
            )
        next_index = min(previous, self._last.index + 1)
        conflicting = self._term_at(next_index)
        while next_index > self._commit_index + 1 and self._term_at(next_index - 1) == conflicting is not None:
            next_index -= 1
        self._reply(node, success=False, next_index=next_index)

    def _take(self, entries: list[Entry]) -> None:
        """Append what is missing; cut only where an entry of another term stands in its place. Durable on return."""
        voters_changed = False
        for entry in entries:
            held = self._term_at(entry.index)
            if held == entry.term:
                continue
            if held is not None:
                if entry.index <= self._commit_index:
                    raise DivergedError(f"entry {entry.index} is committed here in term {held}, not in {entry.term}")
                voters_changed |= any(cut.command[0] == MEMBERSHIP for cut in self._entries_from(entry.index))
                self._disk.journal.cut(entry.index)
            self._disk.journal.append(entry, commit=self._commit_index)
            voters_changed |= entry.command[0] == MEMBERSHIP
        self._disk.journal.sync()
        if voters_changed:
            self._change_voters()

    def _entries_from(self, index: int) -> list[Entry]:
        return self._disk.journal.entries(max(1, index - self._disk.journal.base.index))

    def _reply(self, node: Node, *, success: bool, next_index: int) -> None:
        """An acknowledgement counts only in the term it was given for."""
        reply = {"type": "append_reply", "term": self._term, "success": success, "next_index": next_index}
        self._SyncObj__transport.send(node, reply)

    # Leading

    def _on_append_reply(self, node: Node, message: Message) -> None:
        if self._raft_state != _LEADER or message["term"] != self._term or node not in self._peers():
            return
        self._SyncObj__lastResponseTime[node] = monotonic()
        next_index = message["next_index"]
        if next_index > self._last.index + 1:
            if message["success"]:
                raise DivergedError(
                    f"{node.id} acknowledges entry {next_index - 1}, the log ends at {self._last.index}"
                )
            next_index = self._last.index + 1
        matched = self._SyncObj__raftMatchIndex.get(node, 0)
        if message["success"]:
            self._SyncObj__raftMatchIndex[node] = max(matched, next_index - 1)
            self._SyncObj__raftNextIndex[node] = max(self._SyncObj__raftNextIndex.get(node, 0), next_index)
            if next_index > self._snapshot_index:
                self._outgoing.pop(node, None)
        else:
            self._SyncObj__raftNextIndex[node] = max(matched + 1, next_index)
        if self._SyncObj__raftNextIndex[node] <= self._last.index:
            self._send_entries(node)

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        self._SyncObj__newAppendEntriesTime = monotonic() + HEARTBEAT_SECONDS
        for node in self._peers():
            if node in self._SyncObj__connectedNodes:
                self._send_entries(node, beat=True)

    def _send_entries(self, node: Node, *, beat: bool = False) -> None:
        """All that the peer lacks, as far as it takes it; with *beat* at least a sign of life."""
        base = self._disk.journal.base.index
        while beat or self._SyncObj__raftNextIndex[node] <= self._last.index:
            next_index = self._SyncObj__raftNextIndex[node]
            if next_index <= base or self._term_at(next_index - 1) is None:
                self._send_piece(node)
                return
            batch = [] if self._unsent(node.id) > UNSENT_BYTES_PAUSE else self._batch(next_index)
            if not batch and not beat:
                return
            beat = False
            self._SyncObj__raftNextIndex[node] = next_index + len(batch)
            message = {
                "type": "append",
                "term": self._term,
                "commit": self._commit_index,
                "previous_index": next_index - 1,
                "previous_term": self._term_at(next_index - 1),
                "entries": batch,
            }
            if not self._SyncObj__transport.send(node, message) or not batch:
                return

    def _batch(self, index: int) -> list[Entry]:
        start = index - self._disk.journal.base.index
        batch: list[Entry] = []
        size = 0
        for entry in self._disk.journal.entries(start, start + 1_024):
            size += len(entry.command)
            if batch and size > BATCH_BYTES:
                break
            batch.append(entry)
        return batch

    def _peers(self) -> set[Node]:
        return set(self._SyncObj__otherNodes | self._SyncObj__readonlyNodes)

    def _expect_anything(self, node: Node) -> None:
        """Nothing is known of what the peer holds; its first reply tells."""
        self._SyncObj__raftNextIndex[node] = self._last.index + 1
        self._SyncObj__raftMatchIndex[node] = 0
        self._SyncObj__lastResponseTime.setdefault(node, monotonic())

    # Snapshots

    def _send_piece(self, node: Node) -> None:
        outgoing = self._outgoing.get(node)
        if outgoing is None or outgoing.index != self._snapshot_index:
            content = self._disk.snapshot_path.read_bytes()
            outgoing = self._outgoing[node] = _Outgoing(self._snapshot_index, content)
        piece = outgoing.content[outgoing.position : outgoing.position + PIECE_BYTES]
        message = {
            "type": "snapshot",
            "term": self._term,
            "index": outgoing.index,
            "size": len(outgoing.content),
            "position": outgoing.position,
            "data": piece,
        }
        self._SyncObj__transport.send(node, message)

    def _on_snapshot(self, node: Node, message: Message) -> None:
        if message["term"] < self._term:
            self._reply(node, success=False, next_index=0)
            return
        self._follow(node)
        index, size, position = message["index"], message["size"], message["position"]
        if index <= self._commit_index:
            self._reply(node, success=True, next_index=self._commit_index + 1)
            return
        if size > SNAPSHOT_BYTES_MAX:
            raise DivergedError(
                f"metadata leader {node.id} sends a snapshot of {size} bytes, {SNAPSHOT_BYTES_MAX} are allowed"
            )
        if position == 0:
            self._incoming = _Incoming(index, size, bytearray())
        incoming = self._incoming
        if incoming is None or (incoming.index, incoming.size) != (index, size):
            return
        if position == len(incoming.content):
            incoming.content += message["data"]
        reply = {
            "type": "snapshot_reply",
            "term": self._term,
            "index": index,
            "position": len(incoming.content),
        }
        if len(incoming.content) < size:
            self._SyncObj__transport.send(node, reply)
            return
        self._incoming = None
        if self._install(node, bytes(incoming.content)):
            self._reply(node, success=True, next_index=index + 1)

    def _on_snapshot_reply(self, node: Node, message: Message) -> None:
        outgoing = self._outgoing.get(node)
        if self._raft_state != _LEADER or message["term"] != self._term or outgoing is None:
            return
        self._SyncObj__lastResponseTime[node] = monotonic()
        if message["index"] == outgoing.index and message["position"] > outgoing.position:
            outgoing.position = message["position"]
            self._send_piece(node)

    def _install(self, node: Node, content: bytes) -> bool:
        """Take over a leader's snapshot: checked, made durable, then the log starts behind it."""
        try:
            snapshot = Snapshot.decode(content)
            if snapshot.cluster_id != self._cluster_id:
                raise ValueError(f"it is of cluster {snapshot.cluster_id}")
            self._machine.restore(snapshot.state)
        except ValueError as error:
            log.error("snapshot of metadata leader %s refused: %s", node.id, error)
            return False
        save_snapshot(self._disk.snapshot_path, snapshot)
        self._disk.journal.compact(index=snapshot.index, term=snapshot.term)
        self._snapshot_index, self._snapshot_voters = snapshot.index, snapshot.voters
        self._snapshot_bytes = len(snapshot.state)
        self._SyncObj__raftCommitIndex = snapshot.index
        self._SyncObj__raftLastApplied = snapshot.index
        for index in [index for index in self._SyncObj__commandsWaitingCommit if index <= snapshot.index]:
            for _, callback in self._SyncObj__commandsWaitingCommit.pop(index):
                callback(None, FAIL_REASON.UNKNOWN_OUTCOME)
        self._change_voters()
        self._on_applied()
        self._resolve()
        log.info("took over the metadata snapshot at entry %d from %s", snapshot.index, node.id)
        return True

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        journal = self._disk.journal
        applied = self._SyncObj__raftLastApplied
        bytes_max = max(self._compaction.bytes, 2 * self._snapshot_bytes)
        if len(journal) <= self._compaction.entries and journal.size_bytes <= bytes_max:
            return
        if applied - self._snapshot_index < min(self._compaction.entries, len(journal)) // 2:
            return  # the log is long because little of it is applied: a snapshot would not shorten it
        term = self._term_at(applied)
        assert term is not None, "what was applied since the snapshot is in the log"
        state = self._machine.snapshot()
        snapshot = Snapshot(self._cluster_id, applied, term, self._voters_at(applied), state)
        save_snapshot(self._disk.snapshot_path, snapshot)
        self._snapshot_index, self._snapshot_voters = applied, snapshot.voters
        self._snapshot_bytes = len(state)
        kept_from = max(journal.base.index, applied - self._compaction.entries_kept)
        kept_term = self._term_at(kept_from)
        assert kept_term is not None, "it lies between base and end"
        journal.compact(index=kept_from, term=kept_term)
        log.info("metadata snapshot at entry %d: %d bytes, checksum %08x", applied, len(state), zlib.crc32(state))

    # Membership: every entry carries the whole set of voters and counts from where it stands in the log

    def _voters_at(self, index: int) -> frozenset[UUID]:
        for entry in reversed(self._entries_from(self._snapshot_index + 1)):
            if entry.index <= index and entry.command[0] == MEMBERSHIP:
                return decode_voters(entry.command[1:])
        return self._snapshot_voters

    def _adopt_voters(self) -> None:
        voters = self._voters_at(self._last.index)
        if voters == self._voters:
            return
        self._voters = voters
        others = {Node(str(disk)) for disk in voters if str(disk) != self._me.id}
        me_votes = UUID(self._me.id) in voters
        self._SyncObj__selfNode = self._me if me_votes else None
        self._SyncObj__otherNodes = others
        self._SyncObj__readonlyNodes = set(self._SyncObj__connectedNodes) - others
        for node in others:
            if node not in self._SyncObj__raftNextIndex:
                self._expect_anything(node)
        log.info("voters: %s", ", ".join(sorted(map(str, voters))))

    def _change_voters(self) -> None:
        self._adopt_voters()
        self._on_voters_changed()

    def _may_change_voters(self, proposal: _Proposal) -> bool:
        """One server at a time, and only when the change before and an entry of this term are committed."""
        voters = decode_voters(proposal.command[1:])
        entries = self._entries_from(self._commit_index + 1)
        pending = any(entry.command[0] == MEMBERSHIP for entry in entries)
        settled = self._SyncObj__noopIDx is not None and self._SyncObj__noopIDx <= self._commit_index
        return len(voters ^ self._voters) == 1 and UUID(self._me.id) in voters and settled and not pending

    # Proposals

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Append what waits (leader; one sync for all of it) or forward it; without a leader it keeps waiting."""
        leader = self._SyncObj__raftLeader
        if leader is None or not self._proposals:
            return
        before = self._last.index
        for _ in range(len(self._proposals)):
            proposal = self._proposals.popleft()
            if self._raft_state == _LEADER:
                self._append_proposal(proposal)
            elif proposal.origin is None:
                self._forward(leader, proposal)
            else:
                self._answer_origin(proposal.origin, index=None)
        if self._last.index > before:
            self._SyncObj__sendAppendEntries()
            self._disk.journal.sync()

    def _append_proposal(self, proposal: _Proposal) -> None:
        """Durable only after the journal's sync, which the caller does for many."""
        if proposal.command[0] == MEMBERSHIP and not self._may_change_voters(proposal):
            if proposal.answered is not None:
                proposal.answered(Rejected("membership_refused", "another change of the voters is under way"), "")
            return
        index = self._last.index + 1
        self._disk.journal.append(Entry(proposal.command, index, self._term), commit=self._commit_index)
        if proposal.command[0] == MEMBERSHIP:
            self._change_voters()
        if proposal.origin is not None:
            self._answer_origin(proposal.origin, index=index)
        if proposal.answered is not None:
            self._SyncObj__commandsWaitingCommit[index].append((self._term, self._waiter(proposal.answered)))

    def _waiter(self, answered: Answered) -> Callable[[Any, int], None]:
        """Called by PySyncObj when the entry's place was applied; told on after the state was published."""

        def decide(result: Applied | Rejected | None, reason: int) -> None:
            why = "" if reason == FAIL_REASON.SUCCESS else "the metadata leader changed"
            self._decided.append(lambda: answered(result, why))

        return decide

    def _forward(self, leader: Node, proposal: _Proposal) -> None:
        assert proposal.answered is not None, "it was proposed here"
        if proposal.command[0] == MEMBERSHIP:
            proposal.answered(Rejected("not_leader", f"only the metadata leader {leader.id} changes the voters"), "")
            return
        self._next_request += 1
        self._forwarded[self._next_request] = (leader, proposal.answered)
        message = {"type": "propose", "request": self._next_request, "command": proposal.command}
        if not self._SyncObj__transport.send(leader, message):
            self._forget_forwarded(leader)

    def _on_propose(self, node: Node, message: Message) -> None:
        command, origin = message["command"], (node, message["request"])
        may = command and command[0] in (REGULAR, NO_OP) and len(command) <= COMMAND_BYTES_MAX
        if may and self._raft_state == _LEADER:
            self._proposals.append(_Proposal(command, None, origin))
        else:
            self._answer_origin(origin, index=None)

    def _answer_origin(self, origin: tuple[Node, int], *, index: int | None) -> None:
        """Tell who forwarded a proposal where it stands in the log; it waits there for the commit."""
        node, request = origin
        place = {"index": index or 0, "term": self._term if index else 0, "refused": index is None}
        self._SyncObj__transport.send(node, {"type": "proposed", "request": request, **place})

    def _on_proposed(self, node: Node, message: Message) -> None:
        leader, answered = self._forwarded.pop(message["request"], (None, None))
        if answered is None or leader != node:
            return
        if message["refused"] or message["index"] <= self._SyncObj__raftLastApplied:
            answered(None, "the metadata leader changed")
            return
        self._SyncObj__commandsWaitingCommit[message["index"]].append((message["term"], self._waiter(answered)))

    def _forget_forwarded(self, leader: Node | None) -> None:
        """Nobody will tell what became of what was forwarded (to this leader)."""
        for request, (to, answered) in list(self._forwarded.items()):
            if leader is None or to == leader:
                del self._forwarded[request]
                answered(None, "the metadata leader changed")

    # Applying

    def _SyncObj__applyLogEntries(self) -> bool:  # noqa: N802
        """Apply what is committed, publish the state, then tell the proposers. True: followers should hear of it."""
        before = self._SyncObj__raftLastApplied
        super()._SyncObj__applyLogEntries()
        if self._SyncObj__raftLastApplied == before:
            return False
        self._on_applied()
        self._resolve()
        return True

    def _resolve(self) -> None:
        decided, self._decided = self._decided, []
        for tell in decided:
            tell()

    def _SyncObj__doApplyCommand(self, command: bytes) -> Applied | Rejected:  # noqa: N802
        kind = command[0]
        if kind == REGULAR:
            return self._machine.apply(command[1:])
        if kind in (NO_OP, MEMBERSHIP):
            return Applied(self._machine.version(), None)
        raise DataRefusedError(f"metadata entry of kind {kind} is unknown to this version; start a newer walrus-node")


def encode_voters(voters: frozenset[UUID]) -> bytes:
    """The command of a membership entry: the whole set."""
    return b",".join(sorted(str(voter).encode() for voter in voters))


def decode_voters(command: bytes) -> frozenset[UUID]:
    """The reverse of `encode_voters`."""
    return frozenset(UUID(voter) for voter in command.decode().split(",") if voter)


def _configuration() -> SyncObjConf:
    return SyncObjConf(
        autoTick=False,
        appendEntriesUseBatch=True,
        appendEntriesPeriod=HEARTBEAT_SECONDS,
        raftMinTimeout=ELECTION_SECONDS[0],
        raftMaxTimeout=ELECTION_SECONDS[1],
        leaderFallbackTimeout=LEADER_WITHOUT_QUORUM_SECONDS,
        dynamicMembershipChange=False,
        useFork=False,
        dnsCacheTime=5.0,
    )
