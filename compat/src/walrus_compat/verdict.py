"""What must hold of records: those that were sent, acknowledged and stored, and those that a reader saw. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any


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


def of_reader(seen: Sequence[int], begin: int, end: int, *, rereads: bool = False) -> list[str]:
    """What is wrong with the offsets that a reader saw from `begin` on, of a log that ends at `end`."""
    if rereads:
        highest = accumulate(seen, max)
        seen = [offset for offset, before in zip(seen, chain([begin - 1], highest), strict=False) if offset > before]
    wrong = []
    if seen and seen[0] != begin:
        wrong.append(f"the reader began at {seen[0]}, not at {begin}")
    if gaps := [after for before, after in pairwise(seen) if after != before + 1]:
        wrong.append(f"the reader jumped at {_some(gaps)}")
    if (last := seen[-1] + 1 if seen else begin) != end:
        wrong.append(f"the reader ended at {last}, and the log at {end}")
    return wrong


def of_group(events: Iterable[Mapping[str, Any]], ends: Mapping[int, int], *, taken_max: int = 0) -> list[str]:
    """What is wrong with what the members of a group read and committed, in the order of time; `ends` of the logs.

    A member begins where the last one has committed: one that has just got a partition, and reads what was committed
    before, saw an older commit. Whoever does not know yet that it has lost a partition may read it for a while. At most
    `taken_max` records may lack, which members that ended have taken with them.
    """
    wrong = []
    committed: dict[int, int] = {}
    begun: set[tuple[object, int]] = set()
    seen: dict[int, set[int]] = {partition: set() for partition in ends}
    back: list[str] = []
    for event in events:
        if "read" in event:
            partition, offset = event["partition"], event["read"]
            seen.setdefault(partition, set()).add(offset)
            is_first = (event["member"], partition) not in begun
            begun.add((event["member"], partition))
            if is_first and offset < committed.get(partition, 0):
                back.append(f"{offset} of partition {partition} was read behind a commit of {committed[partition]}")
        elif "assigned" in event:
            begun = {(member, held) for member, held in begun if member != event["member"] or held in event["assigned"]}
        elif "committed" in event:
            partition, offset = event["partition"], event["committed"]
            if offset < committed.get(partition, 0):
                back.append(f"{offset} of partition {partition} was committed behind {committed[partition]}")
            committed[partition] = offset
    lacking = {partition: sorted(set(range(end)) - seen[partition]) for partition, end in ends.items()}
    if sum(map(len, lacking.values())) > taken_max:
        for partition, missing in lacking.items():
            if missing:
                wrong.append(f"{len(missing)} of partition {partition} were not delivered: {_some(missing)}")
    if back:
        wrong.append(f"commits went back {len(back)} times: {back[0]}")
    return wrong


def _some(numbers: Iterable[int]) -> str:
    numbers = list(numbers)
    return ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
