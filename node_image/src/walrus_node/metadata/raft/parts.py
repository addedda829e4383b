"""What a Raft member is given: its disk, its state machine, and whom it tells and asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from walrus_node.metadata.journal import Journal
from walrus_node.metadata.reserve import Reserve
from walrus_node.metadata.store import StateMachine
from walrus_node.metadata.votes import Votes
from walrus_node.metadata.wire import Message


class DivergedError(Exception):
    """This node holds as committed what the leader does not: it must stop before it does harm."""


@dataclass(frozen=True)
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
    reserve: Reserve | None = None


@dataclass(frozen=True)
class Hooks:
    """The store and the transport, as the member sees them; all are called in the ticking thread."""

    send: Callable[[str, Message], bool]
    # Bytes that wait for a peer to take them.
    unsent: Callable[[str], int]
    # Waits for messages or a wake, at most so many seconds, and hands the messages to `Raft.receive`.
    wait: Callable[[float], None]
    # The state machine has moved; proposers hear of it after this returned.
    on_applied: Callable[[], None]
    on_voters_changed: Callable[[], None]
    # This disk claims to lead, or wants a vote, and nobody here knows that it votes.
    on_unknown_voter: Callable[[UUID], None] = lambda _: None


@dataclass(frozen=True)
class Parts:
    """All of it."""

    me: UUID
    cluster_id: UUID
    disk: Disk
    machine: StateMachine[object]
    hooks: Hooks
    compaction: Compaction
