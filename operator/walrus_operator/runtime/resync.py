"""Lists of a namespace, again and again: what the watch missed is found here, and what the watch is deaf to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from walrus_operator.api.status import NOT_WATCHED
from walrus_operator.desired.names import LABEL_CLUSTER
from walrus_operator.kube.api import Denied, KubeApi, KubeError, Missing
from walrus_operator.objects import CLUSTER, STATEFUL_SET, Key, Manifest, uid_of
from walrus_operator.observe.wishes import Wishes
from walrus_operator.runtime.health import Health
from walrus_operator.runtime.metrics import Metrics

log = logging.getLogger(__name__)

RESYNC_SECONDS = 60.0
FIRST_SECONDS = 5.0
"""How soon a namespace that does not let the operator in is tried again at first: its role may be on its way."""

EVERYWHERE = "*"
"""What all namespaces together are called, where they are watched as one."""

Listen = Callable[[str, bool], None]
"""Told of a namespace that answers and has to be listened to, or that does not let the operator in any more."""


class Resync:
    """One namespace, or all of them as one. What it meets there stops no other."""

    def __init__(
        self,
        kube: KubeApi,
        namespace: str | None,
        *,
        look: Callable[[Key], None],
        listen: Listen,
        health: Health,
        metrics: Metrics,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = namespace or EVERYWHERE
        self._look = look
        self._listen = listen
        self._health = health
        self._open: bool | None = None
        self._wishes = Wishes()
        self._metric = metrics.closed.labels(self._name)

    async def run(self) -> None:
        """List until cancelled."""
        wait = FIRST_SECONDS
        while True:
            if await self.once():
                wait = FIRST_SECONDS
                await asyncio.sleep(RESYNC_SECONDS)
            else:
                await asyncio.sleep(wait)
                wait = min(2 * wait, RESYNC_SECONDS)

    async def once(self) -> bool:
        """One list. Returns whether the namespace answered."""
        versions = {}
        try:
            clusters = await self._kube.list(CLUSTER, self._namespace)
            sets = await self._kube.list(STATEFUL_SET, self._namespace, LABEL_CLUSTER)
        except (Denied, Missing) as error:
            self._close(error)
            return False
        except KubeError as error:
            log.warning("clusters of %s cannot be listed: %s", self._name, error)
            self._metric.set(1)
            return False
        for found in (one for one in clusters if self._wishes.are_new(one["metadata"]) or _is_marked(one)):
            self._look(Key(found["metadata"]["namespace"], found["metadata"]["name"]))
        for found in (*clusters, *sets):
            versions[uid_of(found)] = found["metadata"]["resourceVersion"]
        deaf = self._health.resynced(self._name, versions)
        if deaf:
            log.warning("the watch of %s is deaf: listening anew", self._name)
        if self._open is False:
            log.info("%s answers again", self._name)
        if deaf or not self._open:
            self._listen(self._name, True)
        self._open = True
        self._metric.set(0)
        return True

    def _close(self, error: KubeError) -> None:
        self._health.closed(self._name)
        self._metric.set(1)
        if self._open is not False:
            log.warning("%s is not looked after until it answers: %s", self._name, error)
            self._listen(self._name, False)
        self._open = False


def _is_marked(cluster: Manifest) -> bool:
    """Whether its status says that nobody watches it, which is not so: another operator may have marked it."""
    return bool(cluster.get("status", {}).get("phase") == NOT_WATCHED)
