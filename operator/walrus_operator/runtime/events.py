"""Posts Events; the same one not again and again. A refused Event is never an error of the cluster."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict

from walrus_operator.clock import Monotonic, Now
from walrus_operator.desired.names import MANAGER
from walrus_operator.kube.api import Conflict, KubeApi, KubeError
from walrus_operator.objects import EVENT, Manifest
from walrus_operator.status.events import About, Event

log = logging.getLogger(__name__)

_QUIET_S = 30.0
_REMEMBERED = 1000
_MESSAGE = 1000


class EventRecorder:
    """Posts Events of our resources; one that was posted just now is not posted again."""

    def __init__(self, kube: KubeApi, *, instance: str, monotonic: Monotonic, now: Now) -> None:
        self._kube = kube
        self._instance = instance
        self._monotonic = monotonic
        self._now = now
        self._posted: OrderedDict[tuple[str, Event], float] = OrderedDict()

    async def record(self, about: About, happened: list[Event]) -> None:
        """Post what happened to a resource."""
        for event in happened:
            at = self._posted.get((about.uid, event))
            if at is not None and self._monotonic() - at < _QUIET_S:
                continue
            try:
                await self._kube.create(self._manifest(about, event))
            except Conflict:
                pass  # it is there
            except KubeError as error:
                log.debug("an Event could not be posted: %s", error)
                continue
            self._posted[about.uid, event] = self._monotonic()
            while len(self._posted) > _REMEMBERED:
                self._posted.popitem(last=False)

    def _manifest(self, about: About, event: Event) -> Manifest:
        now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        mark = hashlib.sha256(f"{about.uid} {event} {now} {self._instance}".encode()).hexdigest()[:16]
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.name,
            "metadata": {"name": f"{about.key.name}.{mark}", "namespace": about.key.namespace},
            "involvedObject": {
                "apiVersion": about.kind.api_version,
                "kind": about.kind.name,
                "name": about.key.name,
                "namespace": about.key.namespace,
                "uid": about.uid,
            },
            "type": "Warning" if event.warning else "Normal",
            "reason": str(event.reason),
            "message": event.message[:_MESSAGE],
            "source": {"component": MANAGER},
            "reportingComponent": MANAGER,
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
