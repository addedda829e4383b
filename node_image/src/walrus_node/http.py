"""HTTP: /healthz, /readyz, /metrics, /api/status. Reads only; everything it shows is told by a `View`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol
from uuid import UUID

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from walrus_node.metadata.store import Status


@dataclass(frozen=True)
class KnownNode:
    """A node, as /api/status lists it."""

    node_id: int
    disk: UUID
    raft_address: str


@dataclass(frozen=True)
class NodeStatus:
    """What /api/status shows, in this order."""

    ready: bool
    missing: Sequence[str]
    node_id: int | None
    disk: UUID
    # The disk that this node was before, whose votes are lost.
    replaces: UUID | None
    process: UUID
    cluster_id: UUID | None
    addresses: Mapping[str, str]
    raft: Status | None
    metadata_version: int | None
    nodes: Sequence[KnownNode]


class View(Protocol):
    """What the pages show of the node. Its answers are quick, and are asked for anew with each request."""

    def missing(self) -> list[str]: ...
    def status(self) -> NodeStatus: ...
    def data_plane_metrics(self) -> str: ...


class HttpServer:
    """Listens from `start` on, also while the node waits for admission."""

    def __init__(self, view: View, registry: CollectorRegistry) -> None:
        self._view = view
        self._registry = registry
        app = web.Application(client_max_size=64 * 1024)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/api/status", self._status)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)

    async def start(self, path: str) -> None:
        """Listen on a UNIX socket; raises `OSError`."""
        await self._runner.setup()
        await web.UnixSite(self._runner, path).start()

    async def stop(self) -> None:
        """Close the listener and every connection."""
        await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async def _readyz(self, _: web.Request) -> web.Response:
        missing = self._view.missing()
        return web.json_response({"ready": not missing, "missing": missing}, status=503 if missing else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        text = generate_latest(self._registry) + self._view.data_plane_metrics().encode()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(text=json.dumps(asdict(self._view.status()), indent=2, default=str))
