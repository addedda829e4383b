"""Planning: how far a micro-batch goes, and which task reads what. Pure: no network, no clock.

Below the high watermark nothing changes, whether a segment is sealed or open: its range can be cut anywhere.

Spark keeps the end of each micro-batch, and not where the first one begins. Hence one rule for what a range means:
a partition that its start does not name is not read by it. The end of that range then says where the partition
begins, and the next range reads on from there; however often a range is repeated, it means the same.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from pyspark_walrus.errors import Reason, SourceError
from pyspark_walrus.layout import Epochs, Layout, SegmentLayout
from pyspark_walrus.losses import Cause, Loss
from pyspark_walrus.offsets import Offsets, TopicPartition, check_same_topics, partitions

# Adjacent pieces smaller than this together are one task: starting one costs more than reading them.
PACK_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True)
class Piece:
    """A run of offsets `[start, end)` of one segment, and the nodes that can serve it."""

    topic: str
    topic_uuid: str
    partition: int
    segment: str
    start: int
    end: int
    addresses: tuple[str, ...]
    bytes: int  # an estimate
    epochs: Epochs = ()


@dataclass(frozen=True)
class Split(InputPartition):
    """What one task reads: adjacent pieces of one partition, in offset order."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Plan:
    """Splits and losses: together each offset of the range once."""

    splits: tuple[Split, ...]
    losses: tuple[Loss, ...]


def next_end(
    start: Offsets,
    target: Offsets,
    layout: Layout,
    *,
    offsets_max: int | None,
    bytes_max: int | None,
) -> Offsets:
    """The end of the next micro-batch that begins at `start` and goes at most as far as `target`.

    Both limits are shared out in proportion to each partition's backlog. As long as there is a backlog, the end is
    beyond the start, however small the limits; bytes are estimated from the sizes of the segments.

    Offsets of topics that the layout does not have stay as they are. A partition that `start` does not name begins
    here, and is read from the next micro-batch on: a new partition of a known topic at 0, one of a new topic where
    its log begins. One that ends before `start` stays; `unreachable` tells of it.
    """
    ends = dict(start.next)
    begins: dict[TopicPartition, int] = {}
    goals: dict[TopicPartition, int] = {}
    for key, partition in partitions(layout):
        at, goal = start.next.get(key), target.next.get(key)
        if at is None:
            if goal is not None:
                ends[key] = 0 if key[0] in start.ids else partition.log_start
        else:
            goals[key] = max(at, min(goal if goal is not None else at, partition.high_watermark))
            begins[key] = min(max(at, partition.log_start), goals[key])
    ends.update(_limited(begins, goals, layout, offsets_max=offsets_max, bytes_max=bytes_max))
    named = {topic for topic, _ in ends}
    ids = {**start.ids, **{topic.name: topic.uuid for topic in layout.values() if topic.name in named}}
    return Offsets(ids, ends)


def _limited(
    begins: Mapping[TopicPartition, int],
    goals: Mapping[TopicPartition, int],
    layout: Layout,
    *,
    offsets_max: int | None,
    bytes_max: int | None,
) -> dict[TopicPartition, int]:
    ends = dict(goals)
    if bytes_max is not None:
        backlog = {key: bytes_between(layout, key, begins[key], ends[key]) for key in ends}
        for key, share in share_out(bytes_max, backlog).items():
            if share < backlog[key]:
                ends[key] = offset_after_bytes(layout, key, begins[key], ends[key], share)
    if offsets_max is not None:
        backlog = {key: ends[key] - begins[key] for key in ends}
        for key, share in share_out(offsets_max, backlog).items():
            ends[key] = begins[key] + share
    if all(ends[key] == begins[key] for key in ends):
        behind = [key for key in ends if goals[key] > begins[key]]
        if behind:  # the limit is smaller than any record: take one
            ends[behind[0]] = begins[behind[0]] + 1
    return ends


