"""Members over a network that loses, repeats and reorders, and disks that lose what was not synced at a crash.

One thread, no sockets: each step is chosen by the seed in the test's name. A repeated message may put a command into
log twice; that it acts once is up to its id, which the state machine remembers. What users see is judged as a history.
"""

import itertools
import math
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pytest
from history import Read, Write, check
from ledger import RememberingLedger, entry
from walrus_node.metadata.journal import Journal, Owner
from walrus_node.metadata.raft import MEMBERSHIP, NO_OP, REGULAR, Compaction, Disk, Hooks, Parts, Raft, encode_voters
from walrus_node.metadata.snapshot import Snapshot, save_snapshot
from walrus_node.metadata.store import Applied
from walrus_node.metadata.votes import Votes
from walrus_node.metadata.wire import FrameReader, decode_message, encode_message

CLUSTER = UUID(int=99)
SEEDS = 12
STEPS = 1_500
# In memory: a crash is simulated, so nothing needs to reach a real disk.
FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Simulated:
    """One member: its files, and the process that runs on them now."""

    def __init__(self, world: "World", disk: UUID) -> None:
        self.world = world
        self.disk = disk
        self.directory = world.directory / str(disk)
        self.directory.mkdir()
        save_snapshot(
            self.directory / "snapshot", Snapshot(CLUSTER, 1, 0, world.founders, RememberingLedger().snapshot())
        )
        Votes.create(self.directory / "votes")
        Journal.create(self.directory / "journal", Owner(CLUSTER, disk), index=1, term=0)
        self.start()

    def start(self) -> None:
        self.machine = RememberingLedger()
        self.journal = SyncedJournal(self.directory / "journal", Owner(CLUSTER, self.disk))
        disk = Disk(self.journal, Votes(self.directory / "votes"), self.directory / "snapshot")
        hooks = Hooks(
            send=self._send,
            unsent=lambda _: 0,
            wait=lambda _: None,
            on_applied=self._check_prefix,
            on_voters_changed=lambda: None,
            on_unknown_voter=self._ask_who_votes,
        )
        compaction = Compaction(entries=24, entries_kept=4)
        self.raft = Raft(Parts(self.disk, CLUSTER, disk, self.machine, hooks, compaction))
        for other in self.world.disks:
            if other != self.disk:
                self.raft.peer_connected(str(other))

    def crash(self, chance: random.Random) -> None:
        """Stops the node; any part of what was written and not synced may be left."""
        self.journal.close()
        path = self.directory / "journal"
        size = path.stat().st_size
        os.truncate(path, chance.randint(min(self.journal.synced, size), size))

    def _send(self, peer: str, message: dict[str, Any]) -> bool:
        (payload,) = FrameReader(2**24).feed(encode_message(message))
        self.world.pool.append((self.disk, UUID(peer), decode_message(payload)))
        return True

    def _ask_who_votes(self, claimant: UUID) -> None:
        """Whoever is asked answers by its own log; the join that it takes is not part of this world."""
        told = self.world.members[claimant].raft.voters
        if claimant in told:
            self.raft.introduce(told)

    def _check_prefix(self) -> None:
        self.world.check(self.machine.written)


class SyncedJournal(Journal):
    """Knows how much of it would survive a power cut."""

    def __init__(self, path: Path, owner: Owner) -> None:
        super().__init__(path, owner)
        self.synced = self.size_bytes

    def sync(self) -> None:
        super().sync()
        self.synced = self.size_bytes

    def compact(self, *, index: int, term: int) -> None:
        super().compact(index=index, term=term)
        self.synced = self.size_bytes


