"""Bytes from strangers on the Raft port, and from members that go beyond what they may say: nothing stops, nothing is
taken. Real members, real sockets; each hostile frame is a test, and a fuzzer sends the others.
"""

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from hostile import Hostile
from ledger import address, entry
from members import TIMEOUT_S, Cluster, cluster_of
from waiting import wait_until
from walrus_node.metadata.raft import MEMBERSHIP, REGULAR, encode_voters
from walrus_node.metadata.store import Applied
from walrus_node.metadata.wire import NUMBER_MAX, encode_message

FUZZ_FRAMES = 1_500


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_of(tmp_path, 3) as running:
        yield running


def admit(cluster: Cluster, at: str = "127.0.0.1:1") -> UUID:
    """A disk that is listed, and votes nowhere."""
    disk = uuid4()
    told = cluster.leader().running.propose(address(disk, at), timeout=TIMEOUT_S).result()
    assert isinstance(told, Applied)
    for member in cluster.members:
        wait_until("the disk is known", lambda member=member: member.running.status().version >= told.version)
    return disk


def check_alive(cluster: Cluster) -> None:
    """Everybody runs, nothing was taken that nobody proposed, and an election goes through."""
    name = str(uuid4())
    assert isinstance(cluster.leader().write(name), Applied)
    for member in cluster.members:
        wait_until("it has all", lambda member=member: name in member.running.read())
        assert member.running.status().failure is None
        assert "forged" not in member.running.read()
    before = cluster.leader()
    before.running.transfer(None)
    wait_until("another one leads", lambda: cluster.leader() is not before)


def append(term: int, previous: int, previous_term: int, *entries: list[object], commit: int = 0) -> dict[str, object]:
    return {
        "type": "append",
        "term": term,
        "commit": commit,
        "previous_index": previous,
        "previous_term": previous_term,
        "entries": list(entries),
    }


@pytest.mark.parametrize("at", ["nowhere:99999", "nowhere:port", "nowhere", "", "::1:6000", "a" * 70 + ":1", "x\n:1"])
def test_an_address_in_the_log_that_cannot_be_dialled_ends_no_member(tmp_path: Path, at: str) -> None:
    """Port 99999 ended every voter, and each again after its restart: the address was in the log."""
    with cluster_of(tmp_path, 1) as cluster:
        (member,) = cluster.members
        admit(cluster, at)
        assert isinstance(member.write("behind it"), Applied)
        member.stop()
        member.start()
        assert isinstance(member.write("after the restart"), Applied)


def test_an_address_in_a_greeting_that_cannot_be_dialled_is_refused(cluster: Cluster) -> None:
    """It overrode the list, and was dialled as soon as the connection ended."""
    disk = admit(cluster)
    with Hostile(cluster.leader()) as hostile:
        answer = hostile.greet(disk, raft_address="nowhere:99999")
        assert "names no port" in answer["refused"]
    check_alive(cluster)


@pytest.mark.parametrize("kind", ["ask_vote", "request_vote", "vote", "append", "append_reply", "snapshot_reply"])
@pytest.mark.parametrize("term", [2**63 - 1, NUMBER_MAX + 1, NUMBER_MAX, 2**40])
def test_a_term_out_of_reach_ends_no_elections(tmp_path: Path, kind: str, term: int) -> None:
    """One message with term 2^63-1 was written down as the term, and nobody could stand for a higher one, ever."""
    said = {
        "ask_vote": {"last_log_index": NUMBER_MAX, "last_log_term": NUMBER_MAX},
        "request_vote": {"last_log_index": NUMBER_MAX, "last_log_term": NUMBER_MAX},
        "vote": {},
        "append": {"commit": 0, "previous_index": 0, "previous_term": 0, "entries": []},
        "append_reply": {"success": False, "next_index": 1},
        "snapshot_reply": {"index": 1, "position": 1},
    }
    with cluster_of(tmp_path, 1) as cluster:
        (member,) = cluster.members
        disk = admit(cluster)
        with Hostile(member) as hostile:
            assert hostile.greet(disk)["disk"] == str(member.disk)
            hostile.say(type=kind, term=term, **said[kind])
            hostile.wait_closed()
        assert member.running.status().term < 100
        assert isinstance(member.write("after it"), Applied)


