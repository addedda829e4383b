"""The node, put together: the only file that builds its parts and knows their order."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import json
import logging
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import walrus_core

from walrus_node.config import Address, Config
from walrus_node.controller import Controller, Me, execute, register
from walrus_node.files import DataRefusedError
from walrus_node.http import Facts, HttpServer
from walrus_node.identity import DataDirectory, Identity
from walrus_node.metadata.admission import Admitted, JoinRequest, encode_admitted, join, parse_join
from walrus_node.metadata.journal import Owner, read_owner
from walrus_node.metadata.machine import ClusterState, MetadataMachine
from walrus_node.metadata.raft_store import Place, RaftStore, found, prepare_to_join
from walrus_node.metadata.transport import listen
from walrus_node.metadata.wire import BadFrameError
from walrus_node.metrics import build_registry

log = logging.getLogger(__name__)

FAILED, DATA_REFUSED, PORT_IN_USE = 1, 3, 4

_GRACE_MS = 1_000
_STOP_SECONDS_MAX = 1.8
_WAITING = "admission: the data directory is empty; start with --join HOST:RAFT_PORT, or once with --bootstrap"


class StartError(Exception):
    """The node cannot run; the message is for its user."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


async def run(config: Config) -> None:
    """Run until SIGTERM or SIGINT; raises `StartError` when it cannot go on."""
    node = Node(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, node.request_stop)
    try:
        await node.run()
    except DataRefusedError as error:
        raise StartError(str(error), DATA_REFUSED) from None
    finally:
        await node.stop()


