"""Clusters of namespaces that are not watched: their status says so, or it would tell for ever what was true once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from walrus_operator.api.status import NOT_WATCHED
from walrus_operator.kube.api import Conflict, KubeApi, KubeError, Missing
from walrus_operator.objects import CLUSTER, Manifest, uid_of

log = logging.getLogger(__name__)

UNWATCHED_S = 60.0


class Unwatched:
    """Marks them, and changes nothing else: what was told last stays beside the mark, the cluster's id above all.

    Another operator may watch them. It takes the mark away, and then the cluster is left alone.
    """

    def __init__(self, kube: KubeApi, watched: Iterable[str | None]) -> None:
        self._kube = kube
        self._watched = frozenset(watched)
        self._marked: set[str] = set()
        self._may = True

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(UNWATCHED_S)

    async def once(self) -> None:
        """One look at all namespaces. One that is refused is logged once, and tried again."""
        try:
            for found in await self._kube.list(CLUSTER, None):
                with suppress(Missing, Conflict):
                    await self._mark(found)
        except KubeError as error:
            if self._may:
                log.warning("clusters that nobody watches cannot be marked: %s", error)
            self._may = False
        else:
            self._may = True

    async def _mark(self, found: Manifest) -> None:
        namespace, name = found["metadata"]["namespace"], found["metadata"]["name"]
        status, uid = found.get("status", {}), uid_of(found)
        if namespace in self._watched or status.get("phase") == NOT_WATCHED or uid in self._marked:
            return
        wanted = {
            "apiVersion": CLUSTER.api_version,
            "kind": CLUSTER.name,
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "status": {**status, "phase": NOT_WATCHED},
        }
        await self._kube.apply_status(wanted)
        self._marked.add(uid)
        log.info("%s/%s is marked as not watched", namespace, name)
