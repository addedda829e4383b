"""The node, put together: the only file that builds its parts and knows their order."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import json
import logging
import shutil
import signal
import socket
import threading
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import walrus_core
from walrus_client.v1 import admin_pb2

from walrus_node import __version__, logs
from walrus_node.acquaintance import Acquaintance
from walrus_node.address import Address
from walrus_node.admin.server import AdminServer
from walrus_node.admin.service import Facts as AdminFacts
from walrus_node.admissions import Admissions
from walrus_node.config import Config, Limits
from walrus_node.controller import Controller
from walrus_node.entrance import Entrance
from walrus_node.files import DataRefusedError
from walrus_node.front import Front
from walrus_node.http import Facts, HttpServer
from walrus_node.identity import DataDirectory, Identity
from walrus_node.metadata.admission import JoinRequest, Registration
from walrus_node.metadata.journal import Owner, read_owner
from walrus_node.metadata.machine import ClusterState, MetadataMachine
from walrus_node.metadata.raft_store import Place, RaftStore
from walrus_node.metadata.transport import listen
from walrus_node.metadata.wire import WIRE, Versions
from walrus_node.metrics import build_registry
from walrus_node.policy import rollover_policy
from walrus_node.presence import LEASE_MS, Presence
from walrus_node.promises import come_back
from walrus_node.recovery import Order, carry_out_order, forget_order, give_order
from walrus_node.secret import Secrets

log = logging.getLogger(__name__)

FAILED, DATA_REFUSED, PORT_IN_USE = 1, 3, 4

_GRACE_MS = 1_000
_RESTART_SECONDS = 0.5
_STOP_SECONDS_MAX = 1.8


class StartError(Exception):
    """The node cannot run; the message is for its user."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


async def run(config: Config) -> bool:
    """Run until SIGTERM or SIGINT; raises `StartError` when it cannot go on. True: it is to be started again."""
    try:
        node = Node(config)
    except DataRefusedError as error:
        raise StartError(str(error), FAILED) from None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, node.request_stop)
    try:
        await node.run()
    except DataRefusedError as error:
        raise StartError(str(error), DATA_REFUSED) from None
    finally:
        await node.stop()
    return node.starts_again


