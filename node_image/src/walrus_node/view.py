"""What a node shows of itself, by the stage that it has reached: HTTP, metrics and the admin service ask here."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import walrus_core
from walrus_client.v1 import admin_pb2

from walrus_node import __version__
from walrus_node.admin.topics import node_limits
from walrus_node.data_plane import StoreReport
from walrus_node.ground import Ground
from walrus_node.http import KnownNode, NodeStatus
from walrus_node.identity import Identity
from walrus_node.metadata.machine import ClusterState
from walrus_node.metadata.raft_store import RaftStore
from walrus_node.metadata.remains import Remains, remains_of
from walrus_node.metadata.reports import CopyProgress
from walrus_node.metadata.store import Status
from walrus_node.presence import Presence
from walrus_node.stages import Fronted, Member, OnDuty, Opened, Serving, Stage, reached


class NodeView:
    """Answers from the first moment. The stage is replaced as a whole; each answer looks at one."""

    def __init__(self, ground: Ground, presence: Presence) -> None:
        self._ground = ground
        self._presence = presence
        self._stage: Stage = ground
        self._awaited: str | Callable[[], str] = "start: reading the data directory"
        self._departs = False

    def reach(self, stage: Stage) -> None:
        """Show that stage from now on."""
        self._stage = stage

    def wait_for(self, what: str | Callable[[], str]) -> None:
        """Show what keeps the node from its next stage; a function is asked each time, and tells how far that is."""
        self._awaited = what

    def depart(self) -> None:
        """Show from now on that the node is about to stop."""
        self._departs = True

    def missing(self) -> list[str]:
        """What keeps the node from being ready; empty if nothing does."""
        if self._departs:
            return ["stopping: this node hands over what it leads, and ends"]
        on_duty = reached(self._stage, OnDuty)
        if on_duty is not None:
            return on_duty.controller.missing()
        return [self._awaited if isinstance(self._awaited, str) else self._awaited()]

    def store(self) -> RaftStore[ClusterState] | None:
        """The metadata; `None` as long as the node is in no cluster."""
        opened = reached(self._stage, Opened)
        return None if opened is None else opened.store

    def raft_status(self) -> Status | None:
        """Raft as this node sees it."""
        store = self.store()
        return None if store is None else store.status()

    def copies(self) -> CopyProgress | None:
        """What the metadata leader knows of the copies of sealed segments."""
        on_duty = reached(self._stage, OnDuty)
        return None if on_duty is None else on_duty.controller.copies.progress

    def present(self, state: ClusterState) -> walrus_core.Present:
        """Who is there now, as this node sees it."""
        return self._presence.look(state)

    def limits(self, state: ClusterState) -> str:
        """What is in force on this node where no topic says otherwise, as `Metadata.compare_topics` takes it."""
        return node_limits(self._ground.config, state.config.entries)

    def status(self) -> NodeStatus:
        """The facts of /api/status."""
        identity, store, status, missing = self._identity(), self.store(), self.raft_status(), self.missing()
        return NodeStatus(
            ready=not missing,
            missing=missing,
            node_id=identity.node_id,
            disk=identity.disk,
            replaces=identity.replaces,
            process=self._ground.process,
            cluster_id=identity.cluster_id,
            addresses=self._addresses(),
            raft=status,
            metadata_version=None if status is None else status.version,
            nodes=[
                KnownNode(node.node_id, node.disk, node.raft_address)
                for node in ({} if store is None else store.read().nodes).values()
            ],
        )

    def identity(self) -> admin_pb2.IdentityResponse:
        """Who the node is."""
        identity, store = self._identity(), self.store()
        return admin_pb2.IdentityResponse(
            cluster_id=str(identity.cluster_id) if identity.cluster_id else "",
            node_id=identity.node_id or 0,
            disk=str(identity.disk),
            process=str(self._ground.process),
            node_name=self._ground.config.node_name,
            version=__version__,
            former_cluster_ids=() if store is None else store.read().metadata.former_ids,
        )

    def level(self) -> int:
        """Up to which level this node knows commands of the metadata."""
        return self._ground.level

    def wire_versions(self) -> admin_pb2.WireVersions:
        """Which versions of the frames between brokers this node speaks."""
        oldest, newest = self._ground.config.test_wire or walrus_core.DataPlane.WIRE_VERSIONS
        return admin_pb2.WireVersions(oldest=oldest, newest=newest)

    def storage(self) -> admin_pb2.StorageStatus:
        """What the data plane says of its store, and the disk that it lies on."""
        config, data_plane = self._ground.config, self._data_plane()
        report = StoreReport() if data_plane is None else StoreReport.parse(data_plane.store_report())
        usage = shutil.disk_usage(config.data_dir)
        return admin_pb2.StorageStatus(
            backend_asked=config.backend,
            backend_in_use=report.backend,
            reason=report.refused,
            synced_writes=report.synced_writes,
            cached_reason=report.cached,
            data_dir=str(config.data_dir),
            bytes_free=usage.free,
            # What only root may fill is no room, so it is left out, as `df` does.
            bytes_total=usage.used + usage.free,
            copies_not_whole=0 if data_plane is None else data_plane.copies_not_whole(),
        )

    def open_behind(self, timeout_ms: int) -> int | None:
        """Open segments that are not whole here, leaders being given so long; `None` before it serves. Slow."""
        data_plane = self._data_plane()
        return None if data_plane is None else data_plane.open_behind(timeout_ms)

    def remains(self) -> list[Remains] | None:
        """What lies on this disk of topics that the metadata do not name; `None` before it serves. Slow."""
        data_plane = self._data_plane()
        return None if data_plane is None else remains_of(data_plane)

    def data_plane_metrics(self) -> str:
        """The metrics of the data plane in Prometheus's text format."""
        data_plane = self._data_plane()
        return "" if data_plane is None else data_plane.prometheus()

    def _identity(self) -> Identity:
        member = reached(self._stage, Member)
        return self._ground.identity if member is None else member.entered.identity

    def _data_plane(self) -> walrus_core.DataPlane | None:
        serving = reached(self._stage, Serving)
        return None if serving is None else serving.data_plane

    def _addresses(self) -> dict[str, str]:
        """How others reach the listeners, those that are not open yet too."""
        stage = self._stage
        furthest = reached(stage, Serving) or reached(stage, Fronted) or self._ground
        return self._ground.advertised(furthest.bound)
