"""The offsets of a query: for each partition the next offset to read, and which topic that was.

This is what Spark keeps in the checkpoint. Spark compares offsets as text, so the keys of the JSON are
always sorted; another order would make it see new data for ever. The uuid of each topic tells a topic
that was deleted and made again from one that merely lost records.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark_walrus.errors import Reason, SourceError
from pyspark_walrus.layout import Layout, PartitionLayout
from pyspark_walrus.options import EARLIEST, LATEST, Bound

# Until version 1 the first micro-batch of a query was not empty, so its checkpoint does not say where the query began.
VERSION: Final = 2

TopicPartition = tuple[str, int]


@dataclass(frozen=True)
class Offsets:
    """`ids`: topic -> uuid; `next`: (topic, partition) -> next offset to read."""

    ids: Mapping[str, str]
    next: Mapping[TopicPartition, int]

    def to_json(self) -> dict[str, object]:
        """The value that Spark writes; equal offsets give equal text."""
        topics = sorted({topic for topic, _ in self.next})
        return {
            "ids": {topic: self.ids[topic] for topic in sorted(self.ids)},
            "offsets": {
                topic: dict(sorted((str(p), offset) for (t, p), offset in self.next.items() if t == topic))
                for topic in topics
            },
            "v": VERSION,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> "Offsets":
        """Reads back what `to_json` gave; raises VERSION_UNSUPPORTED for anything else."""
        try:
            if value["v"] != VERSION:
                raise ValueError("v")
            ids = {str(topic): str(uuid) for topic, uuid in _mapping(value["ids"]).items()}
            offsets = {
                (str(topic), int(partition)): _offset(offset)
                for topic, partitions in _mapping(value["offsets"]).items()
                for partition, offset in _mapping(partitions).items()
            }
            if {topic for topic, _ in offsets} - ids.keys():
                raise ValueError("ids")
        except (KeyError, ValueError) as error:
            raise SourceError(
                Reason.VERSION_UNSUPPORTED,
                f"the checkpoint's offsets are not of version {VERSION} ({error})",
                offsets=value,
            ) from None
        return cls(ids, offsets)


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is no object")
    return value


def _offset(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no offset")
    return value


def resolve(bound: Bound, layout: Layout) -> Offsets:
    """Turns what the user said into offsets of the partitions that are there. `check_bound` says if that is wrong.

    A partition that explicit offsets do not name is taken from its beginning.
    """
    explicit = dict(bound.offsets)
    offsets: dict[TopicPartition, int] = {}
    for key, partition in partitions(layout):
        offset = explicit.get(key, EARLIEST) if bound.everywhere is None else bound.everywhere
        ends = {EARLIEST: partition.log_start, LATEST: partition.high_watermark}
        offsets[key] = ends.get(offset, offset)
    return Offsets(ids(layout), offsets)


def check_bound(bound: Bound, layout: Layout, *, option: str) -> None:
    """Raises OPTION_INVALID or OFFSET_OUT_OF_RANGE for offsets that do not suit the topics as they are now.

    Explicit offsets must name every partition, as Kafka's do, and lie within `[log_start, high_watermark]`.
    """
    explicit = dict(bound.offsets)
    here = dict(partitions(layout))
    if bound.everywhere is None and explicit.keys() != here.keys():
        missing, strange = sorted(here.keys() - explicit.keys()), sorted(explicit.keys() - here.keys())
        raise SourceError(
            Reason.OPTION_INVALID,
            f"option {option} must name exactly the partitions of the subscribed topics",
            option=option,
            missing=missing,
            unknown=strange,
        )
    for key, offset in explicit.items():
        partition = here[key]
        if offset not in (EARLIEST, LATEST) and not partition.log_start <= offset <= partition.high_watermark:
            raise SourceError(
                Reason.OFFSET_OUT_OF_RANGE,
                f"option {option} names an offset that the partition does not hold",
                topic=key[0],
                partition=key[1],
                requested=offset,
                start=partition.log_start,
                end=partition.high_watermark,
            )


def check_order(start: Offsets, end: Offsets) -> None:
    """Raises OFFSET_OUT_OF_RANGE where a range that the user gave ends before it begins."""
    for key, last in end.next.items():
        if start.next[key] > last:
            raise SourceError(
                Reason.OFFSET_OUT_OF_RANGE,
                "the range is reversed: startingOffsets lies behind endingOffsets",
                topic=key[0],
                partition=key[1],
                start=start.next[key],
                end=last,
            )


def furthest(first: Offsets, second: Offsets) -> Offsets:
    """The greater offset of each partition."""
    keys = first.next.keys() | second.next.keys()
    return Offsets(
        {**first.ids, **second.ids}, {key: max(first.next.get(key, 0), second.next.get(key, 0)) for key in keys}
    )


def latest(layout: Layout) -> Offsets:
    """The high watermarks of all partitions."""
    return Offsets(ids(layout), {key: partition.high_watermark for key, partition in partitions(layout)})


def ids(layout: Layout) -> dict[str, str]:
    """The uuids of the topics."""
    return {topic.name: topic.uuid for topic in layout.values()}


def partitions(layout: Layout) -> Iterator[tuple[TopicPartition, PartitionLayout]]:
    """Every partition of the layout, in order of topic and number."""
    for name in sorted(layout):
        for number, partition in sorted(layout[name].partitions.items()):
            yield (name, number), partition


def check_found(topics: Iterable[str], layout: Layout) -> None:
    """Raises TOPIC_NOT_FOUND that names the topics which are not there."""
    missing = sorted(set(topics) - layout.keys())
    if missing:
        what = f"topic {missing[0]} does" if len(missing) == 1 else f"topics {', '.join(missing)} do"
        raise SourceError(Reason.TOPIC_NOT_FOUND, f"{what} not exist", topics=missing)


def check_same_topics(offsets: Offsets, layout: Layout) -> None:
    """Raises TOPIC_RECREATED or PARTITION_GONE where `offsets` are not offsets of these topics.

    Topics that the layout does not have are not looked at.
    """
    for topic, uuid in offsets.ids.items():
        there = layout.get(topic)
        if there is None:
            continue
        if there.uuid != uuid:
            raise SourceError(
                Reason.TOPIC_RECREATED,
                f"topic {topic} was deleted and made again since the query read it",
                topic=topic,
                read=uuid,
                found=there.uuid,
            )
        for name, partition in offsets.next:
            if name == topic and partition not in there.partitions:
                raise SourceError(
                    Reason.PARTITION_GONE,
                    f"topic {topic} has no partition {partition} any more",
                    topic=topic,
                    partition=partition,
                )
