"""The releases of Walrus that this operator knows, and whether brokers of two of them can be in one cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Wire:
    """Versions of the frames between brokers that a broker speaks, both ends included."""

    oldest: int
    newest: int

    def meets(self, other: Wire) -> bool:
        """Whether brokers of the two can speak with each other."""
        return max(self.oldest, other.oldest) <= min(self.newest, other.newest)

    @classmethod
    def parse(cls, text: str) -> Wire:
        """From what `str` makes of it."""
        oldest, newest = text.split(" to ")
        return cls(int(oldest), int(newest))

    def __str__(self) -> str:
        return f"{self.oldest} to {self.newest}"


@dataclass(frozen=True)
class Release:
    """A release."""

    version: str
    wire: Wire
    level: int
    """Up to which level its brokers know commands of the metadata; on a cluster that uses more they do not start."""


Table = tuple[Release, ...]
"""Releases, the oldest first."""

RELEASES: Table = (Release("0.1.0", Wire(3, 3), 9),)
"""All that there are. `CONTRIBUTING.md` says when one is added."""


def release_of(version: str | None, table: Table) -> Release | None:
    """The release of this version; None where the table does not know it."""
    return next((release for release in table if release.version == version), None)


def way_to(wanted: Release, running: Iterable[Wire], level: int, table: Table) -> Release | None:
    """The release to take first on the way from what runs to the one that is wanted, and that starts at this level.

    None where none is known that everyone who runs can speak with.
    """
    wires = list(running)
    takeable = [one for one in table if one.level >= level and all(one.wire.meets(wire) for wire in wires)]
    goes_up = all(wire.newest <= wanted.wire.newest for wire in wires)
    return takeable[-1 if goes_up else 0] if takeable else None