@pytest.mark.parametrize("to_leader", [True, False])
@pytest.mark.parametrize("ahead", [0, 1])
def test_an_observers_append_is_not_taken(cluster: Cluster, to_leader: bool, ahead: int) -> None:
    """A follower took its entry as committed; at the leader one append in its own term ended the metadata."""
    disk = admit(cluster)
    target = cluster.leader() if to_leader else cluster.followers()[0]
    status = target.running.status()
    forged = [bytes([REGULAR]) + entry("forged"), status.last_index + 1, status.term + ahead]
    with Hostile(target) as hostile:
        hostile.greet(disk)
        hostile.say(**append(status.term + ahead, status.last_index, status.term, forged, commit=status.last_index + 1))
        hostile.say(type="stand", term=status.term)
        hostile.say(type="request_vote", term=status.term + 1, last_log_index=2**40, last_log_term=2**20)
        hostile.say(type="propose", request=7, command=b"")  # answered in order: what came before was handled
        hostile.hear("proposed")
    check_alive(cluster)


def test_an_observers_snapshot_is_not_taken(cluster: Cluster) -> None:
    disk, target = admit(cluster), cluster.followers()[0]
    status = target.running.status()
    with Hostile(target) as hostile:
        hostile.greet(disk)
        piece = {"size": 4, "position": 0, "data": b"junk"}
        hostile.say(type="snapshot", term=status.term, index=status.last_index + 100, **piece)
        hostile.say(type="propose", request=7, command=b"")
        hostile.hear("proposed")
    check_alive(cluster)


def test_an_acknowledgement_of_what_was_never_sent_ends_no_leader(cluster: Cluster) -> None:
    """The leader took it for its own data loss and stopped."""
    disk, leader = admit(cluster), cluster.leader()
    with Hostile(leader) as hostile:
        hostile.greet(disk)
        hostile.say(type="append_reply", term=leader.running.status().term, success=True, next_index=2**50)
        hostile.wait_closed()
    check_alive(cluster)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("vote", {}),
        ("append_reply", {"success": False, "next_index": 1}),
        ("snapshot_reply", {"index": 1, "position": 1}),
    ],
)
def test_a_term_that_only_an_observer_knows_ends_no_leadership(
    cluster: Cluster, kind: str, said: dict[str, object]
) -> None:
    """One message in the next term made the leader step down, as often as it was said."""
    disk, leader = admit(cluster), cluster.leader()
    term = leader.running.status().term
    with Hostile(leader) as hostile:
        hostile.greet(disk)
        hostile.say(type=kind, term=term + 1, **said)
        hostile.say(type="propose", request=7, command=b"")  # answered in order: what came before was handled
        hostile.hear("proposed")
    status = leader.running.status()
    assert (status.is_leader, status.term) == (True, term)
    check_alive(cluster)


@pytest.mark.parametrize("forgery", ["same term", "gap", "no voters", "bad voters", "snapshot"])
def test_no_message_of_a_voter_ends_a_member_that_it_cannot_prove_to_lead(cluster: Cluster, forgery: str) -> None:
    """A voter's disk, somebody else at its connection."""
    leader = cluster.leader()
    voter, target = cluster.followers() if forgery != "same term" else (cluster.followers()[0], leader)
    status = target.running.status()
    voter.stop()
    last, term = status.last_index, status.term
    entries = {
        "same term": [[bytes([REGULAR]) + entry("forged"), last + 1, term]],
        "gap": [[bytes([REGULAR]) + entry("forged"), last + 5, term]],
        "no voters": [[bytes([MEMBERSHIP]), last + 1, term]],
        "bad voters": [[bytes([MEMBERSHIP]) + b"\xff\xfe", last + 1, term]],
        "snapshot": [],
    }[forgery]
    with Hostile(target) as hostile:
        hostile.greet(voter.disk)
        if forgery == "snapshot":
            hostile.say(type="snapshot", term=term, index=last + 1, size=2**50, position=0, data=b"")
        else:
            hostile.say(**append(term, last, term, *entries, commit=last + 1))
        hostile.wait_closed()
    voter.start()
    check_alive(cluster)


