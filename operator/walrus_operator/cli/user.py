"""Kubernetes as whoever runs a command may use it: reads, and annotations of a resource as the only thing written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime

from walrus_operator.desired.names import LABEL_CLUSTER
from walrus_operator.kube.official import OfficialApi
from walrus_operator.objects import SECRET, Manifest, Ref, ref_of, uid_of

_MERGE = "application/merge-patch+json"
_MANAGER = "kubectl-walrus"
_TIMEOUT_S = (3.0, 10.0)


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

    async def clock(self) -> datetime:
        """The time of the API server, to the second."""

        def ask() -> Manifest:
            answer = self._dynamic.request("get", "/version", serialize=False, _request_timeout=_TIMEOUT_S)
            return {"date": answer.headers["Date"]}

        return parsedate_to_datetime((await self._call("get", "version", ask))["date"])

    async def may(self, user: str, namespace: str, group: str, resource: str, verb: str) -> bool:
        """Whether a user may do something in a namespace ("": in all). Raises `Denied` where one may not ask that."""
        name, _, below = resource.partition("/")
        asked = {"namespace": namespace, "group": group, "resource": name, "subresource": below, "verb": verb}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": asked},
        }

        def ask() -> Manifest:
            path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            answer = self._dynamic.request("post", path, serialize=False, body=body, _request_timeout=_TIMEOUT_S)
            told: Manifest = json.loads(answer.data)
            return told

        return bool((await self._call("create", "SubjectAccessReview", ask))["status"]["allowed"])