class World:
    """All members, the messages under way, and what must hold."""

    def __init__(self, seed: int, directory: Path, members: int) -> None:
        self.chance = random.Random(seed)
        # Each seed has weather of its own: what is rare in one world is common in another.
        pick = self.chance.uniform
        self.weights = [pick(20, 60), pick(10, 30), pick(2, 15), pick(0, 12), pick(0, 4), pick(0, 1)]
        self.weights += [pick(1, 6), pick(0, 1)]
        self.in_order, self.repeated, self.lost = pick(0.1, 1), pick(0, 0.4), pick(0, 0.2)
        self.directory = directory
        self.disks = [UUID(int=number) for number in range(1, members + 1)]
        self.founders = frozenset(self.disks[:3])
        self.pool: list[tuple[UUID, UUID, dict[str, Any]]] = []
        self.longest: list[str] = []
        self.acknowledged: list[str] = []
        self.history: list[Write | Read] = []
        self.now = 0
        # Whose messages to whom are lost, until the network is whole again.
        self.cut: set[tuple[UUID, UUID]] = set()
        self.leaders: dict[int, set[UUID]] = defaultdict(set)
        self.numbers = itertools.count()
        self.members = {disk: Simulated(self, disk) for disk in self.disks}

    def check(self, written: list[str]) -> None:
        """All apply the same commands in the same order."""
        common = min(len(written), len(self.longest))
        assert written[:common] == self.longest[:common], "two members applied different commands"
        if len(written) > common:
            self.longest = list(written)

    def step(self) -> None:
        member = self.members[self.chance.choice(self.disks)]
        action = self.chance.choices(
            [
                *(self.deliver, self.tick, self.propose, self.stand, self.crash, self.change_voters),
                *(self.look, self.partition),
            ],
            self.weights,
        )[0]
        self.now += 1
        action(member)
        for disk, each in self.members.items():
            status = each.raft.status()
            if status.is_leader:
                self.leaders[status.term].add(disk)
                assert len(self.leaders[status.term]) == 1, f"two leaders in term {status.term}"

    def deliver(self, _: Simulated) -> None:
        if not self.pool:
            return
        # Mostly in order, as TCP does, but connections break and come again.
        place = 0 if self.chance.random() < self.in_order else self.chance.randrange(len(self.pool))
        sender, receiver, message = self.pool[place]
        if self.chance.random() > self.repeated:
            del self.pool[place]
        if self.chance.random() > self.lost and (sender, receiver) not in self.cut:
            self.members[receiver].raft.receive(str(sender), message)
        del self.pool[:-400]

    def tick(self, member: Simulated) -> None:
        member.raft.tick(0.0)

    def stand(self, member: Simulated) -> None:
        member.raft.election_deadline = 0.0
        if self.chance.random() < 0.5:
            member.raft.leader = None
        member.raft.tick(0.0)

    def propose(self, member: Simulated) -> None:
        name = f"n{next(self.numbers)}"
        place = len(self.history)
        self.history.append(Write(name, self.now, math.inf, None))

        def answered(result: object, _: str) -> None:
            if isinstance(result, Applied):
                self.acknowledged.append(name)
                self.history[place] = Write(name, self.history[place].start, self.now, result.answer)

        member.raft.submit(REGULAR, entry(name), answered)

    def look(self, member: Simulated) -> None:
        """A linearizable read: a barrier, then the state here."""
        start, machine = self.now, member.machine

        def answered(result: object, _: str) -> None:
            if isinstance(result, Applied):
                self.history.append(Read(start, self.now, tuple(machine.written)))

        member.raft.submit(NO_OP, b"", answered)

    def partition(self, member: Simulated) -> None:
        """The member hears nobody, or is heard by nobody, or both; or all hear each other again."""
        others = [disk for disk in self.disks if disk != member.disk]
        deaf = {(other, member.disk) for other in others}
        mute = {(member.disk, other) for other in others}
        self.cut = self.chance.choice([set(), set(), deaf, mute, deaf | mute])

    def change_voters(self, member: Simulated) -> None:
        voters = member.raft.voters ^ {self.chance.choice(self.disks)}
        if voters:
            member.raft.submit(MEMBERSHIP, encode_voters(voters), lambda *_: None)

    def crash(self, member: Simulated) -> None:
        member.crash(self.chance)
        member.start()
        for disk, other in self.members.items():
            if disk != member.disk:
                other.raft.peer_disconnected(str(member.disk))
                other.raft.peer_connected(str(member.disk))

    def catch_up(self) -> None:
        """Everything arrives from now on: a leader is found and all catch up."""
        leads = False
        self.cut = set()
        for turn in range(4_000):
            self.now += 1
            for member in self.members.values():
                if turn % 50 == 0 and not leads:  # as if time passed without a sign of life
                    member.raft.election_deadline = 0.0
                    member.raft._leader_heard_at = 0.0
                if turn % 10 == 0:
                    member.raft._SyncObj__newAppendEntriesTime = 0.0
                member.raft.tick(0.0)
                for _ in range(len(self.pool)):
                    sender, receiver, message = self.pool.pop(0)
                    self.members[receiver].raft.receive(str(sender), message)
            ledgers = [member.machine.written for member in self.members.values()]
            leads = any(member.raft.status().is_leader for member in self.members.values())
            if leads and turn > 20 and all(ledger == self.longest for ledger in ledgers):
                return
        raise AssertionError("the members do not come together again")


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory(dir=FAST) as path:
        yield Path(path)


@pytest.mark.parametrize("members", [3, 5])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost_and_nobody_disagrees(directory: Path, seed: int, members: int) -> None:
    world = World(seed, directory, members)
    for _ in range(STEPS):
        world.step()
    world.catch_up()
    assert set(world.acknowledged) <= set(world.longest), "an acknowledged command is gone"
    world.history.append(Read(world.now, world.now, tuple(world.longest)))
    assert check(world.history) is None