def test_who_hears_only_unknown_leaders_asks_who_votes_and_goes_on(tmp_path: Path) -> None:
    """Its log ends before all of today's voters came: by its own log alone it would be locked out for good."""
    with cluster_of(tmp_path, 1) as cluster:
        first = cluster.members[0]
        late = cluster.add()
        late.stop()
        newcomer = cluster.add_voter()
        third = cluster.add_voter()
        first.running.transfer(newcomer.disk)
        wait_until("the newcomer leads", lambda: newcomer.running.status().is_leader)
        remove = lambda: newcomer.running.remove_voter(first.disk, timeout=TIMEOUT_S).result()  # noqa: E731
        # Refused until an entry of the newcomer's own term is committed.
        wait_until("the first one votes no more", lambda: isinstance(remove(), Applied))
        first.stop()
        asked = threading.Event()
        claims: list[UUID] = []

        def hear(disk: UUID, _address: str | None) -> None:
            claims.append(disk)
            asked.set()

        late.on_unknown_voter = hear
        late.start()
        assert isinstance(newcomer.write("news"), Applied)
        assert asked.wait(TIMEOUT_S)
        assert claims[0] in (newcomer.disk, third.disk)
        assert "news" not in late.running.read()
        late.running.introduce({newcomer.disk: newcomer.at, third.disk: third.at})
        wait_until("it has the news", lambda: "news" in late.running.read())
        assert late.running.status().leader == newcomer.disk


def bad_bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice([0, 1, 7, 8, 60, 3_000]))


def bad_message(chance: random.Random, status: object) -> bytes:
    """A Raft message of the right shape with wild numbers, sometimes with a byte flipped."""
    number = lambda: chance.choice([0, 1, 2, status.term, status.term + 1, status.last_index, status.last_index + 1])  # type: ignore[attr-defined]  # noqa: E731
    wild = lambda: chance.choice([number(), number(), chance.getrandbits(chance.randrange(1, 63))])  # noqa: E731
    voters = encode_voters(frozenset({uuid4()}))
    commands = [bytes([REGULAR]) + entry("forged"), bytes([MEMBERSHIP]) + voters, b"\7", b"\2\xff"]
    message = chance.choice(
        [
            {"type": "ask_vote", "term": wild(), "last_log_index": wild(), "last_log_term": wild()},
            {"type": "would_vote", "term": wild()},
            {"type": "request_vote", "term": wild(), "last_log_index": wild(), "last_log_term": wild()},
            {"type": "vote", "term": wild()},
            append(
                wild(),
                wild(),
                wild(),
                *[[chance.choice(commands), wild(), wild()] for _ in range(chance.randrange(3))],
                commit=wild(),
            ),
            {"type": "append_reply", "term": wild(), "success": chance.random() < 0.5, "next_index": wild()},
            {
                "type": "snapshot",
                "term": wild(),
                "index": wild(),
                "size": wild(),
                "position": wild(),
                "data": bad_bytes(chance),
            },
            {"type": "snapshot_reply", "term": wild(), "index": wild(), "position": wild()},
            {"type": "stand", "term": wild()},
            {"type": "propose", "request": wild(), "command": chance.choice([b"", b"\2", b"\7x", bad_bytes(chance)])},
            {"type": "proposed", "request": wild(), "index": wild(), "term": wild(), "refused": chance.random() < 0.5},
        ]
    )
    if chance.random() < 0.2:
        message[chance.choice([*message, "more"])] = chance.choice([None, -1, 2**63, "x", [], {}, b"", 0.5, [[]]])
    frame = bytearray(encode_message(message))
    if chance.random() < 0.1:
        frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
    return bytes(frame)


def test_random_frames_change_nothing_and_stop_nobody(tmp_path: Path) -> None:
    seed = int(os.environ.get("WALRUS_FUZZ_SEED", "0")) or random.SystemRandom().getrandbits(32)
    print(f"WALRUS_FUZZ_SEED={seed} repeats this run")
    chance = random.Random(seed)
    with cluster_of(tmp_path, 1) as cluster:
        (member,) = cluster.members
        disk = admit(cluster)
        sent = 0
        while sent < FUZZ_FRAMES:
            with Hostile(member) as hostile:
                if chance.random() < 0.2:  # a stranger
                    hostile.send(bad_bytes(chance))
                    hostile.frame(
                        chance.choice([b"{}", b"[]", b'{"join": 1}', b"1" * 9_000, b"[" * 9_000, bad_bytes(chance)])
                    )
                    sent += 2
                    continue
                hostile.greet(disk)
                for _ in range(chance.randrange(1, 30)):
                    hostile.send(bad_message(chance, member.running.status()))
                    sent += 1
            assert member.running.status().failure is None
        status = member.running.status()
        assert status.is_leader or status.state == "follower"
        assert status.voters() == {member.disk}
        assert isinstance(member.write("after all that"), Applied)
        member.stop()
        member.start()
        assert isinstance(member.write("and after a restart"), Applied)
        assert "forged" not in member.running.read()
