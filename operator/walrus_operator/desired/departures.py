"""Brokers that go, as noted before the first step, and disks that left the cluster while their claims stayed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Departure:
    """A broker that goes, or one that has gone and left its claim behind."""

    disk: str
    """The identity on its disk: what leaves the cluster, whatever pod it is in."""
    claim: str
    """The uid of its claim; "" where its pool has none. Another claim of the same name bears another disk."""
    held: int = 0
    """Segments that it stored when it began."""
    lost: bool = False
    """The disk will never come back: it leaves with what it stored, its claim goes, and its pod comes up on another."""
    pod: str = ""
    """The uid of the pod that was on a lost disk, where its pool has no claims: the next one is on another disk."""

    def text(self) -> str:
        """As it is kept in the ConfigMap."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> Departure | None:
        """What was kept; None where it cannot be read, as if nobody had begun."""
        try:
            told = json.loads(text)
            held, lost = int(told["held"]), bool(told["lost"])
            return cls(str(told["disk"]), str(told["claim"]), held, lost, str(told.get("pod", "")))
        except (ValueError, KeyError, TypeError):
            return None


def departures_of(data: Mapping[str, Any]) -> dict[str, Departure]:
    """Departures by pod, of a ConfigMap's data."""
    parsed = {pod: Departure.parse(str(text)) for pod, text in sorted(data.items())}
    return {pod: departure for pod, departure in parsed.items() if departure is not None}
