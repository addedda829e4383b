"""One member, messages put in by hand: what PySyncObj as shipped gets wrong (each test names it)."""

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from ledger import Ledger, entry
from waiting import wait_until
from walrus_node.metadata.journal import Journal, Owner
from walrus_node.metadata.raft import (
    COMMAND_BYTES_MAX,
    MEMBERSHIP,
    REGULAR,
    Compaction,
    Disk,
    DivergedError,
    Hooks,
    Parts,
    Raft,
    encode_voters,
)
from walrus_node.metadata.snapshot import Snapshot, save_snapshot
from walrus_node.metadata.votes import Votes

CLUSTER = uuid4()
ME, LEADER, THIRD = sorted(uuid4() for _ in range(3))


class Alone:
    """A member whose messages go nowhere but into a list."""

    def __init__(self, directory: Path, voters: frozenset[UUID] = frozenset({ME, LEADER, THIRD})) -> None:
        self.directory = directory
        if not (directory / "journal").exists():
            save_snapshot(directory / "snapshot", Snapshot(CLUSTER, 1, 0, voters, Ledger().snapshot()))
            Votes.create(directory / "votes")
            Journal.create(directory / "journal", Owner(CLUSTER, ME), index=1, term=0)
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.machine = Ledger()
        self.journal = Journal(directory / "journal", Owner(CLUSTER, ME))
        disk = Disk(self.journal, Votes(directory / "votes"), directory / "snapshot")
        hooks = Hooks(
            send=self._send,
            unsent=lambda _: 0,
            wait=lambda _: None,
            on_applied=lambda: None,
            on_voters_changed=lambda: None,
        )
        self.raft = Raft(Parts(ME, CLUSTER, disk, self.machine, hooks, Compaction()))
        for peer in (LEADER, THIRD):
            self.raft.peer_connected(str(peer))

    def _send(self, peer: str, message: dict[str, Any]) -> bool:
        if message["type"] in ("append_reply", "vote", "request_vote"):
            assert not self.journal.has_unsynced, "nothing is acknowledged before it is on disk"
            assert Votes(self.directory / "votes").term == self.raft.status().term
        self.sent.append((peer, message))
        return True

    def hear(self, sender: UUID = LEADER, **message: Any) -> list[dict[str, Any]]:
        """What the member answers."""
        self.sent.clear()
        self.raft.receive(str(sender), message)
        return [sent for _, sent in self.sent]

    def append(
        self, previous: int, previous_term: int, *entries: tuple[str, int], term: int = 1, commit: int = 0
    ) -> Any:
        """Hear an append of named entries with their terms; the answer, if there is one."""
        sent = [[bytes([REGULAR]) + entry(name), previous + place, of] for place, (name, of) in enumerate(entries, 1)]
        answers = self.hear(
            type="append",
            term=term,
            commit=commit,
            previous_index=previous,
            previous_term=previous_term,
            entries=sent,
        )
        assert len(answers) <= 1
        return answers[0] if answers else None

    def names(self) -> list[str]:
        return [held.command[1:].decode().split('"')[3] for held in self.journal.entries(1)]

    def lead(self) -> None:
        """Win an election by the vote of LEADER."""
        self.raft.election_deadline = 0.0
        self.raft.tick(0.0)
        self.hear(type="would_vote", term=self.raft.status().term + 1)
        self.raft.tick(0.0)
        self.hear(type="vote", term=self.raft.status().term)
        assert self.raft.status().is_leader


@pytest.fixture
def alone(tmp_path: Path) -> Alone:
    return Alone(tmp_path)


def acknowledged(answer: dict[str, Any]) -> int | None:
    """Index of the last entry that the answer acknowledges."""
    return answer["next_index"] - 1 if answer["success"] else None


