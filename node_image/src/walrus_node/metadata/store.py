"""What the rest of the node knows of the replicated metadata: propose a command, read the state, ask who votes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from uuid import UUID

State_co = TypeVar("State_co", covariant=True)


@dataclass(frozen=True)
class Applied:
    """The command changed the state, here too; `answer` is what the command's proposer wants to know."""

    version: int
    answer: Any


@dataclass(frozen=True)
class Rejected:
    """The command changed nothing, on every node alike. A lost compare-and-set is one too."""

    reason: str
    message: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """The rejection as `walrus_core` reads it."""
        return json.dumps({**self.facts, "reason": self.reason})


@dataclass(frozen=True)
class Unknown:
    """Nobody here knows what becomes of the command: propose it again under the same id until it is known."""

    why: str


Outcome = Applied | Rejected | Unknown


class StateMachine(Protocol[State_co]):
    """What is replicated: bytes in, outcomes out, no clock and no randomness. Called in one thread."""

    def check(self, command: bytes) -> Rejected | None:
        """Why the command must not be proposed: this version, or some member, does not understand it. Thread-safe."""

    def apply(self, command: bytes) -> Applied | Rejected:
        """Apply one committed command; raises `DataRefusedError` for one that only a newer version understands.

        To refuse it would not do: a newer member has applied it.
        """

    def snapshot(self) -> bytes:
        """The whole state."""

    def restore(self, snapshot: bytes) -> None:
        """Replace the state; raises `ValueError` and changes nothing if the bytes are not a state."""

    def view(self) -> State_co:
        """An immutable picture of the state."""

    def version(self) -> int:
        """Grows with every applied command."""

    def raft_addresses(self) -> Mapping[UUID, str]:
        """Every known disk and where its Raft transport listens; nobody changes what was answered."""


@dataclass(frozen=True)
class Member:
    """A disk as the metadata leader sees it."""

    disk: UUID
    voter: bool
    connected: bool
    # Entries it still lacks; `None` where only the leader knows.
    lag: int | None


@dataclass(frozen=True)
class Status:
    """A moment of the store, as this node sees it."""

    state: str
    term: int
    leader: UUID | None
    commit_index: int
    applied_index: int
    last_index: int
    members: tuple[Member, ...]
    version: int
    failure: str | None
    # The term in which the entry at `last_index` was proposed.
    last_term: int = 0

    @property
    def is_leader(self) -> bool:
        """This node believes so. It may have been deposed already: never a reason to hold a lease."""
        return self.state == "leader"

    def voters(self) -> frozenset[UUID]:
        return frozenset(member.disk for member in self.members if member.voter)


class MetadataStore(Protocol[State_co]):
    """Thread-safe. Times are seconds."""

    def propose(self, command: bytes, *, timeout: float) -> Future[Outcome]:
        """Replicate a command and apply it; it carries its own id and the version that it expects.

        Resolves when the outcome is known *here*: `read` shows it, and a majority has it on disk.
        `Unknown` after *timeout*, or when the metadata leader changed meanwhile.
        """

    def barrier(self, *, timeout: float) -> Future[Outcome]:
        """Resolves `Applied` when `read` shows at least everything that was committed before the call."""

    def read(self) -> State_co:
        """The state as far as this node knows it; another node may know more."""

    def watch(self, from_version: int, *, timeout: float) -> State_co | None:
        """Blocks until the state here is newer than *from_version*, and returns it; `None` after *timeout*."""

    def add_voter(self, disk: UUID, *, timeout: float) -> Future[Outcome]:
        """Make a known disk a voter. One change at a time; refused on a node that does not lead."""

    def remove_voter(self, disk: UUID, *, timeout: float) -> Future[Outcome]:
        """Make a voter an observer. The leader does not remove itself."""

    def transfer(self, to: UUID | None) -> None:
        """Ask the leader, which is this node, to let a voter that has caught up lead, *to* if it is given.

        It is tried until somebody else leads; `status` shows that.
        """

    def status(self) -> Status:
        """Who leads, who votes, how far this node is."""
