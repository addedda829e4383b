"""The lease: of several operators one works. It also says until when this one may still write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from walrus_operator.clock import Monotonic, Now
from walrus_operator.kube.api import WRITE_MAX_S, Conflict, KubeApi, KubeError
from walrus_operator.objects import LEASE, Manifest, Ref

log = logging.getLogger(__name__)

DURATION_S = 20
RENEW_S = 5.0
SLOW_S = 2.0
"""A renewal that takes longer is worth a line in the log."""
READ_S = WRITE_MAX_S
"""How long the lease may take to be read: with the write that follows, less than it is held for."""
_MARGIN_S = WRITE_MAX_S + 1.0


class LeaseLost(Exception):  # noqa: N818 - called by what happened
    """This operator may not write any more: another one may be at work."""


class Lease:
    """One lease, held by one operator at a time. All times are taken before the request that claims them is sent.

    Its `KubeApi` is its own: behind the calls of busy workers a renewal would come too late. The lease counts as held
    until a write that is sent at the last moment has been given up, too.
    """

    def __init__(
        self,
        kube: KubeApi,
        *,
        namespace: str,
        name: str,
        holder: str,
        monotonic: Monotonic,
        now: Now,
        told_renewal: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._kube = kube
        self._ref = Ref(LEASE.name, namespace, name)
        self._holder = holder
        self._monotonic = monotonic
        self._now = now
        self._told_renewal = told_renewal
        self._waits_for: str | None = None
        self._held_until = float("-inf")
        self._seen: tuple[str, float] | None = None
        self._ours: Manifest | None = None
        self._gives_up = False

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
            began = self._monotonic()
            await self.attempt()
            tried()
            await asyncio.sleep(max(RENEW_S - (self._monotonic() - began), 0.0))
        log.error("%s is lost", self._ref)

    async def attempt(self) -> bool:
        """Take or renew the lease, if it is free or ours. That nobody answers is not an error yet."""
        began = self._monotonic()
        # A renewal is one call where nobody else has touched the lease: at 3 s a call, two would be too slow.
        found, self._ours = self._ours, None
        try:
            if found is None:
                found = await self._kube.get(self._ref)
                began = self._monotonic()
            if found is None:
                self._ours = await self._kube.create(self._manifest(None))
            elif self._free(found):
                self._ours = await self._kube.replace(self._manifest(found))
            else:
                self._held_until = float("-inf")
                self._stand_by(found)
                return False
        except Conflict:
            return False
        except KubeError as error:
            log.warning("%s cannot be renewed, after %.1f s: %s", self._ref, self._monotonic() - began, error)
            return False
        seconds = self._monotonic() - began
        self._told_renewal(seconds)
        log.log(logging.WARNING if seconds > SLOW_S else logging.DEBUG, "%s: renewed in %.1f s", self._ref, seconds)
        self._held_until = began + DURATION_S - _MARGIN_S
        return True

    def _stand_by(self, found: Manifest) -> None:
        """Say once of each holder that this operator waits for it."""
        holder = found["spec"]["holderIdentity"]
        if holder != self._waits_for:
            log.info("standing by: %s is held by %s; this operator takes over when that one is gone", self._ref, holder)
        self._waits_for = holder

    def stop(self) -> None:
        """No write begins any more: whoever asks is told that the lease is not held."""
        self._gives_up = self._gives_up or self.held
        self._held_until = float("-inf")

    async def release(self) -> None:
        """Give the lease up, so that the next operator need not wait for its end; after the last write has ended."""
        self.stop()
        if not self._gives_up:
            return
        self._gives_up = False
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
        duration = float(spec.get("leaseDurationSeconds", DURATION_S))
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
                "leaseDurationSeconds": DURATION_S,
                "acquireTime": spec["acquireTime"] if ours and "acquireTime" in spec else _micro(now),
                "renewTime": _micro(now),
                "leaseTransitions": spec.get("leaseTransitions", 0) + (0 if ours or found is None else 1),
            },
        }


def _micro(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
