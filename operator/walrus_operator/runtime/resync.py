"""Lists of a namespace, again and again: what the watch missed is found here, and what the watch is deaf to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from walrus_operator.api.status import NOT_WATCHED
from walrus_operator.desired.names import LABEL_CLUSTER
from walrus_operator.kube.api import Denied, KubeApi, KubeError, Missing
from walrus_operator.objects import CLUSTER, STATEFUL_SET, TOPIC, Key, Manifest, TopicsKey, uid_of
from walrus_operator.observe.wishes import Wishes
from walrus_operator.runtime.health import Health
from walrus_operator.runtime.metrics import Metrics

log = logging.getLogger(__name__)

RESYNC_S = 60.0
FIRST_S = 5.0
"""How soon a namespace that does not let the operator in is tried again at first: its role may be on its way."""
DEAF_S = 5.0
"""How often a namespace is listed of which no watch tells, such as one whose role has `list` and no `watch`."""

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
        self._is_deaf = False
        self._wishes = Wishes()
        self._sets: dict[str, str] = {}
        self._has_topics = True
        self._metric = metrics.closed.labels(self._name)
        self._deaf = metrics.deaf.labels(self._name)

    async def run(self) -> None:
        """List until cancelled."""
        wait = FIRST_S
        while True:
            if await self.once():
                wait = FIRST_S
                await self._rest()
            else:
                await asyncio.sleep(wait)
                wait = min(2 * wait, RESYNC_S)

    async def _rest(self) -> None:
        """Until the next list that also asks whether the watch hears. Where it is deaf, lists stand in for it."""
        if not self._is_deaf:
            await asyncio.sleep(RESYNC_S)
            return
        for _ in range(int(RESYNC_S / DEAF_S)):
            await asyncio.sleep(DEAF_S)
            if await self._list() is None:
                return

    async def once(self) -> bool:
        """One list, and whether the watch told of what it shows. Returns whether the namespace answered."""
        versions = await self._list()
        if versions is None:
            return False
        self._is_deaf = self._health.resynced(self._name, versions)
        self._deaf.set(self._is_deaf)
        if self._is_deaf:
            log.warning("the watch of %s is deaf: listening anew", self._name)
        if self._open is False:
            log.info("%s answers again", self._name)
        if self._is_deaf or not self._open:
            self._listen(self._name, True)
        self._open = True
        self._metric.set(0)
        return True

    async def _list(self) -> dict[str, str] | None:
        """Look at what is new. Returns the versions of everything; None where the namespace does not answer."""
        try:
            clusters = await self._kube.list(CLUSTER, self._namespace)
            sets = await self._kube.list(STATEFUL_SET, self._namespace, LABEL_CLUSTER)
            topics = await self._topics()
        except (Denied, Missing) as error:
            self._close(error)
            return None
        except KubeError as error:
            log.warning("clusters of %s cannot be listed: %s", self._name, error)
            self._metric.set(1)
            return None
        for found in (one for one in clusters if self._wishes.are_new(one["metadata"]) or _is_marked(one)):
            self._look(Key(found["metadata"]["namespace"], found["metadata"]["name"]))
        for found in (one for one in topics if self._wishes.are_new(one["metadata"]) or _is_marked(one)):
            self._look(TopicsKey(found["metadata"]["namespace"], found.get("spec", {}).get("cluster", "")))
        for found in sets:
            version = found["metadata"]["resourceVersion"]
            if self._is_deaf and self._sets.get(uid_of(found)) != version:
                self._look(Key(found["metadata"]["namespace"], found["metadata"]["labels"][LABEL_CLUSTER]))
        self._wishes.keep({uid_of(found) for found in (*clusters, *topics)})
        self._sets = {uid_of(found): found["metadata"]["resourceVersion"] for found in sets}
        return {uid_of(found): found["metadata"]["resourceVersion"] for found in (*clusters, *topics)} | self._sets

    async def _topics(self) -> list[Manifest]:
        """The topics; none where their definition is not there, or the role of a former release does not know them."""
        try:
            found = await self._kube.list(TOPIC, self._namespace)
        except (Denied, Missing) as error:
            if self._has_topics:
                log.warning("topics of %s are not looked after until they can be listed: %s", self._name, error)
            self._has_topics = False
            return []
        self._has_topics = True
        return found

    def _close(self, error: KubeError) -> None:
        self._health.closed(self._name)
        self._is_deaf = False
        self._deaf.set(0)
        self._metric.set(1)
        if self._open is not False:
            log.warning("%s is not looked after until it answers: %s", self._name, error)
            self._listen(self._name, False)
        self._open = False


def _is_marked(found: Manifest) -> bool:
    """Whether its status says that nobody watches it, which is not so: another operator may have marked it."""
    return bool(found.get("status", {}).get("phase") == NOT_WATCHED)
