"""PySyncObj, pinned: the only import of it, and names for those of its private fields that the roles use."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn
from uuid import UUID

import pysyncobj.version
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf
from pysyncobj import syncobj as pysyncobj_module
from pysyncobj.monotonic import monotonic as pysyncobj_monotonic
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from walrus_node.metadata.journal import Entry
from walrus_node.metadata.raft.parts import Disk, Parts
from walrus_node.metadata.store import Applied, Rejected
from walrus_node.metadata.wire import Message

PINNED_VERSION = "0.3.17"

# First byte of every entry's command.
REGULAR, NO_OP, MEMBERSHIP = 0, 1, 2
FOLLOWER, CANDIDATE, LEADER = 0, 1, 2

HEARTBEAT_S = 0.25
ELECTION_S = (1.0, 2.0)
LEADER_WITHOUT_QUORUM_S = 2.0
SUCCESS: int = FAIL_REASON.SUCCESS

# Result of the command (`None`: nobody knows), PySyncObj's reason.
Waiter = Callable[[Applied | Rejected | None, int], None]

__all__ = ["Node", "PinnedSyncObj", "monotonic"]


@lru_cache(maxsize=1_024)
def disk_of(node_id: str) -> UUID:
    """The disk that a node of PySyncObj stands for. Each message asks for it, and to parse an id takes microseconds."""
    return UUID(node_id)


def monotonic() -> float:
    """PySyncObj's clock, which all deadlines here are of."""
    return float(pysyncobj_monotonic())


class PinnedSyncObj(SyncObj):  # type: ignore[misc] # PySyncObj has no types
    """`SyncObj` over our journal, votes and transport. Fields of the roles are set before its constructor runs."""

    def __init__(self, parts: Parts) -> None:
        if pysyncobj.version.VERSION != PINNED_VERSION:
            raise RuntimeError(f"PySyncObj {PINNED_VERSION} is needed, {pysyncobj.version.VERSION} is installed")
        pysyncobj_module.pickle = _NoPickle()
        self._me = Node(str(parts.me))
        self._parts = parts
        self._journal = parts.disk.journal
        self._machine = parts.machine
        super().__init__(None, (), _configuration(), transport=_Wiring(parts.hooks.send))
        self._poller = self
        self._SyncObj__raftLog = _Log(parts.disk, lambda: self.commit_index)
        self._SyncObj__needLoadDumpFile = False

    def poll(self, timeout_s: float) -> None:
        """The end of PySyncObj's tick: wait for messages, for a wake, or for what is due next."""
        self._parts.hooks.wait(min(timeout_s, self._due_in_s()))

    def _due_in_s(self) -> float:
        raise NotImplementedError

    def _send(self, node: Node, message: Message) -> bool:
        return self._parts.hooks.send(node.id, message)

    # The log

    @property
    def last(self) -> Entry:
        """The last entry, or the base if there is none."""
        return self._journal.last

    def term_at(self, index: int) -> int | None:
        """Term of an entry that the log holds (its base included)."""
        place = index - self._journal.base.index
        return self._journal[place].term if 0 <= place < len(self._journal) else None

    def entries_from(self, index: int) -> list[Entry]:
        """What the log holds from there on, without its base."""
        return self._journal.entries(max(1, index - self._journal.base.index))

    # Names for PySyncObj's private fields

    @property
    def term(self) -> int:
        """The current term; it changes only by `set_term`."""
        return int(self._SyncObj__raftCurrentTerm)

    def set_term(self, term: int, voted_for: Node | None) -> None:
        """Durable on return."""
        self._SyncObj__setCurrentTerm(term, voted_for.id if voted_for else None)

    @property
    def voted_for(self) -> str | None:
        """Who got this member's vote of the current term."""
        vote: str | None = self._SyncObj__votedForNodeId
        return vote

    @property
    def role(self) -> int:
        """FOLLOWER, CANDIDATE or LEADER."""
        return int(self._SyncObj__raftState)

    @property
    def leader(self) -> Node | None:
        """Who is believed to lead."""
        leader: Node | None = self._SyncObj__raftLeader
        return leader

    @leader.setter
    def leader(self, leader: Node | None) -> None:
        self._SyncObj__raftLeader = leader

    @property
    def commit_index(self) -> int:
        """Up to here a majority has it. Never moves back."""
        return int(self._SyncObj__raftCommitIndex)

    @commit_index.setter
    def commit_index(self, index: int) -> None:
        assert index >= self.commit_index, "what is committed stays committed"
        self._SyncObj__raftCommitIndex = index

    @property
    def applied_index(self) -> int:
        """Up to here the state machine has it."""
        return int(self._SyncObj__raftLastApplied)

    @property
    def is_voter(self) -> bool:
        """Whether this disk votes; PySyncObj calls the others read-only nodes."""
        return self._SyncObj__selfNode is not None

    @property
    def other_voters(self) -> set[Node]:
        """The voters without this one."""
        voters: set[Node] = self._SyncObj__otherNodes
        return voters

    @property
    def connected(self) -> set[Node]:
        """Peers with a connection."""
        connected: set[Node] = self._SyncObj__connectedNodes
        return connected

    @property
    def peers(self) -> set[Node]:
        """Who is sent entries: the other voters, and connected observers."""
        return set(self._SyncObj__otherNodes | self._SyncObj__readonlyNodes)

    @property
    def next_index(self) -> dict[Node, int]:
        """The leader's guess of the first entry that a peer lacks."""
        found: dict[Node, int] = self._SyncObj__raftNextIndex
        return found

    @property
    def match_index(self) -> dict[Node, int]:
        """The last entry that a peer acknowledged to this leadership."""
        found: dict[Node, int] = self._SyncObj__raftMatchIndex
        return found

    @property
    def heard_at(self) -> dict[Node, float]:
        """When a peer last answered this leader."""
        found: dict[Node, float] = self._SyncObj__lastResponseTime
        return found

    @property
    def election_deadline(self) -> float:
        """When this member misses the leader."""
        return float(self._SyncObj__raftElectionDeadline)

    @election_deadline.setter
    def election_deadline(self, deadline: float) -> None:
        self._SyncObj__raftElectionDeadline = deadline

    def waiting_at(self, index: int) -> list[tuple[int, Waiter]]:
        """Who waits for an entry to be applied, each with the term in which it must be."""
        waiting: list[tuple[int, Waiter]] = self._SyncObj__commandsWaitingCommit[index]
        return waiting

    def waited_for(self) -> list[int]:
        """The places of those entries."""
        return list(self._SyncObj__commandsWaitingCommit)


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


class _Wiring(Transport):  # type: ignore[misc] # PySyncObj has no types
    """PySyncObj's side of the transport: its nodes are disks."""

    def __init__(self, send: Callable[[str, Message], bool]) -> None:
        super().__init__(None, None, ())
        self._send_to = send

    def send(self, node: Node, message: Any) -> bool:
        return self._send_to(node.id, message)


def _configuration() -> SyncObjConf:
    return SyncObjConf(
        autoTick=False,
        appendEntriesUseBatch=True,
        appendEntriesPeriod=HEARTBEAT_S,
        raftMinTimeout=ELECTION_S[0],
        raftMaxTimeout=ELECTION_S[1],
        leaderFallbackTimeout=LEADER_WITHOUT_QUORUM_S,
        dynamicMembershipChange=False,
        useFork=False,
        dnsCacheTime=5.0,
    )
