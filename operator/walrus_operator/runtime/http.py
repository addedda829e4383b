"""/healthz and /metrics."""

from __future__ import annotations

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from walrus_operator.runtime.health import Health
from walrus_operator.runtime.metrics import Metrics


class HttpServer:
    """Answers from `start` on."""

    def __init__(self, health: Health, metrics: Metrics) -> None:
        self._health = health
        self._metrics = metrics
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/metrics", self._show_metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)

    async def start(self, port: int) -> int:
        """Listen; returns the port."""
        await self._runner.setup()
        await web.TCPSite(self._runner, None, port).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close everything."""
        await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        troubles = self._health.troubles()
        return web.json_response({"ok": not troubles, "troubles": troubles}, status=500 if troubles else 200)

    async def _show_metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self._metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})
