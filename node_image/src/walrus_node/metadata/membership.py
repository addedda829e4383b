"""Who votes on metadata: 1, 3 or 5 disks. Pure.

One change at a time, so an even set is only ever on its way to an odd one. A voter that was taken out of the cluster
goes first; one that is away for too long goes where an observer can take its place, and comes back as an observer.
Voters are spread over zones: one goes where an observer of a zone with fewer voters can take its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from walrus_node.metadata.store import Member, Status

VOTERS_MAX = 5
# A new voter must hold nearly everything: until it has caught up, a majority with it cannot commit.
LAG_ENTRIES_MAX = 64


@dataclass(frozen=True)
class AddVoter:
    """Make this observer a voter."""

    disk: UUID


@dataclass(frozen=True)
class RemoveVoter:
    """Make this voter an observer."""

    disk: UUID


def plan_voters(
    status: Status, me: UUID, zones: Mapping[UUID, str], away: frozenset[UUID]
) -> AddVoter | RemoveVoter | None:
    """The next change, seen by the metadata leader `me`; `None` if nothing is to be done, or can be.

    `zones`: the zone of each disk that is registered, "" where nobody has told it. `away`: members that were silent for
    so long that they are not waited for.
    """
    voters = [member for member in status.members if member.voter]
    candidates = [
        member
        for member in status.members
        if not member.voter
        and member.disk in zones
        and member.disk not in away
        and member.connected
        and _has_caught_up(member)
    ]
    target = _target(len(voters) + len(candidates))
    crowd = Counter(zones.get(member.disk, "") for member in voters)
    removed = [member.disk for member in voters if member.disk not in zones and member.disk != me]
    if removed:
        return RemoveVoter(min(removed))
    replaceable = [m.disk for m in voters if m.disk in away and not m.connected and m.disk != me]
    # Without it fewer are needed for a majority, and the next change makes the set odd again.
    if replaceable and candidates and len(voters) % 2:
        return RemoveVoter(min(replaceable))
    if len(voters) < target and candidates:
        return AddVoter(min(candidates, key=lambda member: (crowd[zones[member.disk]], member.disk)).disk)
    if len(voters) % 2 == 0:
        # The candidate that would have made it odd is gone.
        gone = [member for member in voters if member.disk != me]
        return RemoveVoter(min(gone, key=lambda member: (member.connected, member.disk)).disk)
    if all(member.connected or member.disk == me for member in voters):
        return _one_too_many([member.disk for member in voters], me, [m.disk for m in candidates], zones)
    return None


def _one_too_many(
    voters: list[UUID], me: UUID, candidates: list[UUID], zones: Mapping[UUID, str]
) -> RemoveVoter | None:
    """The voter in whose place one of another zone leaves the zones more equal; the next change adds that one."""
    crowd = Counter(zones.get(voter, "") for voter in voters)
    least = min((crowd[zones[candidate]] for candidate in candidates), default=len(voters))
    others = [voter for voter in voters if voter != me]
    most = min(others, key=lambda voter: (-crowd[zones[voter]], voter), default=None)
    return RemoveVoter(most) if most is not None and crowd[zones[most]] > least + 1 else None


def _target(available: int) -> int:
    """The largest odd set that the available disks can fill."""
    odd = available if available % 2 else available - 1
    return min(VOTERS_MAX, max(1, odd))


def _has_caught_up(member: Member) -> bool:
    return member.lag is not None and member.lag <= LAG_ENTRIES_MAX
