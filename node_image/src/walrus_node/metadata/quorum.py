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


def spare_nodes(status: Status, of_segments: int | None) -> int:
    """How many nodes may stop, whichever they are: the voters keep a majority, and segments what they need.

    *of_segments* is what the segments can spare; None where none is stored.
    """
    connected = sum(member.voter and member.connected for member in status.members)
    of_metadata = max(connected - len(status.voters()) // 2 - 1, 0)
    return of_metadata if of_segments is None else min(of_metadata, of_segments)
