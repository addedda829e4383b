"""What one reader of one cursor was handed, and the check of it. Pure.

`GET` hands out the next record, `COMMIT` makes what was handed out count for good. After a broken connection, or a new
owner of the cursor, records behind the last commit may come again; a committed one may not (S11), and none may be left
out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

COMMITTED = -1  # stands between the sequences: a commit of what this connection was handed was answered
CONNECTED = -2  # stands between the sequences: a connection of its own begins


@dataclass
class CursorVerdict:
    """The lists are empty when every promise held."""

    handed: int = 0
    commits: int = 0
    moved_back: list[tuple[int, int]] = field(default_factory=list)  # (last committed, handed out again)
    left_out: list[int] = field(default_factory=list)  # never handed out, though later ones were

    def __bool__(self) -> bool:
        """Whether every promise held."""
        return not self.moved_back and not self.left_out

    def __str__(self) -> str:
        wrong = [
            f"{len(found)} {what}: {found[:5]}"
            for what, found in (("committed and handed out again", self.moved_back), ("left out", self.left_out))
            if found
        ]
        return f"{self.handed} handed out by a cursor, {self.commits} commits; " + ("; ".join(wrong) or "nothing wrong")


def judge_cursor(events: Iterable[int]) -> CursorVerdict:
    """Judges the sequences that were handed out, in order, with `CONNECTED` and `COMMITTED` between them."""
    verdict = CursorVerdict()
    handed: set[int] = set()  # an answer that was lost comes again later: the order is no promise
    committed: set[int] = set()
    since_connected: list[int] = []  # a commit speaks for its own connection only
    for event in events:
        if event == CONNECTED:
            since_connected = []
            continue
        if event == COMMITTED:
            verdict.commits += 1
            committed.update(since_connected)
            since_connected = []
            continue
        verdict.handed += 1
        handed.add(event)
        since_connected.append(event)
        if event in committed:
            verdict.moved_back.append((max(committed), event))
    verdict.left_out = [each for each in range(max(handed, default=0)) if each not in handed]
    return verdict
