"""Handlers of kopf: each only says which cluster, or whose topics, to look at. None changes anything on an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import kopf

from walrus_operator.api import topic
from walrus_operator.api.cluster import GROUP, PLURAL, VERSION
from walrus_operator.desired.names import LABEL_CLUSTER
from walrus_operator.objects import Key, TopicsKey
from walrus_operator.observe.wishes import Wishes

Heard = Callable[[str, str | None], None]
"""Told of an object: its uid and version, None when it is gone."""
Look = Callable[[Key], None]


def registry(look: Look, heard: Heard) -> kopf.OperatorRegistry:
    """The handlers, in a registry of their own."""
    made = kopf.OperatorRegistry()
    wishes = Wishes()

    def is_news(kind: str | None, metadata: Mapping[str, Any]) -> bool:
        """Whether an event of a resource tells of other wishes than those that were known."""
        uid = metadata.get("uid", "")
        heard(uid, None if kind == "DELETED" else metadata.get("resourceVersion", ""))
        if kind == "DELETED":
            wishes.forget(uid)
            return True
        return wishes.are_new(metadata) or kind is None

    @kopf.on.login(registry=made, id="login")
    async def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=made, id="cluster")
    async def cluster_event(
        type: str | None,  # noqa: A002 - kopf calls it so
        body: kopf.Body,
        namespace: str | None,
        name: str | None,
        **_: Any,
    ) -> None:
        if is_news(type, body["metadata"]):
            look(Key(namespace or "", name or ""))

    @kopf.on.event(GROUP, VERSION, topic.PLURAL, registry=made, id="topic")
    async def topic_event(
        type: str | None,  # noqa: A002 - kopf calls it so
        body: kopf.Body,
        spec: kopf.Spec,
        namespace: str | None,
        **_: Any,
    ) -> None:
        if is_news(type, body["metadata"]):
            look(TopicsKey(namespace or "", str(spec.get("cluster", ""))))

    @kopf.on.event("apps", "v1", "statefulsets", labels={LABEL_CLUSTER: kopf.PRESENT}, registry=made, id="set")
    async def set_event(
        type: str | None,  # noqa: A002 - kopf calls it so
        body: kopf.Body,
        labels: kopf.Labels,
        namespace: str | None,
        **_: Any,
    ) -> None:
        metadata: Mapping[str, Any] = body["metadata"]
        heard(metadata.get("uid", ""), None if type == "DELETED" else metadata.get("resourceVersion", ""))
        look(Key(namespace or "", labels[LABEL_CLUSTER]))

    return made


def settings() -> kopf.OperatorSettings:
    """Kopf as a mere listener: it posts nothing, scans nothing, and keeps nothing on objects."""
    made = kopf.OperatorSettings()
    made.posting.enabled = False
    made.scanning.disabled = True
    return made
