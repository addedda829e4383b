"""Wires the operator together and runs it: the lease first, then workers, lists and watches."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import ValidationError

from walrus_operator import __version__, clock
from walrus_operator.clock import Monotonic, Now
from walrus_operator.handlers.listener import Listener
from walrus_operator.kube.api import READ_MAX_S, KubeApi
from walrus_operator.kube.official import OfficialApi
from walrus_operator.objects import Key, TopicsKey
from walrus_operator.observe.admin import AdminBrokers
from walrus_operator.observe.brokers import Brokers
from walrus_operator.reconcile import Reconciler
from walrus_operator.reconcile_topics import TopicReconciler
from walrus_operator.runtime import lease, logs
from walrus_operator.runtime.definition import compare_definition
from walrus_operator.runtime.events import EventRecorder
from walrus_operator.runtime.health import Health
from walrus_operator.runtime.http import HttpServer
from walrus_operator.runtime.lease import Lease
from walrus_operator.runtime.loop import Loop, Passed
from walrus_operator.runtime.metrics import Metrics
from walrus_operator.runtime.queue import WorkQueue
from walrus_operator.runtime.resync import Resync
from walrus_operator.runtime.unwatched import Unwatched
from walrus_operator.settings import Settings

log = logging.getLogger("walrus_operator")

_THREADS = 8
"""Calls to Kubernetes at the same time, besides those of the lease."""


def run() -> int:
    """Run until SIGTERM, or until the lease is lost. Returns the exit code."""
    try:
        settings = Settings()
    except ValidationError as error:
        print(f"walrus-operator: {error}", file=sys.stderr)  # noqa: T201
        return 2
    logs.set_up(settings)
    return asyncio.run(Operator(settings, Doors()).run())


class ClosedKube(KubeApi, Protocol):
    """Kubernetes, with a connection that ends."""

    async def close(self) -> None:
        """End it; returns once no call is under way."""


class ClosedBrokers(Brokers, Protocol):
    """Brokers, with connections that end."""

    async def close(self) -> None:
        """End them; returns once no call is under way."""


class Listens(Protocol):
    """Tells which clusters, and whose topics, to look at."""

    def listen(self, namespace: str, answers: bool) -> None:
        """Listen to this namespace, or not any more."""

    async def run(self) -> None:
        """Listen until cancelled."""


Fence = Callable[[], None]
"""Raises unless this operator may write."""
Look = Callable[[Key], None]
Heard = Callable[[str, str | None], None]


def _kubernetes(metrics: Metrics, fence: Fence, threads: int, read_s: float) -> ClosedKube:
    return OfficialApi(metrics.called, threads, fence, read_s)


def _brokers(fence: Fence) -> ClosedBrokers:
    return AdminBrokers(fence=fence)


def _listener(look: Look, heard: Heard, everywhere: bool) -> Listens:
    return Listener(look, heard, everywhere=everywhere)


@dataclass(frozen=True)
class Doors:
    """What the operator reaches the world through."""

    kubernetes: Callable[[Metrics, Fence, int, float], ClosedKube] = _kubernetes
    """A client with so many threads of its own, whose reads may take so many seconds."""
    brokers: Callable[[Fence], ClosedBrokers] = _brokers
    listener: Callable[[Look, Heard, bool], Listens] = _listener
    monotonic: Monotonic = clock.monotonic
    now: Now = clock.now


@dataclass(frozen=True)
class Both:
    """Clusters and their topics, each looked after by its own."""

    clusters: Reconciler
    topics: TopicReconciler

    async def reconcile(self, key: Key, *, asked: bool = True) -> Passed | None:
        """One pass over what the key names, for which someone asked or the time has come."""
        if isinstance(key, TopicsKey):
            return await self.topics.reconcile(key)
        return await self.clusters.reconcile(key, asked=asked)


class Operator:
    """The operator, from its start to its end."""

    def __init__(self, settings: Settings, doors: Doors) -> None:
        self._settings = settings
        self._doors = doors
        self.metrics = Metrics()
        self.health = Health(doors.monotonic)
        # Renewals wait behind nothing: neither behind workers, nor behind lists.
        self._lease_kube = doors.kubernetes(self.metrics, lambda: None, 1, lease.READ_S)
        self.lease = Lease(
            self._lease_kube,
            namespace=settings.pod_namespace,
            name=settings.lease_name,
            holder=settings.pod_name,
            monotonic=doors.monotonic,
            now=doors.now,
            told_renewal=self.metrics.renewal_seconds.observe,
        )
        self._kube = doors.kubernetes(self.metrics, self.lease.check, _THREADS, READ_MAX_S)
        self._brokers = doors.brokers(self.lease.check)
        self._queue = WorkQueue()
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Come to an end."""
        self._stop.set()

    async def run(self) -> int:
        """Stand by, work, give the lease up. Returns the exit code."""
        server = HttpServer(self.health, self.metrics)
        await server.start(self._settings.health_port)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        log.info("walrus-operator %s looks after %s", __version__, ", ".join(map(_named, self._settings.watched)))
        try:
            await self._first(compare_definition(self._kube, self.metrics))
            if not self._stop.is_set():
                await self._first(self._stand_by())
            if not self._stop.is_set():
                await self._operate()
            return 0 if self._stop.is_set() else 1
        finally:
            await self._end()
            await server.stop()

    async def _end(self) -> None:
        """No write begins any more, those under way end; only then another operator may begin."""
        self.lease.stop()
        self._queue.close()
        await asyncio.gather(self._brokers.close(), self._kube.close())
        await self.lease.release()
        await self._lease_kube.close()

    async def _stand_by(self) -> None:
        """Until the lease is ours."""
        while not await self.lease.attempt():
            self.health.tried_lease()
            await asyncio.sleep(2)
        self.health.tried_lease()
        log.info("holding the lease as %s", self._settings.pod_name)

    async def _operate(self) -> None:
        """Workers, lease, lists and watches; the first that ends, ends all."""
        self.metrics.holds_lease.set(1)
        monotonic, now = self._doors.monotonic, self._doors.now
        recorder = EventRecorder(self._kube, instance=self._settings.pod_name, monotonic=monotonic, now=now)
        reconciler = Reconciler(
            self._kube,
            self._brokers,
            recorder,
            now,
            self._settings.default_image,
            self._settings.pod_namespace,
            monotonic=monotonic,
        )
        topics = TopicReconciler(self._kube, self._brokers, recorder, now, monotonic, self.metrics.counted)
        loop = Loop(Both(reconciler, topics), self._queue, self.health, self.metrics, now)

        def look(key: Key) -> None:
            self._queue.add(key)
            if topics.awaits(key):
                self._queue.add(TopicsKey(key.namespace, key.name))

        listener = self._doors.listener(look, self.health.heard, self._settings.everywhere)
        lists = [
            Resync(
                self._kube,
                namespace,
                look=look,
                listen=listener.listen,
                health=self.health,
                metrics=self.metrics,
            )
            for namespace in self._settings.watched
        ]
        marks = self._settings.marks_unwatched and not self._settings.everywhere
        unwatched = [Unwatched(self._kube, self._settings.watched)] if marks else []
        await self._first(
            self.lease.keep(self.health.tried_lease),
            listener.run(),
            *(one.run() for one in lists),
            *(one.run() for one in unwatched),
            *(loop.work() for _ in range(self._settings.workers)),
        )

    async def _first(self, *coroutines: Coroutine[Any, Any, None]) -> None:
        """Run all until one ends, or a signal comes; then end all."""
        tasks = [asyncio.ensure_future(coroutine) for coroutine in (*coroutines, self._wait_stop())]
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


def _named(namespace: str | None) -> str:
    return "every namespace" if namespace is None else namespace