def share_out(amount: int, wants: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Shares `amount` out in proportion to what each wants; sums to min(amount, all wants) exactly."""
    total = sum(wants.values())
    if total <= amount:
        return dict(wants)
    shares = {key: want * amount // total for key, want in wants.items()}
    left = amount - sum(shares.values())
    by_remainder = sorted(wants, key=lambda key: (-(wants[key] * amount % total), key))
    for key in by_remainder[:left]:
        shares[key] += 1
    return shares


def bytes_between(layout: Layout, key: TopicPartition, start: int, end: int) -> int:
    """An estimate of the bytes of `[start, end)`: within a segment all records count as equally long."""
    return sum(
        _share_of_bytes(segment, max(start, segment.base_offset), min(end, segment.end_offset))
        for segment in layout[key[0]].partitions[key[1]].segments
    )


def offset_after_bytes(layout: Layout, key: TopicPartition, start: int, end: int, bytes_max: int) -> int:
    """The greatest offset up to `end` for which `[start, offset)` is at most `bytes_max` long."""
    low, high = start, end
    while low < high:
        middle = (low + high + 1) // 2
        if bytes_between(layout, key, start, middle) <= bytes_max:
            low = middle
        else:
            high = middle - 1
    return low


def unreachable(start: Offsets, layout: Layout) -> list[Loss]:
    """What is gone between `start`, from which a query goes on, and the nearest offset that it can go on from."""
    found = dict(partitions(layout))
    losses = []
    for key, at in sorted(start.next.items()):
        partition = found.get(key)
        if partition is not None and at < partition.log_start:
            losses.append(Loss(*key, at, partition.log_start, Cause.TRIMMED))
        elif partition is not None and at > partition.high_watermark:
            losses.append(Loss(*key, partition.high_watermark, at, Cause.CUT_OFF))
    return losses


def replaced(pieces: Iterable[Piece], layout: Layout) -> list[Loss]:
    """What of the pieces lies in other segments now: the partition had lost its end, and others were appended there.

    A segment that a compaction has put in the place of others holds offsets that were written under the same epochs.
    Offsets at which nothing lies any more are told by `unreachable`.
    """
    losses: dict[TopicPartition, Loss] = {}
    for piece in sorted(pieces, key=lambda piece: piece.start):
        there = layout.get(piece.topic)
        if there is None or there.uuid != piece.topic_uuid or piece.partition not in there.partitions:
            continue
        partition, key = there.partitions[piece.partition], (piece.topic, piece.partition)
        begin, end = max(piece.start, partition.log_start), min(piece.end, partition.high_watermark)
        others = [
            max(begin, segment.base_offset)
            for segment in partition.segments
            if segment.uuid != piece.segment
            and segment.base_offset < end
            and begin < segment.end_offset
            and not _same_writers(piece, segment, max(begin, segment.base_offset), min(end, segment.end_offset))
        ]
        if key in losses:
            losses[key] = replace(losses[key], end=max(losses[key].end, end))
        elif others and begin < end:
            losses[key] = Loss(*key, min(others), end, Cause.CUT_OFF)
    return [losses[key] for key in sorted(losses)]


def _same_writers(piece: Piece, segment: SegmentLayout, start: int, end: int) -> bool:
    theirs = _writers(segment.epochs, start, end)
    return bool(theirs) and theirs == _writers(piece.epochs, start, end)


def _writers(epochs: Epochs, start: int, end: int) -> list[tuple[int, int]]:
    """Under which epochs the offsets of `[start, end)` were written, and from where on."""
    ends = [*(first for _, first in epochs[1:]), end][: len(epochs)]
    return [
        (epoch, max(first, start))
        for (epoch, first), last in zip(epochs, ends, strict=True)
        if first < end and start < last
    ]


def changed_topics(start: Offsets, end: Offsets) -> set[str]:
    """The topics of which a range has records: what it says of others need not be looked at."""
    return {key[0] for key, last in end.next.items() if key in start.next and start.next[key] != last}


def plan_range(start: Offsets, end: Offsets, layout: Layout, *, bytes_per_split_max: int, splits_min: int) -> Plan:
    """The splits that read `[start, end)` of every partition that both name, each offset once, and what is lost.

    The layout needs to have the topics that the range has records of. Raises TOPIC_RECREATED, PARTITION_GONE, or
    SEGMENT_UNAVAILABLE where the segments do not cover what should be there.
    """
    check_same_topics(start, layout)
    check_same_topics(end, layout)
    splits: list[Split] = []
    losses: list[Loss] = []
    for key in sorted(end.next.keys() & start.next.keys()):
        first, last = start.next[key], end.next[key]
        if first >= last:  # reversed by a partition that had lost its end: the range goes back to what is left
            continue
        if key[0] not in layout:
            losses.append(Loss(*key, first, last, Cause.DELETED))
            continue
        partition = layout[key[0]].partitions[key[1]]
        begin, stop = max(first, partition.log_start), min(last, partition.high_watermark)
        if first < begin:
            losses.append(Loss(*key, first, min(begin, last), Cause.TRIMMED))
        if stop < last and begin < last:
            losses.append(Loss(*key, max(first, stop), last, Cause.CUT_OFF))
        run = _pieces(key, begin, stop, layout) if begin < stop else []
        splits += _pack([part for piece in run for part in _cut_by_bytes(piece, bytes_per_split_max)])
    return Plan(tuple(_at_least(splits, splits_min)), tuple(losses))


def _pieces(key: TopicPartition, start: int, end: int, layout: Layout) -> list[Piece]:
    topic = layout[key[0]]
    pieces = []
    for segment in topic.partitions[key[1]].segments:
        first, last = max(start, segment.base_offset), min(end, segment.end_offset)
        if first < last:
            size = _share_of_bytes(segment, first, last)
            where = (topic.name, topic.uuid, key[1], segment.uuid)
            pieces.append(Piece(*where, first, last, segment.addresses, size, segment.epochs))
    covered = [start, *(offset for piece in pieces for offset in (piece.start, piece.end)), end]
    if any(left != right for left, right in zip(covered[::2], covered[1::2], strict=True)):
        raise SourceError(
            Reason.SEGMENT_UNAVAILABLE,
            f"the segments of partition {key[1]} of topic {key[0]} do not cover the range to read",
            topic=key[0],
            partition=key[1],
            requested=[start, end],
        )
    return pieces


def _share_of_bytes(segment: SegmentLayout, start: int, end: int) -> int:
    if start >= end:
        return 0
    return segment.bytes * (end - start) // (segment.end_offset - segment.base_offset)


def _cut_by_bytes(piece: Piece, bytes_max: int) -> list[Piece]:
    return _cut(piece, -(-piece.bytes // bytes_max))


def _cut(piece: Piece, parts: int) -> list[Piece]:
    """Cuts a piece into equal parts, at most one for each of its records."""
    records = piece.end - piece.start
    parts = max(1, min(parts, records))
    edges = [piece.start + records * part // parts for part in range(parts + 1)]
    return [
        replace(piece, start=first, end=last, bytes=piece.bytes * (last - first) // records)
        for first, last in pairwise(edges)
    ]


def _pack(run: list[Piece]) -> list[Split]:
    packed: list[list[Piece]] = []
    for piece in run:
        if packed and sum(other.bytes for other in packed[-1]) + piece.bytes <= PACK_BYTES_MAX:
            packed[-1].append(piece)
        else:
            packed.append([piece])
    return [Split(tuple(pieces)) for pieces in packed]


def _at_least(splits: list[Split], splits_min: int) -> list[Split]:
    """Cuts splits, the larger ones into more parts, until there are `splits_min` or one per record."""
    if not splits or len(splits) >= splits_min:
        return splits
    pieces = [piece for split in splits for piece in split.pieces]
    records = {(str(number), 0): piece.end - piece.start for number, piece in enumerate(pieces)}
    shares = share_out(max(0, splits_min - len(pieces)), {key: n - 1 for key, n in records.items()})
    return [
        Split((part,)) for piece, extra in zip(pieces, shares.values(), strict=True) for part in _cut(piece, 1 + extra)
    ]
