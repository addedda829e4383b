"""What nodes count of failovers, over the restarts of their processes; where all is planned there is none. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Failovers:
    """How many segments had their end decided by a recovery, by cause, since the first note of each node."""

    by_cause: Counter[str] = field(default_factory=Counter)
    _seen: dict[int, Mapping[str, int]] = field(default_factory=dict)

    def note(self, counted: Mapping[int, Mapping[str, int]]) -> None:
        """Takes in what the counters of nodes say now; those of a process that has started since begin at 0."""
        for node, now in counted.items():
            before = self._seen.get(node)
            self._seen[node] = dict(now)
            if before is None:
                continue
            is_same = all(now.get(cause, 0) >= count for cause, count in before.items())
            for cause, count in now.items():
                self.by_cause[cause] += count - (before.get(cause, 0) if is_same else 0)

    def __bool__(self) -> bool:
        """Whether there was none."""
        return not self.by_cause.total()

    def __str__(self) -> str:
        return f"failed over: {dict(+self.by_cause)}" if self.by_cause.total() else "nothing failed over"
