"""Planning: how far a micro-batch goes, and which task reads what. Pure: no network, no clock.

A sealed segment never changes, so its range can be cut anywhere and read from any of its replicas; what
is still open is one split per partition.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from pyspark_walrus.errors import Reason, SourceError
from pyspark_walrus.layout import Layout, PartitionLayout, SegmentLayout
from pyspark_walrus.offsets import Offsets, TopicPartition, check_same_topics, partitions

# Adjacent pieces smaller than this together are one task: starting one costs more than reading them.
PACK_BYTES_MAX: Final = 4 << 20


@dataclass(frozen=True)
class Piece:
    """A run of offsets `[start, end)` of one segment, and the nodes that can serve it."""

    topic: str
    partition: int
    segment: str
    start: int
    end: int
    sealed: bool
    addresses: tuple[str, ...]
    bytes: int  # an estimate


@dataclass(frozen=True)
class Split(InputPartition):
    """What one task reads: adjacent pieces of one partition, in offset order."""

    pieces: tuple[Piece, ...]


def next_end(
    start: Offsets,
    latest: Offsets,
    layout: Layout,
    *,
    offsets_max: int | None,
    bytes_max: int | None,
) -> Offsets:
    """The end of the next micro-batch that begins at `start` and may go as far as `latest`.

    Both limits are shared out in proportion to each partition's backlog. As long as there is a backlog, the
    end is beyond the start, however small the limits; bytes are estimated from the sizes of the segments.
    A partition that `start` does not name is new and is read from its beginning.
    """
    begins = {
        key: min(start.next.get(key, partition.log_start), latest.next[key]) for key, partition in partitions(layout)
    }
    ends = dict(latest.next)
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
        behind = [key for key in ends if latest.next[key] > begins[key]]
        if behind:  # the limit is smaller than any record: take one
            ends[behind[0]] = begins[behind[0]] + 1
    # An end never lies before the start that Spark knows, even if the partition lost its tail.
    return Offsets(latest.ids, {key: max(end, start.next.get(key, 0)) for key, end in ends.items()})


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


def plan_splits(
    start: Offsets,
    end: Offsets,
    layout: Layout,
    *,
    bytes_per_split_max: int,
    splits_min: int,
    fail_on_data_loss: bool,
) -> list[Split]:
    """The splits that together read exactly `[start, end)` of every partition, each offset once.

    Raises OFFSET_OUT_OF_RANGE for a reversed range, and DATA_LOSS for records that are gone unless the
    query accepts that; then the range is narrowed to what is there.
    """
    check_same_topics(start, layout)
    check_same_topics(end, layout)
    runs = [
        _pieces(key, *_readable(key, start, end, partition, fail_on_data_loss), layout)
        for key, partition in partitions(layout)
        if key in end.next
    ]
    cut = [[part for piece in run for part in _cut_by_bytes(piece, bytes_per_split_max)] for run in runs]
    splits = [split for run in cut for split in _pack(run)]
    return _at_least(splits, splits_min)


def _readable(
    key: TopicPartition, start: Offsets, end: Offsets, partition: PartitionLayout, fail_on_data_loss: bool
) -> tuple[int, int]:
    first, last = start.next.get(key, partition.log_start), end.next[key]
    if first > last:
        raise SourceError(
            Reason.OFFSET_OUT_OF_RANGE,
            "the range is reversed: the query's start moved past an end that it had planned",
            topic=key[0],
            partition=key[1],
            start=first,
            end=last,
        )
    readable = max(first, partition.log_start), min(last, partition.high_watermark)
    if first < last and readable != (first, last):
        if fail_on_data_loss:
            raise SourceError(
                Reason.DATA_LOSS,
                f"partition {key[1]} of topic {key[0]} does not hold all of the range to read",
                topic=key[0],
                partition=key[1],
                requested=[first, last],
                start=partition.log_start,
                end=partition.high_watermark,
            )
        return min(readable), readable[1]
    return first, last


def _pieces(key: TopicPartition, start: int, end: int, layout: Layout) -> list[Piece]:
    pieces = []
    for segment in layout[key[0]].partitions[key[1]].segments:
        first, last = max(start, segment.base_offset), min(end, segment.end_offset)
        if first < last:
            size = _share_of_bytes(segment, first, last)
            pieces.append(Piece(*key, segment.uuid, first, last, segment.sealed, segment.addresses, size))
    covered = [start, *(offset for piece in pieces for offset in (piece.start, piece.end)), end]
    if start < end and any(left != right for left, right in zip(covered[::2], covered[1::2], strict=True)):
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
    return _cut(piece, -(-piece.bytes // bytes_max)) if piece.sealed else [piece]


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
