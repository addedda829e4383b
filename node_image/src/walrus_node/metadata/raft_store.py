"""`MetadataStore` over Raft: the thread that ticks it, deadlines of proposals, the published state.

The thread sleeps until a message, a proposal or a timer wakes it. Each state is published before its proposers hear.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import UUID

from walrus_node.files import DataRefusedError, rename_durably, sync_directory
from walrus_node.metadata.journal import Journal, Owner
from walrus_node.metadata.raft import (
    COMMAND_BYTES_MAX,
    MEMBERSHIP,
    NO_OP,
    REGULAR,
    Compaction,
    Disk,
    DivergedError,
    Hooks,
    Parts,
    Raft,
    encode_voters,
)
from walrus_node.metadata.reserve import RESERVE_BYTES, Reserve
from walrus_node.metadata.snapshot import Snapshot, save_snapshot
from walrus_node.metadata.store import Applied, Outcome, Rejected, StateMachine, Status, Unknown
from walrus_node.metadata.transport import Events, Me, Transport
from walrus_node.metadata.votes import Votes
from walrus_node.metadata.wire import WIRE, Versions
from walrus_node.secret import Secrets

log = logging.getLogger(__name__)

State = TypeVar("State")
Answer = Callable[[dict[str, Any]], None]

# The founder's state before its first command; whoever joins starts from a snapshot.
_FOUNDING_INDEX = 1
_STOP_MAX_S = 5.0
_REFILL_S = 1.0


def found(directory: Path, owner: Owner, empty_state: bytes) -> None:
    """Lay down the metadata of a new cluster whose only voter is the owner's disk; all of it is there or nothing."""
    snapshot = Snapshot(owner.cluster_id, _FOUNDING_INDEX, 0, frozenset({owner.disk}), empty_state)
    _create(directory, owner, snapshot)


def prepare_to_join(directory: Path, owner: Owner) -> None:
    """Lay down an empty log: the leader fills it."""
    _create(directory, owner, None)


def _create(directory: Path, owner: Owner, snapshot: Snapshot | None) -> None:
    scratch = directory.with_name(directory.name + ".new")
    scratch.mkdir(exist_ok=True)
    for leftover in scratch.iterdir():
        leftover.unlink()
    if snapshot is not None:
        save_snapshot(scratch / "snapshot", snapshot)
    Votes.create(scratch / "votes")
    Journal.create(scratch / "journal", owner, index=snapshot.index if snapshot else 0, term=0)
    sync_directory(scratch)
    rename_durably(scratch, directory)


@dataclass(frozen=True)
class Place:
    """Where a member keeps its log and where others find it."""

    directory: Path
    owner: Owner
    process: UUID
    raft_address: str
    # Addresses to try when nobody known answers, such as those of `--join`.
    seeds: tuple[str, ...] = ()
    # What the metadata keeps for itself on a disk that fills up.
    reserve_bytes: int = RESERVE_BYTES
    wire: Versions = WIRE
    secrets: Secrets = dataclasses.field(default_factory=lambda: Secrets(None))


