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
