"""Kubernetes as whoever runs a command may use it: reads, and annotations of a resource as the only thing written."""

from __future__ import annotations

from collections.abc import Mapping

from walrus_operator.desired.names import LABEL_CLUSTER
from walrus_operator.kube.official import OfficialApi
from walrus_operator.objects import SECRET, Manifest, Ref, ref_of, uid_of

_MERGE = "application/merge-patch+json"
_MANAGER = "kubectl-walrus"


class UserApi(OfficialApi):
    """Kubernetes with the user's own rights; Secrets are not asked for."""

    async def get(self, ref: Ref) -> Manifest | None:
        """The object; the brokers' Secret as if it were there."""
        if ref.kind != SECRET.name:
            return await super().get(ref)
        labels = {LABEL_CLUSTER: ref.name.removesuffix("-shared-secret")}
        return {"kind": SECRET.name, "metadata": {"name": ref.name, "namespace": ref.namespace, "labels": labels}}

    async def annotate(self, found: Manifest, annotations: Mapping[str, str]) -> Manifest:
        """Write annotations of the resource that was found; with its uid, they land on no other one of its name."""
        ref = ref_of(found)
        body = {"metadata": {"uid": uid_of(found), "annotations": dict(annotations)}}
        return await self._call(
            "patch",
            ref.kind,
            lambda: self._ask(
                "patch",
                ref.kind,
                ref.namespace,
                ref.name,
                body=body,
                content_type=_MERGE,
                field_manager=_MANAGER,
            ),
        )
