"""HTTP: /healthz, /readyz, /metrics, /api/status. Reads only; everything it shows is told by `Facts`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4


@dataclass(frozen=True)
class Facts:
    """Where the pages come from. All are quick and are asked anew for each request."""

    missing: Callable[[], list[str]]
    status: Callable[[], dict[str, Any]]
    data_plane_metrics: Callable[[], str]
    registry: CollectorRegistry


class HttpServer:
    """Listens from `start` on, also while the node waits for admission."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
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
        missing = self._facts.missing()
        return web.json_response({"ready": not missing, "missing": missing}, status=503 if missing else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        text = generate_latest(self._facts.registry) + self._facts.data_plane_metrics().encode()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(self._facts.status(), dumps=lambda facts: json.dumps(facts, indent=2))
