"""The node, put together: the only file that builds its parts and knows their order."""

from __future__ import annotations

import asyncio
import logging
import signal
from uuid import UUID

import walrus_core

from walrus_node.acquaintance import Acquaintance
from walrus_node.address import with_ports
from walrus_node.admin.server import AdminServer
from walrus_node.admin.service import Actions
from walrus_node.admissions import Admissions
from walrus_node.closing import Closing
from walrus_node.config import Config
from walrus_node.controller import Controller
from walrus_node.data_plane import Feed, open_data_plane, told_opening
from walrus_node.departure import depart
from walrus_node.ending import DATA_REFUSED, FAILED, PORT_IN_USE, Ending, StartError
from walrus_node.entrance import Entrance
from walrus_node.files import DataRefusedError
from walrus_node.front import Front
from walrus_node.ground import Ground, lay_ground
from walrus_node.http import HttpServer
from walrus_node.metadata.admission import JoinRequest
from walrus_node.metadata.journal import Owner
from walrus_node.metadata.machine import ClusterState, MetadataMachine
from walrus_node.metadata.raft_store import Place, RaftStore
from walrus_node.metadata.reports import Replication
from walrus_node.metadata.wire import WIRE, Versions
from walrus_node.metrics import build_registry
from walrus_node.presence import Presence
from walrus_node.publication import Publication
from walrus_node.recovery import Order, forget_order, give_order
from walrus_node.secret import Secrets
from walrus_node.stages import Fronted, Member, OnDuty, Opened, Serving
from walrus_node.view import NodeView

log = logging.getLogger(__name__)

_GRACE_MS = 1_000


async def run(config: Config) -> bool:
    """Run until SIGTERM or SIGINT; raises `StartError` when it cannot go on. True: it is to be started again.

    SIGTERM has the node hand over what it leads first; SIGINT, or a second SIGTERM, ends it at once.
    """
    try:
        secrets = Secrets(config.secret_file)
    except DataRefusedError as error:
        raise StartError(str(error), FAILED) from None
    ending, closing, presence = Ending(), Closing(), Presence()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.request)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, ending.hurry)
    try:
        started = await ending.wait(_start(config, secrets, presence, ending, closing))
        if started is not None and config.hand_over_ms > 0:
            view, node = started
            view.depart()
            await ending.unless_hurried(depart(node, presence, config.hand_over_ms / 1_000))
    except DataRefusedError as error:
        raise StartError(str(error), DATA_REFUSED) from None
    finally:
        await closing.close()
    return ending.starts_again


async def _start(
    config: Config, secrets: Secrets, presence: Presence, ending: Ending, closing: Closing
) -> tuple[NodeView, OnDuty]:
    """Take the node through its stages; what it opens is in *closing* at once."""
    ground = await lay_ground(config, secrets, closing)
    view = NodeView(ground, presence)
    fronted = await _open_front(ground, view, ending, closing)
    view.reach(fronted)

    machine = MetadataMachine(ground.level)
    publication = Publication(machine.view(), presence.observe)
    addresses = ground.advertised(fronted.bound)
    request = JoinRequest(ground.registration(addresses, ground.identity.node_id), secrets)

    def open_store(cluster_id: UUID) -> RaftStore[ClusterState]:
        store = RaftStore(
            _place(ground, cluster_id, addresses["raft"]),
            machine,
            ground.listener,
            on_published=publication.publish,
            on_failed=ending.fail,
            on_join=Admissions(cluster_id).hear,
            on_unknown_voter=Acquaintance(request, tuple(map(str, config.join))).hear,
        )
        closing.add_blocking(store.stop)
        view.reach(Opened(fronted, store))
        return store

    entered = await _entrance(ground, request, view).enter(ground.identity, open_store)
    forget_order(ground.directory.path)
    member = Member(Opened(fronted, entered.store), entered)
    view.reach(member)

    progress = walrus_core.OpenProgress()
    view.wait_for(lambda: told_opening(progress.percent()))
    data_plane = await open_data_plane(ground, entered, progress)
    closing.add_blocking(data_plane.stop, _GRACE_MS)
    publication.add(Feed(data_plane, config).take)
    serving = Serving(member, data_plane, with_ports(fronted.bound, data_plane.addresses()))
    view.reach(serving)

    addresses = ground.advertised(serving.bound)
    registration = ground.registration(addresses, entered.node_id)
    listeners = ground.listeners(data_plane.addresses())
    controller = Controller(
        entered.node_id,
        registration,
        listeners,
        entered.store,
        data_plane,
        presence,
        config.data_dir,
        zone=config.zone,
        finalizes=config.finalizes,
    )
    closing.add(controller.stop)
    on_duty = OnDuty(serving, controller)
    view.reach(on_duty)
    controller.start()
    await controller.registered.wait()
    reached = ", ".join(f"{name} {address}" for name, address in addresses.items())
    log.info("ready: node %d, %s", entered.node_id, reached)
    return view, on_duty


async def _open_front(ground: Ground, view: NodeView, ending: Ending, closing: Closing) -> Fronted:
    config, folder = ground.config, ground.config.data_dir / "sockets"

    def recover(order: Order) -> None:
        give_order(ground.directory.path, order)
        log.warning("the metadata are to go on as those of cluster %s: this node starts again", order.cluster_id)

    http = HttpServer(view, build_registry(view))
    admin = AdminServer(view, Actions(recover, ending.start_again), ground.secrets)
    try:
        front = Front(folder)
        closing.add(front.stop)
        closing.add(http.stop)
        await http.start(front.socket("http"))
        closing.add(admin.stop)
        await admin.start(front.socket("admin"))
    except (OSError, RuntimeError) as error:
        raise StartError(f"no socket can be made in {folder}: {error}", FAILED) from None
    try:
        fronted = await front.listen({"http": config.http, "admin": config.admin}, config.limits.options())
    except walrus_core.AddressInUse as error:
        raise StartError(f"{error} with --{error.facts['listener']}-port", PORT_IN_USE) from None
    except OSError as error:
        raise StartError(
            f"{error}; other places: --client-host, --http-port, --admin-host, --admin-port", FAILED
        ) from None
    return Fronted(ground, {**ground.bound, **fronted})


def _place(ground: Ground, cluster_id: UUID, raft_address: str) -> Place:
    config = ground.config
    return Place(
        ground.directory.metadata,
        Owner(cluster_id, ground.identity.disk),
        ground.process,
        raft_address,
        seeds=tuple(map(str, config.join)),
        wire=Versions(*config.test_wire) if config.test_wire else WIRE,
        secrets=ground.secrets,
    )


def _entrance(ground: Ground, request: JoinRequest, view: NodeView) -> Entrance:
    config, identity = ground.config, ground.identity
    return Entrance(
        ground.directory,
        JoinRequest(request.registration, request.secrets, identity.replaces or config.replaces),
        listener=ground.listener,
        bootstrap=config.bootstrap and identity.replaces is None,
        bootstrap_nodes=config.bootstrap_nodes,
        replication=Replication(config.replication_factor, config.write_quorum),
        seeds=ground.seeds,
        on_waiting=view.wait_for,
    )
