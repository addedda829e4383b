"""Which disk each broker is on, and where, noted while the broker says so: a lost one is known by it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Disk:
    """The disk of a broker, and the claim or the node that bears it."""

    disk: str
    """The identity on it."""
    claim: str
    """The uid of the claim; "" where its pool has none. Another claim of the same name bears another disk."""
    node: str = ""
    """The node that has it in a folder; "" where it is on a claim."""

    def text(self) -> str:
        """As it is kept in the ConfigMap."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def parse(cls, text: str) -> Disk | None:
        """What was kept; None where it cannot be read, as if nobody had noted it."""
        try:
            told = json.loads(text)
            return cls(str(told["disk"]), str(told["claim"]), str(told["node"]))
        except (ValueError, KeyError, TypeError):
            return None


def disks_of(data: Mapping[str, Any]) -> dict[str, Disk]:
    """Disks by pod, of a ConfigMap's data."""
    parsed = {pod: Disk.parse(str(text)) for pod, text in sorted(data.items())}
    return {pod: disk for pod, disk in parsed.items() if disk is not None}
