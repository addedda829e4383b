"""What the disks of all nodes hold in the end, compared with each other and with what readers were given. Pure, O(n).

A segment's copies must be equal below its end (S2), enough of them must be whole (S7), and every record that a reader
was given must be there, the same (S1, S5).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from harness.batches import Batch, values

SHOWN = 5

Unwrap = Callable[[bytes | None], bytes | None]


@dataclass(frozen=True)
class Extent:
    """A segment as the metadata has it; the end of an open one is its high watermark."""

    segment: str
    base: int
    end: int


@dataclass
class DiskVerdict:
    """One partition on all disks; the lists are empty when every promise held."""

    copies: int = 0  # how many copies of segments were looked at
    torn_chain: list[tuple[int, int]] = field(default_factory=list)  # (end, next base) of segments that do not join
    unequal: list[tuple[int, int, int]] = field(default_factory=list)  # (offset, node, other node)
    too_few: list[tuple[str, int]] = field(default_factory=list)  # (segment, whole copies)
    unlike: list[int] = field(default_factory=list)  # offsets whose value is not what readers were given
    gone: list[int] = field(default_factory=list)  # first offsets of ranges that no disk has

    def __bool__(self) -> bool:
        """Whether every promise held."""
        return not any((self.torn_chain, self.unequal, self.too_few, self.unlike, self.gone))

    def __str__(self) -> str:
        names = {"torn_chain": "joints torn", "too_few": "segments with too few whole copies", "gone": "ranges gone"}
        found = {name: value for name, value in vars(self).items() if isinstance(value, list) and value}
        wrong = [f"{len(value)} {names.get(name, name)}: {value[:SHOWN]}" for name, value in found.items()]
        return f"{self.copies} copies on disks; " + ("; ".join(wrong) or "nothing wrong")


def judge_disks(
    extents: Sequence[Extent],
    copies: Mapping[tuple[str, int], Iterable[Batch]],
    *,
    held: Sequence[int],
    write_quorum: int,
    unwrap: Unwrap = lambda value: value,
) -> DiskVerdict:
    """Judges a partition. *copies* has the sound batches of each (segment, node), *held* the hash of every value that
    the last reader was given, by offset, after *unwrap*.
    """
    verdict = DiskVerdict()
    for before, after in pairwise(extents):
        if before.end != after.base:
            verdict.torn_chain.append((before.end, after.base))
    for extent in extents:
        _judge_segment(verdict, extent, copies, held, write_quorum, unwrap)
    return verdict


def _judge_segment(
    verdict: DiskVerdict,
    extent: Extent,
    copies: Mapping[tuple[str, int], Iterable[Batch]],
    held: Sequence[int],
    write_quorum: int,
    unwrap: Unwrap,
) -> None:
    first: dict[int, tuple[int, Batch]] = {}  # by base offset: which node had it first
    whole = 0
    for (segment, node), batches in copies.items():
        if segment != extent.segment:
            continue
        verdict.copies += 1
        reached = extent.base
        for batch in batches:
            if batch.base_offset >= extent.end:
                continue  # behind the decided end: not of this segment's value, readable to nobody
            if batch.base_offset == reached:
                reached = batch.end_offset
            other, known = first.setdefault(batch.base_offset, (node, batch))
            if known.content != batch.content:
                verdict.unequal.append((batch.base_offset, node, other))
        whole += reached >= extent.end
    if extent.end > extent.base and whole < write_quorum:
        verdict.too_few.append((extent.segment, whole))
    reached = extent.base
    for base in sorted(first):
        if base > reached:
            verdict.gone.append(reached)
        _, batch = first[base]
        reached = max(reached, batch.end_offset)
        for offset, value in values(batch):
            if offset < len(held) and held[offset] != hash(unwrap(value)):
                verdict.unlike.append(offset)
    if reached < extent.end:
        verdict.gone.append(reached)
