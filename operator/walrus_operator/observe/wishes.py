"""What people want of clusters, apart from what the operator itself writes there."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any


class Wishes:
    """What people want of clusters, as it was told last. A status is no wish: the operator's own wakes nobody."""

    def __init__(self) -> None:
        self._known: dict[str, object] = {}

    def are_new(self, metadata: Mapping[str, Any]) -> bool:
        """Whether something of it differs from what was told last."""
        wishes = _wishes(metadata)
        uid = str(metadata.get("uid", ""))
        new = self._known.get(uid) != wishes
        self._known[uid] = wishes
        return new

    def forget(self, uid: str) -> None:
        """The cluster is gone."""
        self._known.pop(uid, None)

    def keep(self, uids: Container[str]) -> None:
        """Forgets the resources that are not among these: they are gone."""
        self._known = {uid: wishes for uid, wishes in self._known.items() if uid in uids}


def _wishes(metadata: Mapping[str, Any]) -> object:
    return (
        metadata.get("generation"),
        dict(metadata.get("annotations", {})),
        dict(metadata.get("labels", {})),
        list(metadata.get("finalizers", ())),
        metadata.get("deletionTimestamp"),
    )
