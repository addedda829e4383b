"""What the operator asks of Kubernetes, and the errors it can meet."""

# ruff: noqa: N818 - the classes are called by what happened

from __future__ import annotations

from typing import Protocol

from walrus_operator.objects import Kind, Manifest, Ref

FIELD_MANAGER = "walrus-operator"
STATUS_MANAGER = "walrus-operator-status"
WRITE_MAX_S = 5.0
"""The longest that a call that changes something may take; then it is given up. The lease outlasts it."""

READ_MAX_S = 13.0
"""The longest that a call that only reads may take, each page of a list for itself."""


class KubeError(Exception):
    """Kubernetes did not do what was asked. Says what was asked and what was answered."""


class Unreachable(KubeError):
    """No answer, or one that says: later. Nothing is known about whether it was done."""


class Conflict(KubeError):
    """Another one changed or made the object first: look again."""


class Missing(KubeError):
    """There is no such object, or no such kind."""


class Denied(KubeError):
    """The operator's role does not allow it, or the namespace is on its way out."""


class Refused(KubeError):
    """The object is not what Kubernetes, or a policy of the cluster, takes."""


class Disrupting(KubeError):
    """The pod may not be evicted now: the disruption budget of its cluster has nothing left."""


class KubeApi(Protocol):
    """Kubernetes. Reads are never cached. Every write is safe to repeat."""

    async def get(self, ref: Ref) -> Manifest | None:
        """The object, or None where there is none."""

    async def list(self, kind: Kind, namespace: str | None, selector: str = "") -> list[Manifest]:
        """The objects of a namespace, or of all; selected by labels."""

    async def create(self, manifest: Manifest) -> Manifest:
        """Make the object; `Conflict` where there is one."""

    async def replace(self, manifest: Manifest) -> Manifest:
        """Replace the object; `Conflict` unless it is at the manifest's resource version."""

    async def apply(self, manifest: Manifest) -> Manifest:
        """Server-side apply: the fields of the manifest become ours and are as it says; others stay."""

    async def try_apply(self, manifest: Manifest) -> None:
        """Raises what `apply` would; changes nothing (`dryRun`)."""

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """Server-side apply of the status alone."""

    async def delete(self, ref: Ref, uid: str, *, orphan: bool = False) -> None:
        """Delete the object if it is still this one; that it is gone already is fine.

        With *orphan* what belongs to it stays and has no owner then; the object itself is still there for a moment.
        """

    async def evict(self, ref: Ref, uid: str) -> None:
        """Delete the pod if it is still this one and its budget allows it; that it is gone already is fine.

        Raises `Disrupting` where the budget does not: of all who evict, Kubernetes lets only as many through.
        """
