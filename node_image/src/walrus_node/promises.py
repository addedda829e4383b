"""Coming back on a disk that has forgotten what it promised.

A store whose journal lost its end has forgotten votes. Whoever went on with it as the same disk could vote a second
time, and undo what was acknowledged. So its node becomes another disk: a new identity, an empty store, an empty Raft
log, and the files of the old disk under `former/DISK`, from which others may fetch what they lack. Its own journal
proves that the old disk will never vote again, so the node itself declares it gone when it asks to be admitted.

The only node of a cluster has nobody to ask, and nobody else can have voted: it goes on as it is, and says what may be
lost.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import walrus_core

from walrus_node.files import DataRefusedError, move_durably
from walrus_node.identity import DataDirectory, Identity
from walrus_node.metadata.journal import read_owner
from walrus_node.metadata.reading import Members, read_members

log = logging.getLogger(__name__)

FORMER = "former"


@dataclass(frozen=True)
class Return:
    """Who the node is now. `seeds`: Raft addresses of those who know the disk that it was before."""

    identity: Identity
    seeds: tuple[str, ...] = ()
    # It has forgotten votes and is the only node: nobody else can have voted.
    is_alone: bool = False


def come_back(directory: DataDirectory, identity: Identity) -> Return:
    """Become another disk where the store has lost promises; raises `DataRefusedError`.

    Cut off at any point it is finished by the next start: the new identity is durable first, and the store is moved
    before the metadata, which say whose they are.
    """
    if identity.replaces is None or identity.node_id is not None:
        lost = _lost_end(directory.path / "log")
        if lost is None:
            return Return(identity)
        members = read_members(directory.metadata) if directory.metadata.exists() else Members()
        if members.disks.keys() == {identity.disk} == members.voters:
            log.error("%s, and this is the only node of its cluster: it goes on, and says what may be lost", lost)
            return Return(identity, is_alone=True)
        identity = Identity(uuid4(), replaces=identity.disk)
        log.error("%s: this node comes back as disk %s in place of disk %s", lost, identity.disk, identity.replaces)
        directory.save_identity(identity)
    assert identity.replaces is not None, "looked at above"
    former = directory.path / FORMER / str(identity.replaces)
    _set_aside(directory, identity.replaces, former)
    members = read_members(former / "metadata")
    return Return(identity, seeds=tuple(sorted(members.addresses_but(identity.replaces))))


def _lost_end(store: Path) -> str | None:
    """What a store has lost of its journal; `None` if nothing. A look changes nothing."""
    if not store.exists():
        return None
    try:
        facts = walrus_core.inspect_store(store)
    except (walrus_core.WalrusError, OSError):
        return None  # the data plane cannot open it either, and says why
    lost = facts["recovery"]["lost_end"]
    if lost is not None:
        return (
            f"the journal of {store} ends with record {lost['last_sequence']}, {lost['durable_sequence']} was durable, "
            "and what this disk promised to others is lost"
        )
    return f"the journal of {store} had lost its end once, and with it promises" if facts["lost_promises"] else None


def _set_aside(directory: DataDirectory, disk: UUID, former: Path) -> None:
    """Move what that disk has out of the way of the new one."""
    if not directory.metadata.exists() or read_owner(directory.metadata / "journal").disk != disk:
        return  # it is done
    if (directory.path / "log").exists():
        if (former / "log").exists():
            raise DataRefusedError(f"{former / 'log'} and {directory.path / 'log'} are both of disk {disk}: remove one")
        move_durably(directory.path / "log", former / "log")
    move_durably(directory.metadata, former / "metadata")
