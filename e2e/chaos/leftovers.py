"""What is left on the disks of segments that no topic has: expired, deleted, or replaced by a compaction. Pure.

A log without a byte is none of these: nodes begin one for a segment that then may not come about.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

SHOWN = 5


@dataclass
class Leftovers:
    """Segments by node that are on its disk and listed nowhere; `logs` are those with bytes that were looked at."""

    logs: int = 0
    by_node: dict[int, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether nothing is left, and there was something to look at."""
        return self.logs > 0 and not self.by_node

    def __str__(self) -> str:
        left = {f"node-{node}": (len(found), found[:SHOWN]) for node, found in self.by_node.items()}
        return f"{self.logs} logs on disks; " + (f"left of segments that are gone: {left}" if left else "nothing left")


def judge_leftovers(listed: AbstractSet[str], on_disks: Mapping[int, AbstractSet[str]]) -> Leftovers:
    """Compares the segments that any topic has with the logs on the disk of each node."""
    left = {node: sorted(logs - listed) for node, logs in on_disks.items()}
    return Leftovers(sum(map(len, on_disks.values())), {node: found for node, found in left.items() if found})