class Node:
    """One process: data directory, metadata, data plane, controller, HTTP."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._process = uuid4()
        self._directory: DataDirectory | None = None
        self._identity: Identity | None = None
        self._is_only_node = False
        self._listener: socket.socket | None = None
        self._front: Front | None = None
        self._raft = config.raft
        self._fronted = {"http": config.http, "admin": config.admin}
        self._store: RaftStore[ClusterState] | None = None
        self._data_plane: walrus_core.DataPlane | None = None
        self._controller: Controller | None = None
        self._secrets = Secrets(config.secret_file)
        self._level = config.test_level or walrus_core.Metadata.LEVEL
        self._presence = Presence()
        self._published: ClusterState | None = None
        self._publishing = threading.Lock()
        self._policy = rollover_policy(config, {})
        self._missing = "start: reading the data directory"
        self._stop_requested = asyncio.Event()
        self._failure: StartError | None = None
        self.starts_again = False
        status = lambda: self._store.status() if self._store else None  # noqa: E731 - one expression, used once
        metrics = lambda: self._data_plane.prometheus() if self._data_plane else ""  # noqa: E731
        store = lambda: self._store  # noqa: E731 - it is there later
        self._admin = AdminServer(
            AdminFacts(
                self._tell_identity,
                self.missing,
                self._tell_storage,
                store,
                self._presence.look,
                logs.change_level,
                self._count_behind,
                self._tell_remains,
                self._secrets,
                self._recover,
                self._start_again,
            )
        )
        copies = lambda: self._controller.copies.progress if self._controller else None  # noqa: E731
        registry = build_registry(status, self.missing, copies)
        self._http = HttpServer(Facts(self.missing, self.status, metrics, registry))

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
        await self._admin.stop()
        await self._http.stop()
        if self._front is not None:
            self._front.stop()
        if self._directory is not None:
            self._directory.unlock()
        log.info("stopped")

    async def _start(self) -> None:
        self._directory = DataDirectory(self._config.data_dir)
        owner = partial(read_owner, self._directory.metadata / "journal")
        identity = self._directory.load_identity(lambda: (owner().disk, owner().cluster_id))
        if self._config.node_id not in (None, identity.node_id or self._config.node_id):
            log.warning("--node-id %d is ignored: this disk is node %d", self._config.node_id, identity.node_id)
        identity, leaders = await asyncio.to_thread(carry_out_order, self._directory, identity)
        back = await asyncio.to_thread(come_back, self._directory, identity)
        self._identity, self._is_only_node = back.identity, back.is_alone
        seeds = (*self._config.join, *map(Address.parse, (*back.seeds, *leaders)))
        self._listener = _listen(self._config.raft, "--raft-port")
        self._raft = Address(self._config.raft.host, self._listener.getsockname()[1])
        await self._open_front()
        entrance = Entrance(
            self._directory,
            JoinRequest(self._registration(), self._secrets, self._identity.replaces or self._config.replaces),
            listener=self._listener,
            bootstrap=self._config.bootstrap and self._identity.replaces is None,
            bootstrap_nodes=self._config.bootstrap_nodes,
            replication={"factor": self._config.replication_factor, "write_quorum": self._config.write_quorum},
            seeds=seeds,
            on_waiting=self._set_missing,
        )
        store, self._identity = await entrance.enter(self._identity, self._open_store)
        forget_order(self._directory.path)
        data_plane = await self._start_data_plane()
        node_id = self._identity.node_id
        assert node_id is not None, "who has entered has an id"
        self._controller = Controller(node_id, self._registration(), store, data_plane, self._presence)
        self._controller.start()
        await self._controller.registered.wait()
        log.info(
            "ready: node %d, %s",
            node_id,
            ", ".join(f"{name} {address}" for name, address in self._addresses().items()),
        )

    # Parts

    async def _open_front(self) -> None:
        folder = self._config.data_dir / "sockets"
        try:
            self._front = Front(folder)
            await self._http.start(self._front.socket("http"))
            await self._admin.start(self._front.socket("admin"))
        except (OSError, RuntimeError) as error:
            raise StartError(f"no socket can be made in {folder}: {error}", FAILED) from None
        try:
            self._fronted = await self._front.listen(self._fronted, _limits(self._config.limits))
        except walrus_core.AddressInUse as error:
            raise StartError(f"{error} with --{error.facts['listener']}-port", PORT_IN_USE) from None
        except OSError as error:
            raise StartError(
                f"{error}; other places: --client-host, --http-port, --admin-host, --admin-port", FAILED
            ) from None

    def _open_store(self, cluster_id: UUID) -> RaftStore[ClusterState]:
        assert self._directory is not None
        assert self._identity is not None
        assert self._listener is not None
        admissions = Admissions(cluster_id)
        acquaintance = Acquaintance(
            JoinRequest(self._registration(), self._secrets), tuple(map(str, self._config.join))
        )
        place = Place(
            self._directory.metadata,
            Owner(cluster_id, self._identity.disk),
            self._process,
            self._addresses()["raft"],
            seeds=tuple(map(str, self._config.join)),
            wire=Versions(*self._config.test_wire) if self._config.test_wire else WIRE,
            secrets=self._secrets,
        )
        self._store = RaftStore(
            place,
            MetadataMachine(self._level),
            self._listener,
            on_published=self._publish,
            on_failed=self._hear_failure,
            on_join=admissions.hear,
            on_unknown_voter=acquaintance.hear,
        )
        return self._store

    async def _start_data_plane(self) -> walrus_core.DataPlane:
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
                self._hand_over(data_plane, self._published)
        return data_plane

    def _publish(self, state: ClusterState) -> None:
        """Called by the store's thread, before anyone hears of the new state."""
        self._presence.observe(state)
        with self._publishing:
            self._published = state
            if self._data_plane is not None:
                self._hand_over(self._data_plane, state)

    def _hand_over(self, data_plane: walrus_core.DataPlane, state: ClusterState) -> None:
        """The state, and the rollover policy where it is another one now."""
        assert self._identity is not None
        me = state.nodes.get(self._identity.disk)
        policy = rollover_policy(self._config, state.config.entries, draining=me is not None and me.draining)
        if policy != self._policy:
            data_plane.configure(json.dumps(policy))
            self._policy = policy
            log.info("rollover policy of settings version %d: %s", state.config.version, policy)
        data_plane.publish(state.metadata)

    def _data_plane_options(self) -> dict[str, Any]:
        config, identity = self._config, self._identity
        assert identity is not None
        options: dict[str, Any] = {
            "data_dir": str(config.data_dir),
            "cluster_id": str(identity.cluster_id),
            "node_id": identity.node_id,
            "disk": str(identity.disk),
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
            "lease_ms": LEASE_MS,
            "test_controls": config.test_controls,
            "is_only_node": self._is_only_node,
            **_limits(config.limits),
        }
        if config.memory_budget_bytes is not None:
            options["memory_budget_bytes"] = config.memory_budget_bytes
        if config.secret_file:
            options["secret_file"] = str(config.secret_file)
        if config.test_wire:
            options["wire_versions"] = dict(zip(("oldest", "newest"), config.test_wire, strict=True))
        return options

    # What is shown

    def _set_missing(self, what: str) -> None:
        self._missing = what

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
            "replaces": str(identity.replaces) if identity and identity.replaces else None,
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

    def _registration(self) -> Registration:
        assert self._identity is not None
        return Registration(
            wanted=self._identity.node_id or self._config.node_id,
            disk=self._identity.disk,
            process=self._process,
            name=self._config.node_name,
            level=self._level,
            **{f"{name}_address": address for name, address in self._addresses().items()},
        )

    def _addresses(self) -> dict[str, str]:
        """How others reach the listeners."""
        config = self._config
        bound = {
            "raft": self._raft,
            **self._fronted,
            "text": config.text,
            "grpc": config.grpc,
            "peer": config.peer,
        }
        if self._data_plane is not None:
            for name, address in self._data_plane.addresses().items():
                bound[name] = Address(bound[name].host, int(address.rpartition(":")[2]))
        hosts = {"raft": config.raft_advertise_host}
        return {name: str(config.advertised(address, hosts.get(name))) for name, address in bound.items()}

    def _tell_identity(self) -> admin_pb2.IdentityResponse:
        identity = self._identity
        return admin_pb2.IdentityResponse(
            cluster_id=str(identity.cluster_id) if identity and identity.cluster_id else "",
            node_id=(identity.node_id if identity else None) or 0,
            disk=str(identity.disk) if identity else "",
            process=str(self._process),
            node_name=self._config.node_name,
            version=__version__,
        )

    def _tell_storage(self) -> admin_pb2.StorageStatus:
        report = self._data_plane.store_report() if self._data_plane is not None else {}
        usage = shutil.disk_usage(self._config.data_dir)
        return admin_pb2.StorageStatus(
            backend_asked=self._config.backend,
            backend_in_use=report.get("backend", ""),
            reason=report.get("refused") or "",
            data_dir=str(self._config.data_dir),
            bytes_free=usage.free,
            bytes_total=usage.total,
            copies_not_whole=self._data_plane.copies_not_whole() if self._data_plane is not None else 0,
        )

    def _count_behind(self, timeout_ms: int) -> int | None:
        return self._data_plane.open_behind(timeout_ms) if self._data_plane is not None else None

    def _tell_remains(self) -> list[dict[str, Any]] | None:
        return self._data_plane.remains() if self._data_plane is not None else None

    def _recover(self, order: Order) -> None:
        """An order for the next start."""
        assert self._directory is not None
        give_order(self._directory.path, order)
        log.warning("the metadata are to go on as those of cluster %s: this node starts again", order.cluster_id)

    def _start_again(self) -> None:
        """Once the call that asks for it is answered."""
        self.starts_again = True
        self._loop.call_later(_RESTART_SECONDS, self.request_stop)

    def _hear_failure(self, error: Exception) -> None:
        """Called by the store's thread."""
        self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: Exception) -> None:
        code = DATA_REFUSED if isinstance(error, DataRefusedError) else FAILED
        self._failure = StartError(f"the metadata cannot go on: {error}", code)
        self.request_stop()


def _limits(limits: Limits) -> dict[str, Any]:
    """As the front and the data plane take them."""
    patience = dataclasses.asdict(limits)
    caps = {name: patience.pop(name) for name in ("connections_max", "connections_per_address_max")}
    return {**caps, "patience": patience}


def _listen(address: Address, flag: str) -> socket.socket:
    try:
        return listen(address.host, address.port)
    except OSError as error:
        raise _cannot_listen(address, flag, error) from None


def _cannot_listen(address: Address, flag: str, error: OSError) -> StartError:
    if error.errno == errno.EADDRINUSE:
        return StartError(f"port {address} is in use by another process; choose another one with {flag}", PORT_IN_USE)
    return StartError(f"cannot listen on {address} ({flag}): {error.strerror or error}", FAILED)