class Node:
    """One process: data directory, metadata, data plane, controller, HTTP."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._process = uuid4()
        self._directory: DataDirectory | None = None
        self._identity: Identity | None = None
        self._listener: socket.socket | None = None
        self._raft = config.raft
        self._http_bound = config.http
        self._store: RaftStore[ClusterState] | None = None
        self._data_plane: walrus_core.DataPlane | None = None
        self._controller: Controller | None = None
        self._published: ClusterState | None = None
        self._publishing = threading.Lock()
        self._missing = "start: reading the data directory"
        self._stop_requested = asyncio.Event()
        self._failure: StartError | None = None
        self._admissions: set[asyncio.Task[None]] = set()
        status = lambda: self._store.status() if self._store else None  # noqa: E731 - one expression, used once
        metrics = lambda: self._data_plane.prometheus() if self._data_plane else ""  # noqa: E731
        self._http = HttpServer(Facts(self.missing, self.status, metrics, build_registry(status, self.missing)))

    async def run(self) -> None:
        """Start everything, then wait for the end."""
        starting = self._loop.create_task(self._start())
        stopping = self._loop.create_task(self._stop_requested.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await stopping
        else:
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
        if self._failure is not None:
            raise self._failure

    def request_stop(self) -> None:
        """End `run`."""
        self._stop_requested.set()

    async def stop(self) -> None:
        """Close what was opened, newest first, in less than two seconds."""
        try:
            await asyncio.wait_for(self._close(), _STOP_SECONDS_MAX)
        except TimeoutError:
            log.warning("stopped without waiting longer for what was under way")

    async def _close(self) -> None:
        if self._controller is not None:
            await self._controller.stop()
        if self._data_plane is not None:
            await asyncio.to_thread(self._data_plane.stop, _GRACE_MS)
        if self._store is not None:
            await asyncio.to_thread(self._store.stop)
        elif self._listener is not None:
            self._listener.close()
        await self._http.stop()
        if self._directory is not None:
            self._directory.unlock()
        log.info("stopped")

    async def _start(self) -> None:
        self._directory = DataDirectory(self._config.data_dir)
        self._identity = self._directory.load_identity()
        if self._config.node_id not in (None, self._identity.node_id or self._config.node_id):
            log.warning("--node-id %d is ignored: this disk is node %d", self._config.node_id, self._identity.node_id)
        self._listener = _listen(self._config.raft, "--raft-port")
        self._raft = Address(self._config.raft.host, self._listener.getsockname()[1])
        try:
            self._http_bound = await self._http.start(self._config.http)
        except OSError as error:
            raise _cannot_listen(self._config.http, "--http-port", error) from None
        store = await self._enter_cluster()
        await self._start_data_plane()
        assert self._data_plane is not None
        self._controller = Controller(self._me(), store, self._data_plane)
        self._controller.start()
        await self._controller.registered.wait()
        log.info(
            "ready: node %d, %s",
            self._identity.node_id,
            ", ".join(f"{name} {address}" for name, address in self._addresses().items()),
        )

    # Entering the cluster

    async def _enter_cluster(self) -> RaftStore[ClusterState]:
        """Found, join, wait to be told, or go on where the disk was; afterwards identity is complete."""
        assert self._directory is not None
        admitted: Admitted | None = None
        if not self._directory.metadata.exists():
            if self._known_identity.cluster_id is not None:
                raise DataRefusedError(
                    f"{self._directory.metadata} is missing, but this disk is in a cluster: put it back, "
                    "or give the node an empty data directory and let it join again"
                )
            admitted = await self._found_or_join()
        cluster_id = read_owner(self._directory.metadata / "journal").cluster_id
        self._remember(dataclasses.replace(self._known_identity, cluster_id=cluster_id))
        store = self._store = self._open_store(cluster_id)
        votes = self._known_identity.disk in store.status().voters()
        if not votes and admitted is None and (self._known_identity.node_id is None or not store.read().nodes):
            admitted = await self._join()
        if admitted is not None:
            self._remember(dataclasses.replace(self._known_identity, node_id=admitted.node_id))
            store.introduce(admitted.peers)
        self._missing = "metadata: waiting for a leader"
        store.start()
        if self._known_identity.node_id is None:
            await self._complete_founding(store, cluster_id)
        return store

    async def _found_or_join(self) -> Admitted | None:
        assert self._directory is not None
        if self._config.bootstrap:
            owner = Owner(uuid4(), self._known_identity.disk)
            found(self._directory.metadata, owner, MetadataMachine().snapshot())
            log.info("founded cluster %s", owner.cluster_id)
            return None
        admitted = await self._join()
        prepare_to_join(self._directory.metadata, Owner(admitted.cluster_id, self._known_identity.disk))
        return admitted

    async def _join(self) -> Admitted:
        if self._config.join is None:
            self._missing = _WAITING
            log.warning(_WAITING)
            await asyncio.Event().wait()
        seed = str(self._config.join)
        self._await_admission(f"asking {seed}")
        me = self._me()
        fields = {
            field.name: getattr(me, field.name) for field in dataclasses.fields(JoinRequest) if field.name != "wanted"
        }
        admitted = await join(seed, JoinRequest(wanted=me.node_id, **fields), self._await_admission)
        log.info("admitted to cluster %s as node %d", admitted.cluster_id, admitted.node_id)
        return admitted

    def _await_admission(self, why: str) -> None:
        if self._missing != (missing := f"admission: {why}"):
            log.info(missing)
        self._missing = missing

    async def _complete_founding(self, store: RaftStore[ClusterState], cluster_id: UUID) -> None:
        """The founder's first commands; each is harmless the second time."""
        await execute(store, {"bootstrap": {"cluster_id": str(cluster_id)}})
        node_id = await register(store, self._me(), lease_until_ms=0)
        self._remember(dataclasses.replace(self._known_identity, node_id=node_id))

    def _remember(self, identity: Identity) -> None:
        if identity != self._identity:
            assert self._directory is not None
            self._directory.save_identity(identity)
            self._identity = identity

    @property
    def _known_identity(self) -> Identity:
        assert self._identity is not None, "it is read before anything else"
        return self._identity

    # Parts

    def _open_store(self, cluster_id: UUID) -> RaftStore[ClusterState]:
        assert self._directory is not None
        assert self._listener is not None
        place = Place(
            self._directory.metadata,
            Owner(cluster_id, self._known_identity.disk),
            self._process,
            str(self._config.advertised(self._raft)),
            seeds=(str(self._config.join),) if self._config.join else (),
        )
        return RaftStore(
            place,
            MetadataMachine(),
            self._listener,
            on_published=self._publish,
            on_failed=self._hear_failure,
            on_join=self._hear_join,
        )

    async def _start_data_plane(self) -> None:
        self._missing = "data plane: opening the store"
        options = json.dumps(self._data_plane_options())
        try:
            data_plane = await asyncio.to_thread(walrus_core.DataPlane, options)
        except walrus_core.AddressInUse as error:
            raise StartError(f"{error}; another port: --client-port, --grpc-port, --peer-port", PORT_IN_USE) from None
        except (walrus_core.Locked, walrus_core.UnsupportedFormat, walrus_core.CorruptionError) as error:
            raise StartError(f"data directory {self._config.data_dir}: {error}", DATA_REFUSED) from None
        except (walrus_core.WalrusError, OSError) as error:
            raise StartError(f"the data plane cannot start: {error}", FAILED) from None
        with self._publishing:
            self._data_plane = data_plane
            if self._published is not None:
                data_plane.publish(self._published.metadata)

    def _publish(self, state: ClusterState) -> None:
        """Called by the store's thread, before anyone hears of the new state."""
        with self._publishing:
            self._published = state
            if self._data_plane is not None:
                self._data_plane.publish(state.metadata)

    def _data_plane_options(self) -> dict[str, Any]:
        config = self._config
        return {
            "data_dir": str(config.data_dir),
            "cluster_id": str(self._known_identity.cluster_id),
            "node_id": self._known_identity.node_id,
            "disk": str(self._known_identity.disk),
            "process": str(self._process),
            "text_address": str(config.text),
            "grpc_address": str(config.grpc),
            "peer_address": str(config.peer),
            "advertise_host": config.advertise_host,
            "backend": config.backend,
            "fsync": config.fsync,
            "segment_entries_max": config.segment_entries_max,
            "segment_bytes_max": config.segment_bytes_max,
            "segment_age_ms_max": config.segment_age_ms_max,
            "monitor_check_ms": config.monitor_check_ms,
            "auto_create_topics": config.auto_create_topics,
            "frame_bytes_max": config.frame_bytes_max,
            "test_controls": config.test_controls,
        }

    # Others who join

    def _hear_join(self, greeting: dict[str, Any], answer: Callable[[dict[str, Any]], None]) -> None:
        """Called by the store's thread."""
        self._loop.call_soon_threadsafe(self._admit, greeting, answer)

    def _admit(self, greeting: dict[str, Any], answer: Callable[[dict[str, Any]], None]) -> None:
        admission = self._loop.create_task(self._answer_join(greeting, answer))
        self._admissions.add(admission)
        admission.add_done_callback(self._admissions.discard)

    async def _answer_join(self, greeting: dict[str, Any], answer: Callable[[dict[str, Any]], None]) -> None:
        assert self._store is not None
        try:
            request = parse_join(greeting)
        except BadFrameError as error:
            answer({"refused": str(error)})
            return
        status = self._store.status()
        if not status.is_leader:
            leader = self._store.address_of(status.leader) if status.leader else None
            answer({"leader": leader} if leader else {"refused": "no metadata leader is known now"})
            return
        known = self._store.read().nodes.get(request.disk)
        if known is None or known.raft_address != request.raft_address:
            newcomer = Me(node_id=request.wanted, **{k: v for k, v in vars(request).items() if k != "wanted"})
            node_id = await register(self._store, newcomer, lease_until_ms=0)
        else:
            node_id = known.node_id
        addresses = ((disk, self._store.address_of(disk)) for disk in status.voters())
        peers = {disk: address for disk, address in addresses if address}
        cluster_id = self._known_identity.cluster_id
        assert cluster_id is not None
        answer(encode_admitted(Admitted(cluster_id, node_id, peers)))

    # What is shown

    def missing(self) -> list[str]:
        """What keeps the node from being ready; empty if nothing does."""
        return [self._missing] if self._controller is None else self._controller.missing()

    def status(self) -> dict[str, Any]:
        """The facts of /api/status."""
        identity = self._identity
        store = self._store
        status = store.status() if store else None
        return {
            "ready": not self.missing(),
            "missing": self.missing(),
            "node_id": identity.node_id if identity else None,
            "disk": str(identity.disk) if identity else None,
            "process": str(self._process),
            "cluster_id": str(identity.cluster_id) if identity and identity.cluster_id else None,
            "addresses": self._addresses(),
            "raft": None if status is None else json.loads(json.dumps(dataclasses.asdict(status), default=str)),
            "metadata_version": status.version if status else None,
            "nodes": [
                {"node_id": node.node_id, "disk": str(disk), "raft_address": node.raft_address}
                for disk, node in (store.read().nodes if store else {}).items()
            ],
        }

    def _me(self) -> Me:
        """This node as others see it now; before the data plane listens, a port that the system chooses is still 0."""
        addresses = self._addresses()
        return Me(
            node_id=self._known_identity.node_id or self._config.node_id,
            disk=self._known_identity.disk,
            process=self._process,
            **{f"{name}_address": address for name, address in addresses.items()},
        )

    def _addresses(self) -> dict[str, str]:
        """How others reach the listeners."""
        config = self._config
        bound = {
            "raft": self._raft,
            "http": self._http_bound,
            "text": config.text,
            "grpc": config.grpc,
            "peer": config.peer,
        }
        if self._data_plane is not None:
            for name, address in self._data_plane.addresses().items():
                bound[name] = Address(bound[name].host, int(address.rpartition(":")[2]))
        return {name: str(config.advertised(address)) for name, address in bound.items()}

    def _hear_failure(self, error: Exception) -> None:
        """Called by the store's thread."""
        self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: Exception) -> None:
        code = DATA_REFUSED if isinstance(error, DataRefusedError) else FAILED
        self._failure = StartError(f"the metadata cannot go on: {error}", code)
        self.request_stop()


def _listen(address: Address, flag: str) -> socket.socket:
    try:
        return listen(address.host, address.port)
    except OSError as error:
        raise _cannot_listen(address, flag, error) from None


def _cannot_listen(address: Address, flag: str, error: OSError) -> StartError:
    if error.errno == errno.EADDRINUSE:
        return StartError(f"port {address} is in use by another process; choose another one with {flag}", PORT_IN_USE)
    return StartError(f"cannot listen on {address} ({flag}): {error.strerror or error}", FAILED)