class RaftStore(Generic[State]):
    """One member; see `store.MetadataStore`. `start` opens the disk, `stop` ends the thread."""

    def __init__(
        self,
        place: Place,
        machine: StateMachine[State],
        listener: socket.socket,
        *,
        on_published: Callable[[State], None] = lambda _: None,
        on_failed: Callable[[Exception], None] = lambda _: None,
        on_join: Callable[[RaftStore[State], dict[str, Any], Answer], None] = lambda _store, _greeting, answer: answer(
            {"refused": "nobody is admitted here", "member": True}
        ),
        on_unknown_voter: Callable[[RaftStore[State], UUID, str | None], None] = lambda _store, _disk, _address: None,
        compaction: Compaction | None = None,
    ) -> None:
        """Read and check everything on disk; raises `DataRefusedError`.

        *on_join* answers a request to join. *on_unknown_voter* hears of a disk, and its address, that claims to vote
        and does not by the log here, or is not known at all: whoever asks to join again hears who votes, and says it by
        `introduce`. Both are given this store, and are called in its thread, again and again.
        """
        self._place = place
        self._machine = machine
        self._on_published = on_published
        self._on_failed = on_failed
        self._reserve = Reserve(place.directory / "reserve", place.reserve_bytes)
        journal = Journal(place.directory / "journal", place.owner, self._reserve)
        if journal.torn_bytes:
            log.warning("metadata journal: cut %d bytes of a record that was never acknowledged", journal.torn_bytes)
        votes = Votes(place.directory / "votes", self._reserve)
        disk = Disk(journal, votes, place.directory / "snapshot", self._reserve)
        self._journal = journal
        me = Me(
            str(place.owner.cluster_id),
            str(place.owner.disk),
            str(place.process),
            place.raft_address,
            place.wire,
            place.secrets,
        )
        events = Events(
            on_message=lambda peer, message: self._raft.receive(peer, message),
            on_connected=lambda peer: self._raft.peer_connected(peer),
            on_disconnected=lambda peer: self._raft.peer_disconnected(peer),
            on_join=partial(on_join, self),
            on_unknown=partial(on_unknown_voter, self),
        )
        self._transport = Transport(me, listener, events)
        hooks = Hooks(
            send=self._transport.send,
            unsent=self._transport.unsent,
            wait=self._transport.poll,
            on_applied=self._publish,
            on_voters_changed=self._direct,
            on_unknown_voter=lambda disk: on_unknown_voter(self, disk, self.address_of(disk)),
        )
        owner = place.owner
        self._raft = Raft(Parts(owner.disk, owner.cluster_id, disk, machine, hooks, compaction or Compaction()))
        self._deadlines: list[tuple[float, int, Future[Outcome]]] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._changed = threading.Condition()
        self._known_peers: dict[UUID, str] = {}
        self._introduced = False
        self._directed: tuple[object, ...] | None = None
        self._published = machine.view()
        self._published_version = machine.version()
        self._failure: Exception | None = None
        self._stopping = False
        self._refill_at = 0.0
        self._thread = threading.Thread(target=self._run, name="raft", daemon=True)

    def introduce(self, peers: dict[UUID, str]) -> None:
        """The voters and their addresses by the answer to a join, until the log tells them; thread-safe."""
        self._known_peers = peers
        self._raft.introduce(frozenset(peers))
        self._introduced = True
        if self._thread.is_alive():
            self._transport.wake()

    def start(self) -> None:
        self._direct()
        self._on_published(self._published)
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended; proposals under way become `Unknown`."""
        self._stopping = True
        if self._thread.is_alive():
            self._transport.wake()
            self._thread.join(_STOP_MAX_S)
        with self._changed:
            self._changed.notify_all()

    def propose(self, command: bytes, *, timeout: float) -> Future[Outcome]:
        if len(command) >= COMMAND_BYTES_MAX:
            message = f"the command has {len(command)} bytes, {COMMAND_BYTES_MAX - 1} are allowed"
            return _decided(Rejected("too_large", message))
        refused = self._machine.check(command)
        if refused is not None:
            return _decided(refused)
        return self._submit(REGULAR, command, timeout)

    def barrier(self, *, timeout: float) -> Future[Outcome]:
        return self._submit(NO_OP, b"", timeout, again=True)

    def read(self) -> State:
        return self._published

    def watch(self, from_version: int, *, timeout: float) -> State | None:
        with self._changed:
            newer = self._changed.wait_for(
                lambda: self._published_version > from_version or self._stopping or self._failure is not None,
                timeout,
            )
            return self._published if newer and self._published_version > from_version else None

    def add_voter(self, disk: UUID, *, timeout: float) -> Future[Outcome]:
        return self._submit(MEMBERSHIP, encode_voters(self._raft.voters | {disk}), timeout)

    def remove_voter(self, disk: UUID, *, timeout: float) -> Future[Outcome]:
        return self._submit(MEMBERSHIP, encode_voters(self._raft.voters - {disk}), timeout)

    def transfer(self, to: UUID | None) -> None:
        self._raft.transfer(to)
        self._transport.wake()

    def status(self) -> Status:
        failure = None if self._failure is None else str(self._failure)
        return dataclasses.replace(self._raft.status(), failure=failure)

    def address_of(self, disk: UUID) -> str | None:
        """Where a disk's Raft transport was last seen."""
        if disk == self._place.owner.disk:
            return self._place.raft_address
        return self._transport.address_of(str(disk))

    def _submit(self, kind: int, command: bytes, timeout: float, *, again: bool = False) -> Future[Outcome]:
        """*again*: it may be proposed more than once, until the outcome of one is known."""
        if self._failure is not None or self._stopping:
            return _decided(Unknown("this node's metadata has stopped"))
        future: Future[Outcome] = Future()

        def answered(result: Applied | Rejected | None, why: str) -> None:
            if result is None and again and not future.done():
                self._raft.submit(kind, command, answered)
            else:
                _resolve(future, result if result is not None else Unknown(why))

        with self._lock:
            heapq.heappush(self._deadlines, (time.monotonic() + timeout, next(self._numbers), future))
        self._raft.submit(kind, command, answered)
        self._transport.wake()
        return future

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._raft.tick(self._expire())
                if self._introduced:
                    self._introduced = False
                    self._direct()
                self._keep_reserve()
        except (DataRefusedError, DivergedError, OSError) as error:
            self._fail(error)
        except Exception as error:
            log.exception("the metadata thread failed")
            self._fail(error)
        finally:
            self._transport.close()
            self._journal.close()
            self._reserve.close()
            self._give_up()

    def _keep_reserve(self) -> None:
        """Now and then: space that came back is the metadata's first."""
        if time.monotonic() >= self._refill_at:
            self._refill_at = time.monotonic() + _REFILL_S
            self._reserve.refill()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        log.critical("this node's metadata stops: %s", error)
        with self._changed:
            self._changed.notify_all()
        self._on_failed(error)

    def _expire(self) -> float:
        """Resolve what is past its deadline; seconds until the next one."""
        now = time.monotonic()
        with self._lock:
            while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][2].done()):
                _, _, future = heapq.heappop(self._deadlines)
                _resolve(future, Unknown("no majority answered in time"))
            return self._deadlines[0][0] - now if self._deadlines else 60.0

    def _give_up(self) -> None:
        with self._lock:
            for _, _, future in self._deadlines:
                _resolve(future, Unknown("this node's metadata has stopped"))
            self._deadlines.clear()

    def _publish(self) -> None:
        version = self._machine.version()
        if version == self._published_version:
            return
        state = self._machine.view()
        self._direct()
        self._on_published(state)
        with self._changed:
            self._published, self._published_version = state, version
            self._changed.notify_all()

    def _direct(self) -> None:
        """Tell the transport whom to keep connected, where that changed: voters all, others the voters."""
        peers, nodes, voters, told = (
            self._known_peers,
            self._machine.raft_addresses(),
            self._raft.voters,
            self._raft.told_voters,
        )
        if self._directed == (peers, nodes, voters, told):
            return
        self._directed = (peers, nodes, voters, told)
        addresses = {**peers, **nodes}
        wanted = set(addresses) | voters if self._place.owner.disk in voters else voters | told
        self._transport.set_peers(
            {str(disk): address for disk, address in addresses.items()},
            wanted={str(disk) for disk in wanted},
            seeds=self._place.seeds,
        )


def _decided(outcome: Outcome) -> Future[Outcome]:
    future: Future[Outcome] = Future()
    future.set_result(outcome)
    return future


def _resolve(future: Future[Outcome], outcome: Outcome) -> None:
    """The first answer counts; the caller may have cancelled."""
    if not future.done():
        try:
            future.set_result(outcome)
        except Exception:  # cancelled in between; concurrent.futures has no test-and-set
            log.debug("a proposal's answer came too late")