def test_a_late_duplicate_append_cuts_nothing(alone: Alone) -> None:
    """PySyncObj cut entries 4 to 6, acknowledged before, when a copy of an earlier message came late."""
    alone.append(1, 0, ("a", 1), ("b", 1))
    alone.append(3, 1, ("c", 1), ("d", 1), ("e", 1))
    answer = alone.append(1, 0, ("a", 1), ("b", 1))
    assert alone.names() == ["a", "b", "c", "d", "e"]
    assert acknowledged(answer) == 3, "it acknowledges what was compared, and nothing further"


def test_a_late_heartbeat_cuts_nothing(alone: Alone) -> None:
    alone.append(1, 0, ("a", 1), ("b", 1))
    assert acknowledged(alone.append(1, 0)) == 1
    assert alone.names() == ["a", "b"]


def test_an_entry_of_another_term_in_its_place_is_cut(alone: Alone) -> None:
    alone.append(1, 0, ("a", 1), ("b", 1), ("c", 1))
    answer = alone.append(2, 1, ("other", 2), term=2)
    assert alone.names() == ["a", "other"]
    assert acknowledged(answer) == 3


def test_a_gap_is_refused_with_the_place_to_go_on(alone: Alone) -> None:
    alone.append(1, 0, ("a", 1))
    answer = alone.append(5, 1, ("f", 1))
    assert not answer["success"]
    assert answer["next_index"] == 3
    assert alone.names() == ["a"]


def test_commit_covers_only_what_this_leader_compared(alone: Alone) -> None:
    """The tail may be another leader's: PySyncObj took the end of the log as the limit."""
    alone.append(1, 0, ("a", 1), ("stale", 1), ("stale too", 1))
    alone.append(2, 1, term=2, commit=4)
    assert alone.raft.status().commit_index == 2


def test_only_the_news_that_entries_are_committed_are_not_answered(alone: Alone) -> None:
    """Each commit cost the leader two more answers, of entries that were acknowledged already."""
    assert alone.append(1, 0, ("a", 1), ("b", 1))["next_index"] == 4
    assert alone.append(3, 1, commit=2) is None
    assert alone.raft.status().commit_index == 2
    assert alone.append(3, 1, commit=2)["next_index"] == 4, "a beat is answered"
    assert alone.append(3, 1, ("c", 1), commit=3)["next_index"] == 5, "what is new is acknowledged"
    assert not alone.append(7, 1, commit=4)["success"], "what is missing is told"


def test_a_committed_entry_is_never_cut(alone: Alone) -> None:
    alone.append(1, 0, ("a", 1), ("b", 1), commit=3)
    with pytest.raises(DivergedError, match="committed here"):
        alone.append(2, 1, ("other", 2), term=2)
    assert alone.names() == ["a", "b"]


def test_an_older_leader_is_told_the_newer_term(alone: Alone) -> None:
    alone.append(1, 0, ("a", 5), term=5)
    answer = alone.append(1, 0, ("b", 4), term=4)
    assert (answer["success"], answer["term"]) == (False, 5)
    assert alone.names() == ["a"]


def test_an_acknowledgement_of_another_term_does_not_count(alone: Alone) -> None:
    """PySyncObj's replies carry no term, so it counted entries that the follower had lost since."""
    alone.lead()
    term, last = alone.raft.status().term, alone.raft.status().last_index
    alone.hear(type="append_reply", term=term - 1, success=True, next_index=last + 1)
    alone.raft.tick(0.0)
    assert alone.raft.status().commit_index == 1
    alone.hear(type="append_reply", term=term, success=True, next_index=last + 1)
    alone.raft.tick(0.0)
    assert alone.raft.status().commit_index == last


def test_what_was_acknowledged_to_an_earlier_leadership_is_forgotten(alone: Alone) -> None:
    alone.lead()
    term, last = alone.raft.status().term, alone.raft.status().last_index
    alone.hear(THIRD, type="append_reply", term=term, success=True, next_index=last + 1)
    alone.hear(type="ask_vote", term=term + 5, last_log_index=0, last_log_term=0)
    alone.hear(type="request_vote", term=term + 5, last_log_index=0, last_log_term=0)
    assert not alone.raft.status().is_leader
    alone.lead()
    assert all(member.lag for member in alone.raft.status().members if member.disk != ME)


