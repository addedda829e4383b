"""Claims of brokers, as Kubernetes tells of them, and how far they are with growing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from walrus_operator.api.units import amount_of
from walrus_operator.desired.names import LABEL_CLUSTER, LABEL_POOL, Names
from walrus_operator.objects import Manifest, uid_of

_FILE_SYSTEM = "FileSystemResizePending"
_ERRORS = ("ControllerResizeError", "NodeResizeError")
"""Conditions with what the volume's driver said.

https://kubernetes.io/docs/concepts/storage/persistent-volumes/#recovering-from-failure-when-expanding-volumes
"""
_FAILED = ("Infeasible", "Failed")
"""How the states end, in the status of a claim, in which a driver will not make the volume larger by itself."""


@dataclass(frozen=True)
class Claim:
    """A broker's claim."""

    uid: str
    pool: str
    ordinal: int
    phase: str
    size: str
    """What it asks for, as it is written there."""
    bound: bool
    """Whether it ever had a volume; one that never had holds nothing."""
    deleting: bool
    capacity: str = ""
    """What its volume has, as Kubernetes tells; "" where it does not."""
    waits_since: datetime | None = None
    """Since when the volume is large enough, and its file system is not yet."""
    volume: str = ""
    """The volume that it has; "" where it has none."""
    trouble: str = ""
    """Why the volume does not become as large as the claim asks for, in the words of its driver."""

    @classmethod
    def parse(cls, manifest: Manifest, names: Names) -> Claim | None:
        """From the API server's object; None where it is not one of the cluster's, whatever its labels say."""
        metadata, spec, status = manifest["metadata"], manifest.get("spec", {}), manifest.get("status", {})
        pool = metadata.get("labels", {}).get(LABEL_POOL, "")
        prefix, _, ordinal = metadata["name"].rpartition("-")
        if prefix != names.claim(names.pool(pool)) or not ordinal.isdigit() or not is_labelled(manifest, names, pool):
            return None
        phase = status.get("phase", "Pending")
        conditions = {one["type"]: one for one in status.get("conditions", ()) if one.get("status") == "True"}
        return cls(
            uid=uid_of(manifest),
            pool=pool,
            ordinal=int(ordinal),
            phase=phase,
            size=spec.get("resources", {}).get("requests", {}).get("storage", ""),
            bound=phase != "Pending" or bool(spec.get("volumeName")),
            deleting="deletionTimestamp" in metadata,
            capacity=status.get("capacity", {}).get("storage", ""),
            waits_since=_time(conditions.get(_FILE_SYSTEM)),
            volume=spec.get("volumeName") or "",
            trouble=_trouble(status, conditions),
        )

    @property
    def is_sized(self) -> bool:
        """Whether it has a volume, and says how large that shall be."""
        return self.phase == "Bound" and not self.deleting and bool(amount_of(self.size))

    @property
    def has(self) -> str:
        """The size that it asked for and has; a driver that gives more than that is no news."""
        return self.capacity if self.capacity and self.lacks(self.size) else self.size

    @property
    def state(self) -> Literal["Pending", "Bound", "Growing", "FileSystemGrowing", "Refused", "Lost"]:
        """How it is, in one word."""
        if self.phase != "Bound":
            return "Lost" if self.phase == "Lost" else "Pending"
        if self.waits_since is not None:
            return "FileSystemGrowing"
        if not self.lacks(self.size):
            return "Bound"
        return "Refused" if self.trouble else "Growing"

    def lacks(self, size: str) -> bool:
        """Whether its volume is smaller than that."""
        return (amount_of(self.capacity or self.size) or 0) < (amount_of(size) or 0)


def is_labelled(manifest: Manifest, names: Names, pool: str) -> bool:
    """Whether the labels say that it is of this pool of this cluster. Names do not: two clusters can share them."""
    labels = manifest["metadata"].get("labels", {})
    return (labels.get(LABEL_CLUSTER), labels.get(LABEL_POOL)) == (names.cluster, pool)


def _trouble(status: Mapping[str, Any], conditions: Mapping[str, Any]) -> str:
    state = status.get("allocatedResourceStatuses", {}).get("storage") or status.get("resizeStatus", "")
    said = "; ".join(conditions[one].get("message", "") for one in _ERRORS if one in conditions)
    return said[:300] or (state if state.endswith(_FAILED) else "")


def _time(condition: Mapping[str, Any] | None) -> datetime | None:
    """When a condition became true; None where there is none, or nobody can read the time."""
    try:
        return datetime.fromisoformat(condition["lastTransitionTime"]) if condition is not None else None
    except (KeyError, ValueError):
        return None
