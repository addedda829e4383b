"""How many nodes may stop: what the voters allow, and what the segments allow."""

from uuid import UUID

import pytest
from walrus_node.metadata.quorum import spare_nodes
from walrus_node.metadata.store import Member, Status


def status(voters: str, observers: str = "") -> Status:
    """One letter for each member: `u` up, `d` disconnected. The first voter is this node."""
    members = [
        Member(UUID(int=place + 1), place < len(voters), letter == "u", 0)
        for place, letter in enumerate(voters + observers)
    ]
    return Status("leader", 1, members[0].disk, 9, 9, 9, tuple(members), 9, None)


@pytest.mark.parametrize(
    ("voters", "observers", "of_segments", "spare"),
    [
        ("u", "", None, 0),
        ("uuu", "", None, 1),
        ("uuu", "uuuu", 1, 1),
        ("uud", "uuuu", 1, 0),
        ("uuuuu", "", 1, 1),
        ("uuuuu", "", 2, 2),
        ("uuuuu", "", 0, 0),
        ("uuuud", "", 2, 1),
        ("udd", "", 1, 0),
    ],
)
def test_the_least_of_both(voters: str, observers: str, of_segments: int | None, spare: int) -> None:
    assert spare_nodes(status(voters, observers), of_segments) == spare