def test_one_voter_is_counted_once(tmp_path: Path) -> None:
    """PySyncObj counted messages: one follower's vote, sent twice, elected a leader of five."""
    five = frozenset({ME, LEADER, THIRD, uuid4(), uuid4()})
    alone = Alone(tmp_path, five)
    alone.raft.election_deadline = 0.0
    alone.raft.tick(0.0)
    for sender in (LEADER, THIRD):
        alone.hear(sender, type="would_vote", term=1)
    alone.raft.tick(0.0)
    for _ in range(4):
        alone.hear(type="vote", term=1)
    assert alone.raft.status().state == "candidate"
    alone.hear(THIRD, type="vote", term=1)
    assert alone.raft.status().is_leader


def test_a_vote_of_a_disk_that_does_not_vote_does_not_count(alone: Alone) -> None:
    alone.raft.election_deadline = 0.0
    alone.raft.tick(0.0)
    alone.hear(type="would_vote", term=1)
    alone.raft.tick(0.0)
    alone.hear(uuid4(), type="vote", term=1)
    assert alone.raft.status().state == "candidate"


def test_a_disk_that_does_not_know_yet_that_it_votes_votes(tmp_path: Path) -> None:
    """It was killed when it became the second voter, and came back without that entry once the leader had given up
    leading for want of it. Asked for its vote, it said nothing, and nobody was ever elected again.
    """
    alone = Alone(tmp_path, frozenset({LEADER}))
    last = {"last_log_index": 9, "last_log_term": 1}
    assert alone.hear(type="ask_vote", term=2, **last) == [{"type": "would_vote", "term": 2}]
    assert alone.hear(type="request_vote", term=2, **last) == [{"type": "vote", "term": 2}]
    assert alone.hear(type="request_vote", term=2, **last) == [{"type": "vote", "term": 2}]
    alone.raft.election_deadline = 0.0
    alone.raft.tick(0.0)
    assert alone.raft.status().state == "observer"


def test_nobody_stands_before_a_majority_would_vote(alone: Alone) -> None:
    """A member that was cut off comes back with the term it left with, and deposes nobody."""
    for _ in range(5):
        alone.raft.election_deadline = 0.0
        alone.raft.tick(0.0)
    assert alone.raft.status().term == 0
    assert {message["type"] for _, message in alone.sent} == {"ask_vote"}


def test_who_hears_a_leader_would_not_vote(alone: Alone) -> None:
    alone.append(1, 0, ("a", 1))
    assert alone.hear(THIRD, type="ask_vote", term=2, last_log_index=9, last_log_term=9) == []
    alone.raft.peer_disconnected(str(LEADER))
    (answer,) = alone.hear(THIRD, type="ask_vote", term=2, last_log_index=9, last_log_term=9)
    assert answer["type"] == "would_vote"


def test_one_vote_per_term_survives_a_restart(alone: Alone) -> None:
    question = {"type": "request_vote", "term": 4, "last_log_index": 9, "last_log_term": 3}
    assert alone.hear(LEADER, **question) == [{"type": "vote", "term": 4}]
    again = Alone(alone.directory)
    assert again.hear(THIRD, **question) == []
    assert again.hear(LEADER, **question) == [{"type": "vote", "term": 4}], "the same answer may be repeated"


def test_a_candidate_with_a_shorter_log_gets_no_vote(alone: Alone) -> None:
    alone.append(1, 0, ("a", 1), ("b", 1))
    alone.raft.peer_disconnected(str(LEADER))
    assert alone.hear(THIRD, type="request_vote", term=2, last_log_index=2, last_log_term=1) == []


def test_what_was_acknowledged_is_there_after_a_restart(alone: Alone) -> None:
    alone.append(1, 0, ("a", 1), ("b", 1), commit=2)
    again = Alone(alone.directory)
    assert again.names() == ["a", "b"]
    again.append(3, 1, ("c", 1), commit=4)
    again.raft.tick(0.0)
    assert again.machine.written == ["a", "b", "c"]


