"""The ground that a node stands on before anybody can talk to it: its options, its data directory, its Raft port."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from uuid import UUID, uuid4

import walrus_core

from walrus_node.address import Address, with_ports
from walrus_node.advertised import AdvertisedAddresses
from walrus_node.closing import Closing
from walrus_node.config import Config
from walrus_node.ending import FAILED, PORT_IN_USE, StartError
from walrus_node.identity import DataDirectory, Identity
from walrus_node.metadata.admission import Registration
from walrus_node.metadata.journal import read_owner
from walrus_node.metadata.reports import Listener
from walrus_node.metadata.transport import listen
from walrus_node.promises import come_back
from walrus_node.recovery import carry_out_order
from walrus_node.secret import Secrets

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ground:
    """What a node knows and holds before its first server answers."""

    config: Config
    secrets: Secrets
    # This process; each start has another one.
    process: UUID
    # The data directory is locked as long as the node lives.
    directory: DataDirectory
    # Who the disk was at the start: cluster and node id are missing where it has never been admitted.
    identity: Identity
    # Whether the disk has forgotten votes and is the only node of its cluster.
    is_alone: bool
    # Raft addresses at which to ask to be admitted.
    seeds: tuple[Address, ...]
    # The Raft port is bound, and nobody accepts on it yet.
    listener: socket.socket
    raft: Address

    @property
    def level(self) -> int:
        """Up to which level this node knows commands of the metadata."""
        return self.config.test_level or walrus_core.Metadata.LEVEL

    @property
    def bound(self) -> dict[str, Address]:
        """Where each listener is, or will be: of those that are not open yet what the options say."""
        config = self.config
        return {
            "raft": self.raft,
            "http": config.http,
            "admin": config.admin,
            "text": config.text,
            "grpc": config.grpc,
            "peer": config.peer,
        }

    def advertised(self, bound: Mapping[str, Address]) -> dict[str, str]:
        """How others reach listeners that are bound there."""
        hosts = {"raft": self.config.raft_advertise_host}
        return {name: str(self.config.advertised(address, hosts.get(name))) for name, address in bound.items()}

    def listeners(self, told: Mapping[str, str]) -> AdvertisedAddresses:
        """The listeners that the options name, at the ports *told*, as others reach them."""
        named = self.config.listeners
        known = [one for one in named if not one.is_told_by_file]
        reached = self.advertised(with_ports({one.key: one.bind for one in known}, told))
        return AdvertisedAddresses(
            tuple(Listener(one.protocol, one.org, str(one.advertise or reached[one.key]), one.name) for one in known),
            tuple(Listener(one.protocol, one.org, "", one.name) for one in named if one.is_told_by_file),
            self.config.advertised_file,
        )

    def registration(self, addresses: Mapping[str, str], node_id: int | None) -> Registration:
        """What the node says of itself, reached at these *addresses*; without an id it says which one it would like."""
        return Registration(
            wanted=node_id or self.config.node_id,
            disk=self.identity.disk,
            process=self.process,
            name=self.config.node_name,
            level=self.level,
            listeners=(),
            **{f"{name}_address": address for name, address in addresses.items()},
        )


async def lay_ground(config: Config, secrets: Secrets, closing: Closing) -> Ground:
    """Lock the data directory, find out who the disk is, and bind the Raft port.

    Raises `DataRefusedError` and `StartError`.
    """
    directory = DataDirectory(config.data_dir)
    closing.add(directory.unlock)
    owner = partial(read_owner, directory.metadata / "journal")
    identity = directory.load_identity(lambda: (owner().disk, owner().cluster_id))
    if config.node_id not in (None, identity.node_id or config.node_id):
        log.warning("--node-id %d is ignored: this disk is node %d", config.node_id, identity.node_id)
    identity, leaders = await asyncio.to_thread(carry_out_order, directory, identity)
    back = await asyncio.to_thread(come_back, directory, identity)
    listener = _listen(config.raft, "--raft-port")
    closing.add(listener.close)
    return Ground(
        config,
        secrets,
        uuid4(),
        directory,
        back.identity,
        is_alone=back.is_alone,
        seeds=(*config.join, *map(Address.parse, (*back.seeds, *leaders))),
        listener=listener,
        raft=Address(config.raft.host, listener.getsockname()[1]),
    )


def _listen(address: Address, flag: str) -> socket.socket:
    try:
        return listen(address.host, address.port)
    except OSError as error:
        raise _cannot_listen(address, flag, error) from None


def _cannot_listen(address: Address, flag: str, error: OSError) -> StartError:
    if error.errno == errno.EADDRINUSE:
        return StartError(f"port {address} is in use by another process; choose another one with {flag}", PORT_IN_USE)
    return StartError(f"cannot listen on {address} ({flag}): {error.strerror or error}", FAILED)
