"""Wires the operator together and runs it: the lease first, then workers, then kopf, which listens until the end."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import kopf
from pydantic import ValidationError

from walrus_operator import __version__, clock
from walrus_operator.handlers import watch
from walrus_operator.kube.api import KubeError
from walrus_operator.kube.fenced import FencedApi
from walrus_operator.kube.official import OfficialApi
from walrus_operator.objects import CLUSTER
from walrus_operator.observe.admin import AdminBrokers
from walrus_operator.reconcile import Reconciler
from walrus_operator.runtime.events import EventRecorder
from walrus_operator.runtime.health import Health
from walrus_operator.runtime.http import HttpServer
from walrus_operator.runtime.lease import Lease
from walrus_operator.runtime.loop import Loop
from walrus_operator.runtime.metrics import Metrics
from walrus_operator.runtime.queue import WorkQueue
from walrus_operator.settings import Settings

log = logging.getLogger("walrus_operator")


def run() -> int:
    """Run until SIGTERM, or until the lease is lost. Returns the exit code."""
    try:
        settings = Settings()
    except ValidationError as error:
        print(f"walrus-operator: {error}", file=sys.stderr)  # noqa: T201
        return 2
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    for chatty in ("kopf", "urllib3"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    return asyncio.run(_Operator(settings).run())


class _Operator:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._metrics = Metrics()
        self._health = Health(clock.monotonic)
        self._kube = OfficialApi(self._metrics.called)
        self._brokers = AdminBrokers()
        self._queue = WorkQueue()
        self._lease = Lease(
            self._kube,
            namespace=settings.pod_namespace,
            name=settings.lease_name,
            holder=settings.pod_name,
            monotonic=clock.monotonic,
            now=clock.now,
        )
        self._stop = asyncio.Event()

    async def run(self) -> int:
        server = HttpServer(self._health, self._metrics)
        await server.start(self._settings.health_port)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        log.info("walrus-operator %s looks after %s", __version__, self._settings.watched)
        try:
            await self._first(self._prepared())
            if not self._stop.is_set():
                await self._operate()
            return 0 if self._stop.is_set() else 1
        finally:
            await self._lease.release()
            await server.stop()
            self._queue.close()
            self._brokers.close()
            self._kube.close()

    async def _prepared(self) -> None:
        """Wait for the kind of our objects, which is installed beside the operator, and for the lease."""
        while True:
            try:
                for namespace in self._settings.watched:
                    await self._kube.list(CLUSTER, namespace)
                break
            except KubeError as error:
                log.warning("clusters cannot be listed yet: %s", error)
                self._health.tried_lease()
                await asyncio.sleep(2)
        while not await self._lease.attempt():
            self._health.tried_lease()
            await asyncio.sleep(2)
        log.info("holding the lease as %s", self._settings.pod_name)

    async def _operate(self) -> None:
        """Workers, lease and kopf; the first that ends, ends all."""
        self._metrics.holds_lease.set(1)
        fenced = FencedApi(self._kube, self._lease.check)
        recorder = EventRecorder(fenced, instance=self._settings.pod_name, monotonic=clock.monotonic, now=clock.now)
        reconciler = Reconciler(fenced, self._brokers, recorder, clock.now, self._settings.image_repository)
        loop = Loop(reconciler, self._queue, self._health, self._metrics)
        running = [
            self._lease.keep(self._health.tried_lease),
            loop.resync(fenced, self._settings.watched),
            *(loop.work() for _ in range(self._settings.workers)),
        ]
        # kopf ends what it finds started after it, and takes over the signals: what is ours starts before.
        await self._first(self._listen(), *running)

    async def _listen(self) -> None:
        everywhere = self._settings.everywhere
        await kopf.operator(
            registry=watch.registry(self._queue.add, self._health.heard),
            settings=watch.settings(),
            standalone=True,
            clusterwide=everywhere,
            namespaces=() if everywhere else [namespace for namespace in self._settings.watched if namespace],
        )
        self._stop.set()

    async def _first(self, *coroutines: Coroutine[Any, Any, None]) -> None:
        """Run all until one ends, or a signal comes; then end all."""
        tasks = [asyncio.ensure_future(coroutine) for coroutine in (*reversed(coroutines), self._wait_stop())]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_stop(self) -> None:
        await self._stop.wait()
