"""Going on without a majority of the metadata's voters: as another cluster, from what one member has.

A majority that is lost cannot be told from one that is cut off, and no member can keep it from working together
somewhere else. So what goes on is another cluster, with an id of its own: whatever comes back of the old one is refused
by every listener of the new one, can be joined by nobody, and acknowledges nothing of it. One member recovers: it is
the only voter of the new cluster, with all entries of its log, committed or not, since the lost majority may have
committed them. The others that are left follow: they forget their Raft logs and enter the new cluster with their disks.

An order lies in the data directory and is carried out at the start, before anything is opened; cut off at any point it
is carried out by the next start. The old metadata are kept under `former`.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import UUID

from walrus_node.address import Address
from walrus_node.commands import envelope, remove_node
from walrus_node.files import DataRefusedError, move_durably, rename_durably, replace_durably, sync_directory
from walrus_node.identity import DataDirectory, Identity
from walrus_node.metadata.journal import Owner, read_owner
from walrus_node.metadata.raft_store import found, prepare_to_join
from walrus_node.metadata.reading import read_all
from walrus_node.metadata.store import Rejected

log = logging.getLogger(__name__)

_FILE = "recovery.json"


@dataclass(frozen=True)
class Order:
    """What a member is to do at its next start."""

    # The new cluster's id.
    cluster_id: UUID
    # Disks that will never come back. `None`: follow whoever recovers.
    gone: frozenset[UUID] | None
    # Raft addresses of members that are left.
    seeds: tuple[str, ...]


def give_order(directory: Path, order: Order) -> None:
    """Durable on return."""
    facts = asdict(order) | {
        "cluster_id": str(order.cluster_id),
        "gone": None if order.gone is None else sorted(map(str, order.gone)),
    }
    replace_durably(directory / _FILE, json.dumps(facts, indent=2).encode())


def carry_out_order(directory: DataDirectory, identity: Identity) -> tuple[Identity, tuple[str, ...]]:
    """Who the node is after the order that lies there, if one does, and whom it may ask to be admitted.

    Raises `DataRefusedError` where the metadata cannot be read, with nothing changed.
    """
    order = _read_order(directory.path / _FILE)
    if order is None:
        return identity, ()
    if identity.cluster_id != order.cluster_id:
        _go_on_as(directory, identity, order)
        identity = replace(identity, cluster_id=order.cluster_id)
        directory.save_identity(identity)
        log.warning("the metadata go on as those of cluster %s", order.cluster_id)
    return identity, order.seeds


def forget_order(directory: Path) -> None:
    """It is carried out, and this node is in the new cluster."""
    path = directory / _FILE
    if path.exists():
        path.unlink()
        sync_directory(directory)


def _go_on_as(directory: DataDirectory, identity: Identity, order: Order) -> None:
    fresh = directory.path / "metadata.recovered"
    owner = Owner(order.cluster_id, identity.disk)
    if directory.metadata.exists() and read_owner(directory.metadata / "journal").cluster_id != order.cluster_id:
        if fresh.exists():
            _remove(fresh)
        _lay_down(directory.metadata, fresh, owner, order)
        old = read_owner(directory.metadata / "journal").cluster_id
        move_durably(directory.metadata, directory.path / "former" / f"cluster-{old}" / "metadata")
    if not directory.metadata.exists():
        rename_durably(fresh, directory.metadata)


def _lay_down(old: Path, fresh: Path, owner: Owner, order: Order) -> None:
    """All of the new metadata is in *fresh* on return."""
    if order.gone is None:
        prepare_to_join(fresh, owner)
        return
    machine, _ = read_all(old)
    for disk, node in machine.view().nodes.items():
        if disk in order.gone:
            outcome = machine.apply(envelope(remove_node(node.node_id, disk, lost=True, replaced_by=None)))
            if isinstance(outcome, Rejected):
                raise DataRefusedError(f"disk {disk} cannot be taken out of the metadata in {old}: {outcome.message}")
    found(fresh, owner, machine.snapshot_as(owner.cluster_id))


def _read_order(path: Path) -> Order | None:
    try:
        facts = json.loads(path.read_bytes())
        gone = facts["gone"]
        return Order(
            UUID(facts["cluster_id"]),
            None if gone is None else frozenset(map(UUID, gone)),
            tuple(str(Address.parse(seed)) for seed in facts["seeds"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DataRefusedError(
            f"{path} is damaged: remove it, and give the order again with `walrus cluster recover-metadata`"
        ) from None


def _remove(directory: Path) -> None:
    for leftover in directory.iterdir():
        leftover.unlink()
    directory.rmdir()
