"""Metadata stores over real sockets and files, in this process."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

from ledger import Ledger, address, entry
from waiting import wait_until
from walrus_node.metadata.journal import Owner
from walrus_node.metadata.raft import Compaction
from walrus_node.metadata.raft_store import Place, RaftStore, found, prepare_to_join
from walrus_node.metadata.store import Applied, Outcome
from walrus_node.metadata.wire import WIRE
from walrus_node.secret import Secrets

TIMEOUT_S = 15.0


class Member:
    """A disk and, while it runs, its store."""

    def __init__(self, cluster_id: UUID, directory: Path, compaction: Compaction | None = None) -> None:
        self.disk = uuid4()
        self.owner = Owner(cluster_id, self.disk)
        self.directory = directory
        self.compaction = compaction
        self.port = 0
        self.wire = WIRE
        self.secrets = Secrets(None)
        self.on_unknown_voter: Callable[[UUID, str | None], None] = lambda _disk, _address: None
        self.store: RaftStore[tuple[str, ...]] | None = None

    @property
    def at(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> RaftStore[tuple[str, ...]]:
        assert self.store is not None
        return self.store

    def found(self) -> None:
        found(self.directory, self.owner, Ledger().snapshot())

    def prepare_to_join(self) -> None:
        prepare_to_join(self.directory, self.owner)

    def start(self, peers: dict[UUID, str] | None = None, seeds: tuple[str, ...] = ()) -> None:
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        place = Place(self.directory, self.owner, uuid4(), self.at, seeds, wire=self.wire, secrets=self.secrets)
        self.store = RaftStore(
            place,
            Ledger(),
            listener,
            compaction=self.compaction,
            on_unknown_voter=lambda _store, disk, address: self.on_unknown_voter(disk, address),
        )
        self.store.introduce(peers or {})
        self.store.start()

    def stop(self) -> None:
        if self.store is not None:
            self.store.stop()
            self.store = None

    def write(self, name: str) -> Outcome:
        return self.running.propose(entry(name), timeout=TIMEOUT_S).result()


class Cluster:
    """Members 0, 1, 2, ...; member 0 founds."""

    def __init__(self, directory: Path, compaction: Compaction | None = None, secrets: Secrets | None = None) -> None:
        self.cluster_id = uuid4()
        self.secrets = secrets or Secrets(None)
        self.directory = directory
        self.compaction = compaction
        self.members: list[Member] = []

    def add(self) -> Member:
        """A running member that has all that was committed, as an observer; the first one founds."""
        member = Member(self.cluster_id, self.directory / f"member-{len(self.members)}", self.compaction)
        member.secrets = self.secrets
        self.members.append(member)
        if len(self.members) == 1:
            member.found()
            member.start()
        else:
            member.prepare_to_join()
            member.start({other.disk: other.at for other in self.members[:-1]})
        told = self.members[0].running.propose(address(member.disk, member.at), timeout=TIMEOUT_S).result()
        assert isinstance(told, Applied)
        wait_until("the new member has all", lambda: member.running.status().version >= told.version)
        return member

    def add_voter(self) -> Member:
        member = self.add()
        if len(self.members) > 1:
            outcome = self.leader().running.add_voter(member.disk, timeout=TIMEOUT_S).result()
            assert isinstance(outcome, Applied), outcome
        wait_until("it votes", lambda: member.disk in member.running.status().voters())
        return member

    def leader(self) -> Member:
        """The member that leads the highest term."""

        def leading() -> Member | None:
            running = [member for member in self.members if member.store is not None]
            term = max(member.running.status().term for member in running)
            for member in running:
                status = member.running.status()
                if status.is_leader and status.term == term:
                    return member
            return None

        return wait_until("somebody leads", leading)

    def followers(self) -> list[Member]:
        leader = self.leader()
        return [member for member in self.members if member.store is not None and member is not leader]

    def stop(self) -> None:
        for member in self.members:
            member.stop()


@contextmanager
def cluster_of(
    directory: Path, voters: int, compaction: Compaction | None = None, secrets: Secrets | None = None
) -> Iterator[Cluster]:
    """A running cluster."""
    cluster = Cluster(directory, compaction, secrets)
    try:
        for _ in range(voters):
            cluster.add_voter()
        yield cluster
    finally:
        cluster.stop()