def test_a_snapshot_of_the_past_changes_nothing(alone: Alone) -> None:
    alone.append(1, 0, ("a", 1), ("b", 1), commit=3)
    alone.raft.tick(0.0)
    old = Snapshot(CLUSTER, 2, 1, frozenset({ME, LEADER, THIRD}), Ledger().snapshot()).encode()
    (answer,) = alone.hear(type="snapshot", term=1, index=2, size=len(old), position=0, data=old)
    assert acknowledged(answer) == 3
    assert alone.machine.written == ["a", "b"]


@pytest.mark.parametrize("damage", ["flip", "cluster", "state"])
def test_a_bad_snapshot_replaces_nothing(alone: Alone, damage: str) -> None:
    alone.append(1, 0, ("a", 1), commit=2)
    alone.raft.tick(0.0)
    cluster = uuid4() if damage == "cluster" else CLUSTER
    state = b"nonsense" if damage == "state" else Ledger().snapshot()
    content = Snapshot(cluster, 50, 1, frozenset({ME}), state).encode()
    if damage == "flip":
        content = content[:-1] + bytes([content[-1] ^ 1])
    alone.hear(type="snapshot", term=1, index=50, size=len(content), position=0, data=content)
    assert alone.machine.written == ["a"]
    assert Alone(alone.directory).names() == ["a"]


def test_a_snapshot_comes_in_pieces_and_survives_a_restart(alone: Alone) -> None:
    state = Ledger()
    for name in "abc":
        state.apply(entry(name))
    content = Snapshot(CLUSTER, 50, 1, frozenset({LEADER, THIRD}), state.snapshot()).encode()
    half = len(content) // 2
    (first,) = alone.hear(type="snapshot", term=1, index=50, size=len(content), position=0, data=content[:half])
    assert first["position"] == half
    again = alone.hear(type="snapshot", term=1, index=50, size=len(content), position=half + 9, data=b"early")
    assert again[0]["position"] == half
    (answer,) = alone.hear(type="snapshot", term=1, index=50, size=len(content), position=half, data=content[half:])
    assert acknowledged(answer) == 50
    for member in (alone, Alone(alone.directory)):
        assert member.machine.written == ["a", "b", "c"]
        assert member.raft.voters == frozenset({LEADER, THIRD})
        assert member.raft.status().state == "observer"


def test_a_crash_between_snapshot_and_journal_goes_on_from_the_snapshot(alone: Alone) -> None:
    alone.append(1, 0, ("a", 1), ("b", 1))
    state = Ledger()
    state.apply(entry("from the leader"))
    save_snapshot(alone.directory / "snapshot", Snapshot(CLUSTER, 90, 4, frozenset({ME}), state.snapshot()))
    again = Alone(alone.directory)
    assert again.machine.written == ["from the leader"]
    assert again.raft.status().last_index == 90


def test_voters_follow_the_log_and_go_back_with_it(alone: Alone) -> None:
    fourth = uuid4()
    more = [bytes([MEMBERSHIP]) + encode_voters(frozenset({ME, LEADER, THIRD, fourth})), 2, 1]
    alone.hear(type="append", term=1, commit=0, previous_index=1, previous_term=0, entries=[more])
    assert fourth in alone.raft.voters
    alone.append(1, 0, ("other", 2), term=2)
    assert alone.raft.voters == frozenset({ME, LEADER, THIRD})


def test_two_voters_are_not_changed_at_once(alone: Alone) -> None:
    alone.lead()
    last = alone.raft.status().last_index
    alone.hear(type="append_reply", term=alone.raft.status().term, success=True, next_index=last + 1)
    alone.raft.tick(0.0)
    outcomes: list[object] = []
    for voters in (frozenset({ME, LEADER, THIRD, uuid4(), uuid4()}), frozenset({LEADER, THIRD})):
        alone.raft.submit(MEMBERSHIP, encode_voters(voters), lambda result, _: outcomes.append(result))
    alone.raft.tick(0.0)
    assert [getattr(outcome, "reason", None) for outcome in outcomes] == ["membership_refused"] * 2


