"""This node's own way into its cluster: found it, ask to join it, wait to be told, or go on where the disk was.

Each step can be cut off by a crash and is taken again: the metadata directory appears as a whole, then the identity is
completed; a disk that was admitted before gets the same answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from walrus_node.address import Address
from walrus_node.commands import bootstrap, execute, register
from walrus_node.config import is_wildcard
from walrus_node.files import DataRefusedError
from walrus_node.identity import DataDirectory, Identity
from walrus_node.metadata.admission import Admitted, JoinRequest, join, refuse_others
from walrus_node.metadata.journal import Owner, read_owner
from walrus_node.metadata.machine import ClusterState, MetadataMachine
from walrus_node.metadata.raft_store import RaftStore, found, prepare_to_join
from walrus_node.metadata.reports import Replication

log = logging.getLogger(__name__)

_WAITING = "admission: the data directory is empty; start with --join HOST:RAFT_PORT, or once with --bootstrap"


@dataclass(frozen=True)
class Entered:
    """A node in its cluster: its store runs, and its identity is complete."""

    store: RaftStore[ClusterState]
    identity: Identity
    cluster_id: UUID
    node_id: int


class Entrance:
    """Leaves behind a running store and a complete identity."""

    def __init__(
        self,
        directory: DataDirectory,
        request: JoinRequest,
        *,
        listener: socket.socket,
        bootstrap: bool,
        bootstrap_nodes: int,
        replication: Replication,
        seeds: Sequence[Address],
        on_waiting: Callable[[str], None],
    ) -> None:
        """*replication* is that of a cluster founded here, *listener* that of the Raft port.

        *on_waiting* hears what the node waits for.
        """
        self._directory = directory
        self._request = request
        self._listener = listener
        self._bootstrap = bootstrap
        self._bootstrap_nodes = bootstrap_nodes
        self._replication = replication
        self._seeds = seeds
        self._on_waiting = on_waiting
        self._told = ""

    async def enter(self, identity: Identity, open_store: Callable[[UUID], RaftStore[ClusterState]]) -> Entered:
        """Raises `DataRefusedError`; waits as long as nobody admits this node."""
        admitted = None if self._directory.metadata.exists() else await self._create_metadata(identity)
        cluster_id = read_owner(self._directory.metadata / "journal").cluster_id
        identity = self._remember(identity, replace(identity, cluster_id=cluster_id))
        store = open_store(cluster_id)
        known = store.read().nodes.get(identity.disk)
        if identity.node_id is None and known is not None:
            # An identity that was made again lacks it; the metadata here are those of the last start, at least.
            identity = self._remember(identity, replace(identity, node_id=known.node_id))
        founded_here = identity.disk in store.status().voters()
        if not founded_here and admitted is None and (identity.node_id is None or not store.read().nodes):
            admitted = await self._join()
        if admitted is not None:
            identity = self._remember(identity, replace(identity, node_id=admitted.node_id))
            store.introduce(admitted.peers)
        self._wait_for("metadata: waiting for a leader")
        store.start()
        node_id = identity.node_id
        if node_id is None:
            # The founder's first commands; each is harmless the second time.
            await execute(store, bootstrap(cluster_id, self._replication))
            node_id = await register(store, self._request.registration)
            identity = self._remember(identity, replace(identity, node_id=node_id))
        return Entered(store, identity, cluster_id, node_id)

    async def _create_metadata(self, identity: Identity) -> Admitted | None:
        metadata = self._directory.metadata
        if identity.cluster_id is not None:
            raise DataRefusedError(
                f"{metadata} is missing, but this disk is in a cluster: put it back, "
                "or give the node an empty data directory and let it join again"
            )
        admitted = None
        if not (self._bootstrap and not self._seeds):
            admitted = await self._join(may_found=self._bootstrap)
        if admitted is None:
            owner = Owner(uuid4(), identity.disk)
            found(metadata, owner, MetadataMachine().snapshot())
            log.info("founded cluster %s", owner.cluster_id)
            return None
        prepare_to_join(metadata, Owner(admitted.cluster_id, identity.disk))
        return admitted

    async def _join(self, *, may_found: bool = False) -> Admitted | None:
        """`None`: this node is to found the cluster."""
        refusing = asyncio.create_task(refuse_others(self._listener, self._request.secrets))
        try:
            admitted = await self._ask(may_found=may_found)
        finally:
            refusing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await refusing
        if admitted is not None:
            log.info("admitted to cluster %s as node %d", admitted.cluster_id, admitted.node_id)
        return admitted

    async def _ask(self, *, may_found: bool) -> Admitted | None:
        if not self._seeds:
            self._wait_for(_WAITING)
            await asyncio.Event().wait()
        self._wait_for(f"admission: asking {', '.join(map(str, self._seeds))}")
        bound = Address(*self._listener.getsockname()[:2])
        return await join(
            [str(seed) for seed in self._seeds],
            self._request,
            lambda why: self._wait_for(f"admission: {why}"),
            may_found=may_found,
            nodes_min=self._bootstrap_nodes,
            is_own=lambda address: _is_own(address, bound),
        )

    def _wait_for(self, what: str) -> None:
        if what != self._told:
            log.info("%s", what)
        self._told = what
        self._on_waiting(what)

    def _remember(self, known: Identity, identity: Identity) -> Identity:
        if identity != known:
            self._directory.save_identity(identity)
        return identity


def _is_own(address: str, bound: Address) -> bool:
    """Whether an address with an ip is that of the listener that is bound there."""
    ip, _, port = address.rpartition(":")
    ip = ip.strip("[]")
    if int(port) != bound.port:
        return False
    if not is_wildcard(bound.host):
        return ip == bound.host
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((ip, 0))
        except OSError:
            return False  # no address of this machine
    return True
