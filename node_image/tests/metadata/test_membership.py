"""1, 3 or 5 voters, one change at a time."""

from uuid import UUID

import pytest
from walrus_node.metadata.membership import AddVoter, RemoveVoter, plan_voters
from walrus_node.metadata.store import Member, Status

DISKS = [UUID(int=number) for number in range(1, 9)]
ME = DISKS[0]


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
    assert plan_voters(status(voters, observers), ME, frozenset(DISKS)) == expected


def test_a_disk_that_is_not_registered_does_not_vote() -> None:
    assert plan_voters(status("u", "uu"), ME, frozenset({ME, DISKS[1]})) is None


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
    assert plan_voters(status(voters, observers), ME, frozenset(DISKS) - {DISKS[2]}) == expected
