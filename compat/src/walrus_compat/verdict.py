"""What must hold of records: those that were sent, acknowledged and stored, and those that a reader saw. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise


def number_of(value: bytes | str | None) -> int:
    """The number in a value, `PRODUCER NUMBER ...`."""
    text = value.decode() if isinstance(value, bytes) else value or ""
    return int(text.split(" ")[1])


def of_producer(stored: Sequence[int], acked: Mapping[int, int], *, is_idempotent: bool) -> list[str]:
    """What is wrong with what one producer has stored: `stored` are its numbers in the order of the log."""
    wrong = []
    if lost := sorted(set(acked) - set(stored)):
        wrong.append(f"{len(lost)} acknowledged and lost: {_some(lost)}")
    if not is_idempotent:
        return wrong
    if twice := [number for number, count in Counter(stored).items() if count > 1]:
        wrong.append(f"{len(twice)} twice: {_some(twice)}")
    if moved := [after for before, after in pairwise(stored) if after < before]:
        wrong.append(f"{len(moved)} out of order: {_some(moved)}")
    elsewhere = [number for place, number in enumerate(stored) if acked.get(number, place) != place]
    if elsewhere and not twice:
        wrong.append(f"{len(elsewhere)} not at the offset that was told: {_some(elsewhere)}")
    return wrong


def of_reader(seen: Sequence[int], begin: int, end: int) -> list[str]:
    """What is wrong with the offsets that a reader saw from `begin` on, of a log that ends at `end`."""
    wrong = []
    if seen and seen[0] != begin:
        wrong.append(f"the reader began at {seen[0]}, not at {begin}")
    if gaps := [after for before, after in pairwise(seen) if after != before + 1]:
        wrong.append(f"the reader jumped at {_some(gaps)}")
    if (last := seen[-1] + 1 if seen else begin) != end:
        wrong.append(f"the reader ended at {last}, and the log at {end}")
    return wrong


def _some(numbers: Iterable[int]) -> str:
    numbers = list(numbers)
    return ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
