"""What a group of consumers was given and has committed, and what is wrong with that. Pure.

A committed offset that was acknowledged never goes back: whoever gets a partition goes on there or behind, and
whoever asks for it is told it, or a higher one. A member is given a partition's records one after the other. In the
end every record was given to the group, at least once, and always as it is in the log.
"""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Place = tuple[str, int]  # a topic and its partition
SHOWN = 5


@dataclass
class GroupVerdict:
    """One group, of which many members tell. `false` is empty when every promise held."""

    name: str
    commits: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # commits, by the error: members come and go
    joined: int = 0
    repeated: int = 0  # times that records came again to the same member, because the group was rebalanced
    committed: dict[Place, int] = field(default_factory=dict)  # the highest that was acknowledged, or told
    given: dict[Place, dict[int, int]] = field(default_factory=dict)  # hash of each value, by offset
    false: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __bool__(self) -> bool:
        """Whether every promise held, and there was something to see."""
        return not self.false and self.commits > 0

    def __str__(self) -> str:
        wrong = f"{len(self.false)} false: {self.false[:SHOWN]}" if self.false else "nothing wrong"
        refused = f", {self.refused.total()} refused" if self.refused else ""
        repeated = f", {self.repeated} times records again after a rebalance" if self.repeated else ""
        return f"{self.total()} records, {self.joined} times joined, {self.commits} commits{refused}{repeated}; {wrong}"

    def total(self) -> int:
        """Records that were given to the group, each counted once."""
        return sum(len(each) for each in self.given.values())

    def give(self, place: Place, offset: int, value: int, *, before: int | None, at_least: int) -> None:
        """A member gets a record, *before* is the offset before it; if it is the first, it is *at_least* that."""
        with self._lock:
            if before is None and offset < at_least:
                self.false.append(f"{place}: {at_least} was committed, and a member begins at {offset}")
            if before is not None and offset != before + 1:
                self.false.append(f"{place}: {offset} was given behind {before}")
            if self.given.setdefault(place, {}).setdefault(offset, value) != value:
                self.false.append(f"{place}: at {offset} was another record before")

    def commit(self, place: Place, offset: int) -> None:
        """A commit was acknowledged."""
        with self._lock:
            self.commits += 1
            self.committed[place] = max(offset, self.committed.get(place, 0))

    def refuse(self, error: str) -> None:
        """A commit was refused, or nobody knows."""
        with self._lock:
            self.refused[error] += 1

    def tell(self, place: Place, offset: int, *, at_least: int) -> None:
        """Somebody who asked when *at_least* was committed is told an offset; 0 is none."""
        with self._lock:
            if offset < at_least:
                self.false.append(f"{place}: {at_least} was committed, and told is {offset}")
            self.committed[place] = max(offset, self.committed.get(place, 0))

    def has_all(self, ends: Mapping[Place, int]) -> bool:
        """Whether every record below these offsets was given to the group."""
        return all(len(self.given.get(place, {})) >= end for place, end in ends.items())

    def check_whole(self, ends: Mapping[Place, int]) -> None:
        """Nothing comes any more: all below these offsets was given."""
        for place, end in ends.items():
            missing = [offset for offset in range(end) if offset not in self.given.get(place, {})]
            if missing:
                self.false.append(f"{place}: {len(missing)} of {end} records were never given: {missing[:SHOWN]}")

    def compare(self, place: Place, held: Sequence[int]) -> None:
        """What was given is what the log holds, as hashes by offset."""
        given = self.given.get(place, {})
        unlike = [offset for offset, value in given.items() if offset >= len(held) or held[offset] != value]
        if unlike:
            self.false.append(f"{place}: the log has other records than were given at {unlike[:SHOWN]}")
