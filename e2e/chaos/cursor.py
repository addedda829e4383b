"""What one reader of one cursor was handed, and the check of it. Pure.

`GET` hands out the next record, `COMMIT` makes what was handed out count for good. After a broken connection, or a new
owner of the cursor, records behind the last commit may come again; a committed one may not (S11), and none may be left
out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

COMMITTED = -1  # stands between the sequences: all before it were committed, and that was answered


@dataclass
class CursorVerdict:
    """The lists are empty when every promise held."""

    handed: int = 0
    commits: int = 0
    moved_back: list[tuple[int, int]] = field(default_factory=list)  # (last committed, handed out again)
    left_out: list[tuple[int, int]] = field(default_factory=list)  # (expected, handed out)

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
    """Judges the sequences that were handed out, in order, with `COMMITTED` where a commit was answered."""
    verdict = CursorVerdict()
    committed = highest = -1
    for event in events:
        if event == COMMITTED:
            verdict.commits += 1
            committed = highest
            continue
        verdict.handed += 1
        if event <= committed:
            verdict.moved_back.append((committed, event))
        if event > highest + 1:
            verdict.left_out.append((highest + 1, event))
        highest = max(highest, event)
    return verdict
