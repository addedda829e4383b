"""The lease: of several operators one works. It also says until when this one may still write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from walrus_operator.clock import Monotonic, Now
from walrus_operator.kube.api import Conflict, KubeApi, KubeError
from walrus_operator.objects import LEASE, Manifest, Ref

log = logging.getLogger(__name__)

DURATION_SECONDS = 15
RENEW_SECONDS = 5.0
_MARGIN_SECONDS = 3.0


class LeaseLost(Exception):  # noqa: N818 - called by what happened
    """This operator may not write any more: another one may be at work."""


class Lease:
    """One lease, held by one operator at a time. All times are taken before the request that claims them is sent."""

    def __init__(
        self, kube: KubeApi, *, namespace: str, name: str, holder: str, monotonic: Monotonic, now: Now
    ) -> None:
        self._kube = kube
        self._ref = Ref(LEASE.name, namespace, name)
        self._holder = holder
        self._monotonic = monotonic
        self._now = now
        self._held_until = float("-inf")
        self._seen: tuple[str, float] | None = None

    @property
    def held(self) -> bool:
        """Whether this operator may write now."""
        return self._monotonic() < self._held_until

    def check(self) -> None:
        """Raise `LeaseLost` unless the lease is held for a while yet."""
        if not self.held:
            raise LeaseLost(f"{self._ref} is not held: no write is made, the operator restarts")

    async def keep(self, tried: Callable[[], None]) -> None:
        """Renew the lease again and again, telling each time; ends when it is lost."""
        while self.held:
            await asyncio.sleep(RENEW_SECONDS)
            await self.attempt()
            tried()
        log.error("%s is lost", self._ref)

    async def attempt(self) -> bool:
        """Take or renew the lease, if it is free or ours. That nobody answers is not an error yet."""
        began = self._monotonic()
        try:
            found = await self._kube.get(self._ref)
            if found is None:
                await self._kube.create(self._manifest(None))
            elif self._free(found):
                await self._kube.replace(self._manifest(found))
            else:
                self._held_until = float("-inf")
                return False
        except Conflict:
            return False
        except KubeError as error:
            log.warning("%s cannot be renewed: %s", self._ref, error)
            return False
        self._held_until = began + DURATION_SECONDS - _MARGIN_SECONDS
        return True

    async def release(self) -> None:
        """Give the lease up, so that the next operator need not wait for its end."""
        if not self.held:
            return
        self._held_until = float("-inf")
        try:
            found = await self._kube.get(self._ref)
            if found is not None and found.get("spec", {}).get("holderIdentity") == self._holder:
                spec = {**found["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                await self._kube.replace({**found, "spec": spec})
        except KubeError as error:
            log.warning("%s could not be given up, it runs out by itself: %s", self._ref, error)

    def _free(self, found: Manifest) -> bool:
        """Ours, or not renewed for its duration *as this clock saw it*: clocks of machines differ."""
        spec = found.get("spec", {})
        holder = spec.get("holderIdentity")
        if not holder or holder == self._holder:
            return True
        mark = f"{holder} {spec.get('renewTime')}"
        if self._seen is None or self._seen[0] != mark:
            self._seen = (mark, self._monotonic())
        duration = float(spec.get("leaseDurationSeconds", DURATION_SECONDS))
        return self._monotonic() - self._seen[1] >= duration

    def _manifest(self, found: Manifest | None) -> Manifest:
        now = self._now()
        spec = (found or {}).get("spec", {})
        ours = spec.get("holderIdentity") == self._holder
        metadata = {"name": self._ref.name, "namespace": self._ref.namespace}
        if found is not None:
            metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.name,
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": DURATION_SECONDS,
                "acquireTime": spec["acquireTime"] if ours and "acquireTime" in spec else _micro(now),
                "renewTime": _micro(now),
                "leaseTransitions": spec.get("leaseTransitions", 0) + (0 if ours or found is None else 1),
            },
        }


def _micro(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
