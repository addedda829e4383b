"""`KubeApi` that asks before each write whether this operator may still make it. Reads always go through."""

from __future__ import annotations

from collections.abc import Callable

from walrus_operator.kube.api import KubeApi
from walrus_operator.objects import Kind, Manifest, Ref


class FencedApi:
    """Writes only after `check` has returned; what it raises, the write raises."""

    def __init__(self, kube: KubeApi, check: Callable[[], None]) -> None:
        self._kube = kube
        self._check = check

    async def get(self, ref: Ref) -> Manifest | None:
        """The object, or None where there is none."""
        return await self._kube.get(ref)

    async def list(self, kind: Kind, namespace: str | None, selector: str = "") -> list[Manifest]:
        """The objects of a namespace, or of all."""
        return await self._kube.list(kind, namespace, selector)

    async def create(self, manifest: Manifest) -> Manifest:
        """Make the object."""
        self._check()
        return await self._kube.create(manifest)

    async def replace(self, manifest: Manifest) -> Manifest:
        """Replace the object."""
        self._check()
        return await self._kube.replace(manifest)

    async def apply(self, manifest: Manifest) -> Manifest:
        """Server-side apply."""
        self._check()
        return await self._kube.apply(manifest)

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """Server-side apply of the status."""
        self._check()
        return await self._kube.apply_status(manifest)

    async def delete(self, ref: Ref, uid: str) -> None:
        """Delete the object."""
        self._check()
        await self._kube.delete(ref, uid)