def test_a_forwarded_command_that_is_too_long_is_refused(alone: Alone) -> None:
    alone.lead()
    (answer,) = alone.hear(type="propose", request=1, command=bytes(COMMAND_BYTES_MAX + 1))
    assert answer["refused"]


def test_a_forwarded_change_of_voters_is_refused(alone: Alone) -> None:
    alone.lead()
    command = bytes([MEMBERSHIP]) + encode_voters(frozenset({LEADER}))
    (answer,) = alone.hear(type="propose", request=1, command=command)
    assert answer["refused"]


def asked(alone: Alone) -> set[tuple[str, str]]:
    """What one tick sends, to whom."""
    alone.sent.clear()
    alone.raft.tick(0.0)
    return {(message["type"], peer) for peer, message in alone.sent}


def test_who_is_told_to_stand_by_its_leader_stands_without_asking(alone: Alone) -> None:
    alone.append(1, 0, ("a", 1))
    alone.hear(LEADER, type="stand", term=1)
    assert asked(alone) == {("request_vote", str(LEADER)), ("request_vote", str(THIRD))}
    assert alone.raft.status().term == 2


def test_what_a_leader_appended_before_it_was_told_that_another_stands_takes_nothing_back(alone: Alone) -> None:
    """Under a stream of commands an append came right behind the word, and leadership was not handed over."""
    alone.append(1, 0, ("a", 1))
    alone.hear(LEADER, type="stand", term=1)
    alone.append(2, 1, ("b", 1))
    assert asked(alone) == {("request_vote", str(LEADER)), ("request_vote", str(THIRD))}
    alone.append(3, 1, ("c", 2), term=2)
    assert asked(alone) == set(), "it was told once"


@pytest.mark.parametrize(("sender", "term"), [(THIRD, 1), (LEADER, 0)])
def test_nobody_else_makes_it_stand(alone: Alone, sender: UUID, term: int) -> None:
    alone.append(1, 0, ("a", 1))
    alone.hear(sender, type="stand", term=term)
    assert asked(alone) == set()


def test_a_leader_lets_only_who_holds_everything_stand(alone: Alone) -> None:
    alone.lead()
    alone.raft.transfer(None)
    assert ("stand", str(THIRD)) not in asked(alone)
    held = {"type": "append_reply", "term": alone.raft.status().term, "success": True}
    alone.hear(THIRD, **held, next_index=alone.raft.last.index)
    assert ("stand", str(THIRD)) not in asked(alone)
    alone.hear(THIRD, **held, next_index=alone.raft.last.index + 1)
    assert ("stand", str(THIRD)) in asked(alone)
    assert not {kind for kind, _ in asked(alone)} & {"stand"}, "once is enough"


def test_a_leader_appends_nothing_while_another_is_to_lead_but_for_a_moment_only(alone: Alone) -> None:
    """Who lacked what was appended meanwhile lost the vote."""
    alone.lead()
    alone.raft.transfer(None)
    alone.raft.submit(REGULAR, entry("waits"), lambda *_: None)
    last = alone.raft.last.index
    alone.raft.tick(0.0)
    assert alone.raft.last.index == last
    wait_until("it leads on, for nobody takes over", lambda: alone.raft.tick(0.0) or alone.raft.last.index > last)


def test_a_leader_does_not_count_a_frozen_peer_as_connected(alone: Alone) -> None:
    """Its kernel goes on answering for it, so the connection stays open."""
    alone.lead()
    frozen = next(node for node in alone.raft.heard_at if node.id == str(THIRD))

    def connected() -> bool:
        return next(member.connected for member in alone.raft.status().members if member.disk == THIRD)

    assert connected()
    alone.raft.heard_at[frozen] -= 10.0
    assert not connected()
    alone.hear(THIRD, type="append_reply", term=alone.raft.status().term, success=True, next_index=1)
    assert connected()
