"""Made-up layouts for the tests of the pure parts."""

from hypothesis import strategies as st
from pyspark_walrus.layout import PartitionLayout, SegmentLayout, TopicLayout


def partition(*lengths: int, log_start: int = 0, record_bytes: int = 100) -> PartitionLayout:
    """Segments of these many records, the last one open."""
    segments, base = [], log_start
    for number, length in enumerate(lengths):
        segments.append(
            SegmentLayout(
                f"segment-{number}",
                base,
                base + length,
                number < len(lengths) - 1,
                (f"node-{number % 3}:9090",),
                length * record_bytes,
            )
        )
        base += length
    return PartitionLayout(log_start, base, tuple(segments))


def topic(*partitions: PartitionLayout, name: str = "orders", uuid: str = "u-1") -> TopicLayout:
    return TopicLayout(name, uuid, dict(enumerate(partitions)))


def layout(*topics: TopicLayout) -> dict[str, TopicLayout]:
    return {topic.name: topic for topic in topics}


partitions = st.builds(
    lambda lengths, log_start, record_bytes: partition(*lengths, log_start=log_start, record_bytes=record_bytes),
    st.lists(st.integers(0, 200), min_size=1, max_size=6),
    st.integers(0, 1_000),
    st.integers(1, 5_000),
)
layouts = st.builds(
    lambda first, second: layout(topic(*first), topic(*second, name="bills", uuid="u-2")),
    st.lists(partitions, min_size=1, max_size=3),
    st.lists(partitions, min_size=1, max_size=2),
)
