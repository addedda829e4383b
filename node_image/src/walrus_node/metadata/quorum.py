"""What the metadata would lack without one of its voters. Pure."""

from __future__ import annotations

from uuid import UUID

from walrus_node.metadata.store import Status


def keeps_majority(status: Status, disk: UUID) -> bool:
    """Whether the voters that are connected are still a majority of all when this disk stops."""
    connected = {member.disk for member in status.members if member.voter and member.connected}
    return 2 * len(connected - {disk}) > len(status.voters())


def may_remove(status: Status, disk: UUID) -> bool:
    """Whether the change can be committed, and those that are left have a majority of their own."""
    voters = status.voters()
    connected = {member.disk for member in status.members if member.voter and member.connected}
    left = voters - {disk}
    return 2 * len(connected) > len(voters) and 2 * len(connected & left) > len(left)


def why_majority(status: Status) -> str | None:
    """That a majority of the voters is there; `None`: this member sees none."""
    voters = status.voters()
    there = {member.disk for member in status.members if member.connected}
    if 2 * len(voters & there) > len(voters):
        return (
            f"{len(voters & there)} of {len(voters)} voters are there, which is a majority: nothing is to be recovered"
        )
    return None


def why_not_recovered(status: Status, me: UUID, gone: frozenset[UUID]) -> str | None:
    """Why the metadata are not to go on without their majority, seen by the member that would; `None`: they may."""
    voters = status.voters()
    alive = gone & {member.disk for member in status.members if member.connected}
    if me in gone:
        return f"disk {me} is this node's, which is to go on: name the disks that will never come back"
    if alive:
        return f"disk {min(alive)} is there, so it is not gone"
    if 2 * len(voters - gone) > len(voters):
        return (
            f"{len(voters - gone)} of {len(voters)} voters are not named as gone, which is a majority: "
            "bring them back, or name those that will never come back"
        )
    return why_majority(status)


def spare_nodes(status: Status, of_segments: int | None) -> int:
    """How many nodes may stop, whichever they are: the voters keep a majority, and segments what they need.

    *of_segments* is what the segments can spare; None where none is stored.
    """
    connected = sum(member.voter and member.connected for member in status.members)
    of_metadata = max(connected - len(status.voters()) // 2 - 1, 0)
    return of_metadata if of_segments is None else min(of_metadata, of_segments)
