"""What `EMPTY` claims, held against what was acknowledged before it was asked for. Pure.

`GET` answers `EMPTY` where every entry is delivered or held: by the connection that asks, or by another one. One reader
that takes record after record knows what it was handed. What it was never handed may be held by a connection that it
gave up: the answer was lost, and its holder keeps it for a while. A cursor's owner may have been asked twice for that
answer. Whatever else is missing when it hears `EMPTY` was left out by a false claim.
"""

from collections import deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

MAY_HOLD_S = 60.0  # the owner's 30 s, and as long for a node that slept before it took what was asked of it
HELD_MAX = 2  # answers that a connection which ended may have lost
SHOWN = 5


@dataclass
class EmptyClaims:
    """What one reader was told. `doubtful`: connections that ended may have held what was missing."""

    final: int = 0
    doubtful: int = 0
    false: list[str] = field(default_factory=list)
    ended: deque[float] = field(default_factory=deque)  # when connections ended, those of late
    complete: int = 0  # all sequences below were handed out

    def __bool__(self) -> bool:
        """Whether every claim was true, and there were some."""
        return not self.false and self.final > self.doubtful

    def __str__(self) -> str:
        doubtful = (
            f", {self.doubtful} of them with records that a lost connection may have held" if self.doubtful else ""
        )
        wrong = f"; {len(self.false)} false: {self.false[:SHOWN]}" if self.false else "; nothing wrong"
        return f"{self.final} times EMPTY{doubtful}{wrong}"

    def has_ended(self, now_s: float) -> None:
        """A connection of the reader is over."""
        self.ended.append(now_s)

    def check(self, where: str, known: int, handed: AbstractSet[int], now_s: float) -> None:
        """A node said EMPTY; *known* records had been acknowledged before it was asked, *handed* were given out."""
        self.final += 1
        while self.ended and self.ended[0] < now_s - MAY_HOLD_S:
            self.ended.popleft()
        while self.complete in handed:
            self.complete += 1
        missing = [sequence for sequence in range(self.complete, known) if sequence not in handed]
        if len(missing) > HELD_MAX * len(self.ended):
            self.false.append(
                f"{where}: {known} records were acknowledged, {len(missing)} not given: {missing[:SHOWN]}"
            )
        elif missing:
            self.doubtful += 1
