"""Members that do not hear each other, in every way: what users see of the metadata is one order that agrees with time.

WALRUS_CONTRACT_SECONDS makes it longer than a few seconds.
"""

import math
import os
import random
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
from history import Read, Write, check
from ledger import entry
from members import Cluster, Member, cluster_of
from waiting import wait_until
from walrus_node.metadata.store import Applied, Unknown
from walrus_node.metadata.transport import Transport
from walrus_node.metadata.wire import Message

SECONDS = float(os.environ.get("WALRUS_CONTRACT_SECONDS", "8"))
ANSWER_S = 1.0


class Network:
    """Links that can be cut, each way by itself. As TCP does, a cut link keeps what is sent, and delivers it late."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cut: frozenset[tuple[str, str]] = frozenset()
        self.held: dict[tuple[str, str], list[Message]] = defaultdict(list)
        send, network = Transport.send, self

        def send_or_hold(transport: Transport, peer: str, message: Message) -> bool:
            link = (transport._me.disk, peer)
            held = network.held[link]
            if link in network.cut:
                held.append(message)
                return True
            while held:
                send(transport, peer, held.pop(0))
            return send(transport, peer, message)

        monkeypatch.setattr(Transport, "send", send_or_hold)

    def heal(self) -> None:
        self.cut = frozenset()


def cuts(chance: random.Random, members: list[Member], leader: str) -> frozenset[tuple[str, str]]:
    """One of the ways in which a network breaks."""
    disks = [str(member.disk) for member in members]
    others = [disk for disk in disks if disk != leader]
    alone = chance.choice(disks)
    few = set(chance.sample(disks, len(disks) // 2))
    between = {(a, b) for a in disks for b in disks if (a in few) != (b in few)}
    ways = [
        {link for disk in disks for link in ((alone, disk), (disk, alone))},  # one hears and is heard by nobody
        {(leader, disk) for disk in others},  # a leader that nobody hears, and that hears all
        {(disk, leader) for disk in others},  # a leader that hears nobody
        between,
        {(a, b) for a, b in between if a in few},
        {(disks[0], disks[1]), (disks[1], disks[0])},  # two of them only through the third
        {(a, b) for a in disks for b in disks if chance.random() < 0.4},
    ]
    return frozenset(chance.choice(ways))


class User(threading.Thread):
    """Writes and reads in turn through one member after the other, one at a time."""

    def __init__(self, number: int, members: list[Member], over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.history: list[Write | Read] = []
        self._members = members
        self._over = over
        self._chance = random.Random(number)

    def run(self) -> None:
        count = 0
        while not self._over.is_set():
            count += 1
            member = self._chance.choice(self._members)
            if count % 3:
                self._write(member, f"u{self.number}.{count}")
            else:
                self._read(member)

    def _write(self, member: Member, name: str) -> None:
        start = time.monotonic()
        outcome = member.running.propose(entry(name), timeout=ANSWER_S).result()
        place = outcome.answer if isinstance(outcome, Applied) else None
        self.history.append(Write(name, start, time.monotonic() if place else math.inf, place))

    def _read(self, member: Member) -> None:
        start = time.monotonic()
        if isinstance(member.running.barrier(timeout=ANSWER_S).result(), Applied):
            seen = member.running.read()
            self.history.append(Read(start, time.monotonic(), seen))


@pytest.mark.parametrize("voters", [3, 5])
def test_what_users_see_under_partitions_is_linearizable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, voters: int
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    network = Network(monkeypatch)
    over = threading.Event()
    with cluster_of(tmp_path, voters) as cluster:
        users = [User(number, cluster.members, over) for number in range(4)]
        for user in users:
            user.start()
        faults, began = 0, time.monotonic()
        # A slow machine needs longer for a history that says something.
        while time.monotonic() < began + SECONDS or (
            not says_something(users) and time.monotonic() < began + 10 * SECONDS
        ):
            network.cut = cuts(chance, cluster.members, known_leader(cluster))
            faults += 1
            over.wait(chance.uniform(0.3, 2.0))  # how long a network is broken
            network.heal()
            over.wait(chance.uniform(0.1, 0.6))
        network.heal()
        over.set()
        for user in users:
            user.join()
        history = [operation for user in users for operation in user.history]
        acknowledged = {operation.name for operation in history if isinstance(operation, Write) and operation.place}
        last = wait_until("the last write is acknowledged", lambda: written(cluster, "last"))
        for member in cluster.members:
            wait_until("it has all", lambda member=member: len(member.running.read()) >= last)
        ledgers = [member.running.read() for member in cluster.members]
    assert check(history) is None
    assert says_something(users)
    assert all(acknowledged <= set(ledger) for ledger in ledgers)
    assert len({ledger[:last] for ledger in ledgers}) == 1, "one order"
    print(f"{faults} cuts, {len(history)} operations, {len(acknowledged)} acknowledged writes")


def known_leader(cluster: Cluster) -> str:
    """Whom most believe to lead; any disk if nobody does."""
    told = [member.running.status().leader for member in cluster.members]
    leaders = [leader for leader in told if leader is not None]
    return str(max(leaders, key=leaders.count)) if leaders else str(cluster.members[0].disk)


def written(cluster: Cluster, name: str) -> int:
    """The place of the write, once it is known; where its outcome is not, another one is written."""
    outcome = cluster.members[0].running.propose(entry(f"{name}.{time.monotonic()}"), timeout=ANSWER_S).result()
    return int(outcome.answer) if isinstance(outcome, Applied) else 0


def says_something(users: list[User]) -> bool:
    history = [operation for user in users for operation in user.history]
    reads = sum(isinstance(operation, Read) for operation in history)
    return reads > 20 and len(history) - reads > 50


def test_a_barrier_of_a_member_that_is_cut_off_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not on a leader that does not know yet that it was deposed: what it would show is the past."""
    network = Network(monkeypatch)
    with cluster_of(tmp_path, 3) as cluster:
        old = cluster.leader()
        assert isinstance(old.write("before"), Applied)
        others = cut_off(network, cluster, old)
        wait_until(
            "the others go on",
            lambda: any(isinstance(member.write("after"), Applied) for member in others if leads(member)),
        )
        assert not isinstance(old.running.barrier(timeout=0.3).result(), Applied)
        assert old.running.read() == ("before",)
        network.heal()
        wait_until(
            "it has caught up",
            lambda: (
                isinstance(old.running.barrier(timeout=ANSWER_S).result(), Applied) and "after" in old.running.read()
            ),
        )


def test_proposals_whose_entries_are_cut_are_answered_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their places may never be reached again: they were waited for until the end of the caller's patience."""
    network = Network(monkeypatch)
    with cluster_of(tmp_path, 3) as cluster:
        old = cluster.leader()
        assert isinstance(old.write("before"), Applied)
        others = cut_off(network, cluster, old)
        lost = [old.running.propose(entry(f"lost.{number}"), timeout=3_600) for number in range(20)]
        wait_until("another leads", lambda: any(leads(member) for member in others))
        network.heal()
        outcomes = [proposal.result(timeout=60.0) for proposal in lost]
        assert all(isinstance(outcome, Unknown) for outcome in outcomes), outcomes


def cut_off(network: Network, cluster: Cluster, member: Member) -> list[Member]:
    """Nothing goes from or to the member any more; gives the others."""
    others = [other for other in cluster.members if other is not member]
    me = str(member.disk)
    network.cut = frozenset(link for other in others for link in ((me, str(other.disk)), (str(other.disk), me)))
    return others


def leads(member: Member) -> bool:
    return member.running.status().is_leader
