"""1, 3 or 5 voters, one change at a time."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from walrus_node.metadata.membership import AddVoter, RemoveVoter, plan_voters
from walrus_node.metadata.store import Member, Status

DISKS = [UUID(int=number) for number in range(1, 9)]
ME = DISKS[0]
NOBODY: frozenset[UUID] = frozenset()
NOWHERE = dict.fromkeys(DISKS, "")


def without(gone: UUID) -> dict[UUID, str]:
    return {disk: zone for disk, zone in NOWHERE.items() if disk != gone}


def status(voters: str, observers: str = "") -> Status:
    """One letter for each member: `u` up, `d` disconnected, `l` lagging. The first voter is this node."""
    members = []
    for place, letter in enumerate(voters + observers):
        members.append(Member(DISKS[place], place < len(voters), letter != "d", 10_000 if letter == "l" else 0))
    return Status("leader", 1, ME, 9, 9, 9, tuple(members), 9, None)


@pytest.mark.parametrize(
    ("voters", "observers", "expected"),
    [
        ("u", "", None),
        ("u", "u", None),
        ("u", "uu", AddVoter(DISKS[1])),
        ("u", "ul", None),
        ("u", "ud", None),
        ("uu", "u", AddVoter(DISKS[2])),
        ("uu", "", RemoveVoter(DISKS[1])),
        ("uu", "l", RemoveVoter(DISKS[1])),
        ("uuu", "", None),
        ("uud", "", None),
        ("uud", "u", None),
        ("uuu", "u", None),
        ("uuu", "uu", AddVoter(DISKS[3])),
        ("uuuu", "u", AddVoter(DISKS[4])),
        ("uuud", "", RemoveVoter(DISKS[3])),
        ("uuuuu", "uuu", None),
    ],
)
def test_the_next_change_is(voters: str, observers: str, expected: AddVoter | RemoveVoter | None) -> None:
    assert plan_voters(status(voters, observers), ME, NOWHERE, NOBODY) == expected


def test_a_disk_that_is_not_registered_does_not_vote() -> None:
    assert plan_voters(status("u", "uu"), ME, {ME: "", DISKS[1]: ""}, NOBODY) is None


@pytest.mark.parametrize(
    ("voters", "observers", "expected"),
    [
        ("uud", "u", RemoveVoter(DISKS[2])),
        ("uuu", "", RemoveVoter(DISKS[2])),
        ("uudu", "u", RemoveVoter(DISKS[2])),
    ],
)
def test_a_voter_that_was_taken_out_goes_before_anything_else(
    voters: str, observers: str, expected: RemoveVoter
) -> None:
    assert plan_voters(status(voters, observers), ME, without(DISKS[2]), NOBODY) == expected


@pytest.mark.parametrize(
    ("voters", "observers", "expected"),
    [
        ("uud", "u", RemoveVoter(DISKS[2])),
        ("uudud", "uu", RemoveVoter(DISKS[2])),
        ("uud", "", None),
        ("uud", "l", None),
        ("uuu", "u", None),  # silent to the metadata, and still there
        ("uudu", "u", AddVoter(DISKS[4])),  # one change at a time: first the set is odd again
    ],
)
def test_a_voter_that_is_away_for_too_long_is_replaced_where_an_observer_can(
    voters: str, observers: str, expected: AddVoter | RemoveVoter | None
) -> None:
    away = frozenset({DISKS[2], DISKS[4]}) if len(voters) == 5 else frozenset({DISKS[2]})
    assert plan_voters(status(voters, observers), ME, NOWHERE, away) == expected


@pytest.mark.parametrize(
    ("voters", "observers", "zones", "expected"),
    [
        ("u", "uuu", "aabc", AddVoter(DISKS[2])),
        ("uu", "uu", "aabc", AddVoter(DISKS[2])),
        ("uuu", "u", "aabc", RemoveVoter(DISKS[1])),  # the next change adds the one in c
        ("uuu", "u", "abac", RemoveVoter(DISKS[2])),
        ("uuu", "u", "abca", None),
        ("uuu", "u", "aabb", None),
        ("uuu", "d", "aabc", None),
        ("uud", "u", "aabc", None),  # first it is back, or away for too long
        ("uuuuu", "uu", "aaabcbc", RemoveVoter(DISKS[1])),
        ("uuu", "u", "aaa ", RemoveVoter(DISKS[1])),  # a disk that has not told its zone is in one of its own
    ],
)
def test_voters_are_spread_over_zones(
    voters: str, observers: str, zones: str, expected: AddVoter | RemoveVoter | None
) -> None:
    told = dict(zip(DISKS, map(str.strip, zones), strict=False))
    assert plan_voters(status(voters, observers), ME, told, NOBODY) == expected


@given(st.text("abc", min_size=1, max_size=8))
def test_spreading_voters_over_zones_ends_with_zones_as_equal_as_they_can_be(zones: str) -> None:
    told = dict(zip(DISKS, zones, strict=False))
    members = [Member(disk, disk == ME, True, 0) for disk in told]
    for _ in range(40):
        change = plan_voters(Status("leader", 1, ME, 9, 9, 9, tuple(members), 9, None), ME, told, NOBODY)
        if change is None:
            break
        votes = isinstance(change, AddVoter)
        members = [Member(m.disk, votes, m.connected, 0) if m.disk == change.disk else m for m in members]
    else:
        raise AssertionError("no end")
    votes = Counter(told[member.disk] for member in members if member.voter)
    others = {told[member.disk] for member in members if not member.voter}
    most = max((votes[told[m.disk]] for m in members if m.voter and m.disk != ME), default=0)
    assert all(most <= votes[zone] + 1 for zone in others)


def test_replacing_a_voter_ends_with_an_odd_set_of_those_that_are_there() -> None:
    """Change after change, as the leader would; one that was away is an observer when it is back."""
    away = frozenset({DISKS[1]})
    members = [Member(disk, place < 5, disk not in away, 0) for place, disk in enumerate(DISKS[:7])]
    sizes = []
    while change := plan_voters(Status("leader", 1, ME, 9, 9, 9, tuple(members), 9, None), ME, NOWHERE, away):
        votes = isinstance(change, AddVoter)
        members = [Member(m.disk, votes, m.connected, 0) if m.disk == change.disk else m for m in members]
        sizes.append(sum(member.voter for member in members))
    assert sizes == [4, 5]
    assert not members[1].voter
    back = Status("leader", 1, ME, 9, 9, 9, tuple(Member(m.disk, m.voter, True, 0) for m in members), 9, None)
    assert plan_voters(back, ME, NOWHERE, NOBODY) is None
