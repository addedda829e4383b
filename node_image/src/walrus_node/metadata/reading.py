"""What the metadata of a node that does not run know of its cluster: read from their files, changing nothing.

All entries count, committed or not: a lost majority may have committed those that are not known to be. They may be
behind all the same: a member that runs knows better, and is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from walrus_node.files import DataRefusedError
from walrus_node.metadata.journal import Journal, read_owner
from walrus_node.metadata.machine import MetadataMachine
from walrus_node.metadata.raft.pinned import MEMBERSHIP, REGULAR
from walrus_node.metadata.raft.voters import decode_voters
from walrus_node.metadata.snapshot import load_snapshot


@dataclass(frozen=True)
class Members:
    """Disks and their Raft addresses, and which of them vote."""

    disks: Mapping[UUID, str] = field(default_factory=dict)
    voters: frozenset[UUID] = frozenset()

    def addresses_but(self, disk: UUID) -> set[str]:
        """Where the others are."""
        return {address for known, address in self.disks.items() if known != disk and address}


def read_members(directory: Path) -> Members:
    """Raises `DataRefusedError` where the files are damaged."""
    machine, voters = read_all(directory)
    return Members(dict(machine.raft_addresses()), voters)


def read_all(directory: Path) -> tuple[MetadataMachine, frozenset[UUID]]:
    """The state and the voters after every entry; raises `DataRefusedError` where the files are damaged."""
    journal = Journal(directory / "journal", read_owner(directory / "journal"))
    try:
        snapshot = load_snapshot(directory / "snapshot")
        machine = MetadataMachine()
        if snapshot is not None:
            try:
                machine.restore(snapshot.state)
            except ValueError as error:
                raise DataRefusedError(f"metadata snapshot {directory / 'snapshot'} cannot be read: {error}") from None
        applied, voters = (snapshot.index, snapshot.voters) if snapshot is not None else (0, frozenset[UUID]())
        for entry in journal.entries(1):
            if entry.command[0] == MEMBERSHIP:
                voters = decode_voters(entry.command[1:])
            elif entry.command[0] == REGULAR and entry.index > applied:
                machine.apply(entry.command[1:])
    finally:
        journal.close()
    return machine, voters
