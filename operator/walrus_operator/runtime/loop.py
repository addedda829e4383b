"""The loop: workers that take keys and reconcile them."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from walrus_operator.clock import Now
from walrus_operator.kube.api import KubeError
from walrus_operator.objects import Key
from walrus_operator.reconcile import Pass
from walrus_operator.runtime.figures import Figures
from walrus_operator.runtime.health import Health
from walrus_operator.runtime.lease import LeaseLost
from walrus_operator.runtime.metrics import Metrics
from walrus_operator.runtime.queue import WorkQueue

log = logging.getLogger(__name__)


class Passed(Protocol):
    """What a pass came to."""

    @property
    def again_s(self) -> float: ...
    @property
    def acts(self) -> tuple[str, ...]: ...


class Reconciles(Protocol):
    """Brings what a key names to what it shall be."""

    async def reconcile(self, key: Key, *, asked: bool = True) -> Passed | None:
        """One pass; None where nothing is to be looked at again. Raises `KubeError`.

        *asked*: someone asked for it; otherwise the time has come that the pass before named.
        """


class Loop:
    """Works on the queue until it is cancelled."""

    def __init__(self, reconciler: Reconciles, queue: WorkQueue, health: Health, metrics: Metrics, now: Now) -> None:
        self._reconciler = reconciler
        self._queue = queue
        self._health = health
        self._metrics = metrics
        self._figures = Figures(metrics, now)

    async def work(self) -> None:
        """One worker."""
        while True:
            key = await self._queue.take()
            self._metrics.queued.set(len(self._queue))
            self._health.began(key)
            try:
                with self._metrics.pass_seconds.time():
                    passed = await self._reconciler.reconcile(key, asked=self._queue.is_asked(key))
            except asyncio.CancelledError:
                raise
            except LeaseLost as lost:
                self._failed(key, str(lost), "lease_lost")
            except KubeError as error:
                self._failed(key, str(error), type(error).__name__)
            except Exception:
                log.exception("%s: a pass failed, which is a mistake of the operator", key)
                self._failed(key, "see above", "mistake")
            else:
                self._passed(key, passed)
            finally:
                self._health.ended(key)

    def _passed(self, key: Key, passed: Passed | None) -> None:
        self._metrics.passes.labels("ok").inc()
        self._queue.finish(key, passed.again_s if passed is not None else None)
        for act in passed.acts if passed is not None else ():
            self._metrics.actions.labels(act).inc()
        if passed is None or isinstance(passed, Pass):
            self._figures.passed(key, passed)

    def _failed(self, key: Key, why: str, outcome: str) -> None:
        self._metrics.passes.labels(outcome).inc()
        seconds = self._queue.fail(key)
        log.warning("%s: looked at again in %.1f s: %s", key, seconds, why)
