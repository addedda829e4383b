"""What the cluster says about the topics of a query at one moment, as plain values.

Planning works on these and on nothing else. The records of a partition are those of
`[log_start, high_watermark)`; its segments cover them in order, without gap or overlap.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

# What a record is taken to measure where no replica could tell the size of any segment.
RECORD_BYTES_GUESS: Final = 1024


# Under which epochs offsets were written, and from which offset on each, in order.
Epochs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SegmentLayout:
    """One segment: its range, where it can be read, and the bytes of its batches."""

    uuid: str
    base_offset: int
    end_offset: int
    sealed: bool
    addresses: tuple[str, ...]  # host:port of nodes that have it, the best to ask first
    bytes: int = 0  # 0: nobody could say
    epochs: Epochs = ()

    @property
    def records(self) -> int:
        """How many offsets it spans."""
        return self.end_offset - self.base_offset


@dataclass(frozen=True)
class PartitionLayout:
    """One partition; `segments` are in the order of their base offsets."""

    log_start: int
    high_watermark: int
    segments: tuple[SegmentLayout, ...]


@dataclass(frozen=True)
class TopicLayout:
    """One topic. A topic that was deleted and made again under its name has another uuid."""

    name: str
    uuid: str
    partitions: Mapping[int, PartitionLayout]


Layout = Mapping[str, TopicLayout]


def with_estimated_bytes(topic: TopicLayout) -> TopicLayout:
    """Fills in the sizes that nobody could say from the mean record of the segments that have one."""
    segments = [segment for partition in topic.partitions.values() for segment in partition.segments]
    known = [segment for segment in segments if segment.bytes and segment.records]
    records = sum(segment.records for segment in known)
    mean = max(1, sum(segment.bytes for segment in known) // records) if known else RECORD_BYTES_GUESS
    return replace(
        topic,
        partitions={
            number: replace(
                partition,
                segments=tuple(
                    segment if segment.bytes else replace(segment, bytes=segment.records * mean)
                    for segment in partition.segments
                ),
            )
            for number, partition in topic.partitions.items()
        },
    )
