"""`format("walrus")` in a real Spark against real brokers."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from appended import record_of
from harness.waiting import wait_until
from pyspark.errors import PySparkException
from sink import Sink
from walrus_client import OutRecord, SegmentState


def dictionaries(rows):
    return [row.asDict(recursive=True) for row in rows]


def expected_row(topic, partition, offset):
    record = record_of(offset)
    return {
        "key": record.key,
        "value": record.value,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC) + timedelta(milliseconds=offset),
        "timestampType": 0,
        "headers": [{"key": name, "value": value} for name, value in record.headers],
    }


def test_a_batch_query_reads_exactly_the_range_in_full(client, append, reader):
    client.create_topic("ranges", partitions=2)
    append("ranges", start=0, end=1_300, partition=0)
    append("ranges", start=0, end=200, partition=1)
    sealed = [s for s in client.segments("ranges")[0].segments if s.state is SegmentState.SEALED]
    assert len(sealed) == 2
    rows = reader(
        "ranges",
        startingOffsets='{"ranges": {"0": 450, "1": -2}}',
        endingOffsets='{"ranges": {"0": 1250, "1": -1}}',
        includeHeaders="true",
    )
    found = dictionaries(rows.orderBy("partition", "offset").collect())
    for row in found:
        row["timestamp"] = row["timestamp"].astimezone(UTC)
        row["headers"] = row["headers"] or []
    wanted = [(0, offset) for offset in range(450, 1_250)] + [(1, offset) for offset in range(200)]
    assert found == [expected_row("ranges", *place) for place in wanted]


def test_segments_are_read_side_by_side(topic, append, reader):
    append(topic, start=0, end=1_600)
    assert reader(topic).rdd.getNumPartitions() == 1  # three small segments and the open one: not worth more tasks
    split = reader(topic, minPartitions="6")
    assert split.rdd.getNumPartitions() == 6
    assert sorted(row.offset for row in split.select("offset").collect()) == list(range(1_600))


def test_records_that_producers_compressed_are_read_like_others(topic, append, reader, retold):
    # They were called damaged.
    append(topic, start=0, end=1_000)
    retold.compress(topic)
    rows = reader(topic, **{"bootstrap.servers": retold.address, "includeHeaders": "true"})
    found = dictionaries(rows.orderBy("offset").collect())
    for row in found:
        row["timestamp"] = row["timestamp"].astimezone(UTC)
        row["headers"] = row["headers"] or []
    assert found == [expected_row(topic, 0, offset) for offset in range(1_000)]


def compact(client, topic):
    """Has a topic keep the last record of each key, and waits until that is so; answers its end."""
    client.alter_topic(topic, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})

    def is_done():
        (partition,) = client.segments(topic)
        return len(partition.segments) == 2 and len(partition.segments[0].epochs) > 1

    wait_until("the topic is compacted", is_done, timeout_s=60)
    return client.segments(topic)[0].high_watermark


def keyed(first, end):
    return [OutRecord(str(offset).encode(), key=f"key {offset % 5}".encode()) for offset in range(first, end)]


def test_a_compacted_topic_is_read_with_its_gaps_and_they_are_no_loss(topic, client, reader, stream):
    # A query that had planned the segments of before called its offsets lost.
    for first in range(0, 2_100, 100):
        client.append(topic, keyed(first, first + 100))
    going_on, compacted = threading.Event(), threading.Event()
    found = {}

    def sink(rows, batch_id):
        found[batch_id] = [row.offset for row in rows.select("offset").collect()]
        if sum(map(len, found.values())) >= 300:
            going_on.set()
            assert compacted.wait(60)

    query = stream(topic, sink, available_now=False, maxOffsetsPerTrigger="300")
    try:
        assert going_on.wait(60)
        compact(client, topic)
        compacted.set()
        query.processAllAvailable()
    finally:
        compacted.set()
        query.stop()
    seen = sorted(offset for offsets in found.values() for offset in offsets)
    assert len(set(seen)) == len(seen)
    assert seen[:300] == list(range(300))
    left = sorted(row.offset for row in reader(topic).select("offset").collect())
    assert left == [
        *range(1_995, 2_000),
        *range(2_000, 2_100),
    ]  # the segment before the open one has the last of each key
    assert seen[-len(left) :] == left


def test_an_empty_topic_has_no_rows(topic, reader):
    assert reader(topic).count() == 0


def test_available_now_reads_what_is_there_and_the_next_run_what_came_since(topic, append, stream):
    sink = Sink()
    append(topic, start=0, end=700)
    stream(topic, sink).awaitTermination()
    sink.assert_once(end=700)
    append(topic, start=700, end=1_900)
    stream(topic, sink).awaitTermination()
    sink.assert_once(end=1_900)
    batches = len(sink.batches)
    stream(topic, sink).awaitTermination()  # nothing came
    assert len(sink.batches) == batches


def test_micro_batches_keep_to_the_number_of_offsets(topic, append, stream):
    append(topic, start=0, end=1_000)
    sink = Sink()
    stream(topic, sink, maxOffsetsPerTrigger="300").awaitTermination()
    assert [len(sink.batches[number]) for number in sorted(sink.batches)] == [0, 300, 300, 300, 100]
    sink.assert_once(end=1_000)


def test_micro_batches_keep_to_the_number_of_bytes(topic, append, stream, client):
    append(topic, start=0, end=1_000)
    (partition,) = client.segments(topic)
    half = sum(segment.bytes for segment in partition.segments) // 2
    sink = Sink()
    stream(topic, sink, maxBytesPerTrigger=str(half)).awaitTermination()
    assert 3 <= len(sink.batches) <= 4
    assert all(400 < len(sink.batches[number]) < 600 for number in (1, 2))
    sink.assert_once(end=1_000)


def test_a_query_that_is_stopped_between_micro_batches_goes_on_where_it_was(topic, append, stream):
    append(topic, start=0, end=600)
    sink = Sink()
    query = stream(topic, sink, available_now=False, maxOffsetsPerTrigger="200")
    sink.wait_for(600)
    query.stop()
    append(topic, start=600, end=1_100)
    query = stream(topic, sink, available_now=False, maxOffsetsPerTrigger="200")
    sink.wait_for(1_100)
    query.stop()
    sink.assert_once(end=1_100)


def test_a_micro_batch_that_failed_is_done_again_with_the_same_range(topic, append, stream):
    append(topic, start=0, end=900)
    failing = Sink(fail_in=2)
    with pytest.raises(PySparkException, match="fails on purpose"):
        stream(topic, failing, maxOffsetsPerTrigger="300").awaitTermination()
    assert list(failing.batches) == [0, 1]
    append(topic, start=900, end=1_000)
    sink = Sink()
    sink.batches = failing.batches
    stream(topic, sink, maxOffsetsPerTrigger="300").awaitTermination()
    assert sorted(offset for _, _, offset in sink.batches[2]) == list(range(300, 600))
    sink.assert_once(end=1_000)


def test_a_query_outlives_the_restart_of_a_broker(topic, append, reader, cluster, client):
    append(topic, start=0, end=1_600)
    leaders = {segment.leader.id for segment in client.segments(topic)[0].segments}
    node = next(node for node in cluster.nodes if node.node_id in leaders)
    cluster.kill(node.name)
    restarting = threading.Thread(target=cluster.restart, args=[node.name])
    restarting.start()
    try:
        assert sorted(row.offset for row in reader(topic).select("offset").collect()) == list(range(1_600))
    finally:
        restarting.join()


def test_errors_reach_the_user_by_their_names(reader, topic, append):
    append(topic, start=0, end=10)
    with pytest.raises(PySparkException, match=r"\[WALRUS_OPTION_INVALID\].*did you mean subscribe"):
        reader(topic, subscribed="x")
    with pytest.raises(PySparkException, match=r"\[WALRUS_TOPIC_NOT_FOUND\] topic no-such-topic does not exist"):
        reader(f"{topic},no-such-topic").count()
    with pytest.raises(PySparkException, match=r"option subscribePattern: Spark's Kafka source has it"):
        reader(topic, subscribePattern="x.*")
    with pytest.raises(PySparkException, match=r"\[WALRUS_OFFSET_OUT_OF_RANGE\]"):
        reader(topic, endingOffsets=f'{{"{topic}": {{"0": 11}}}}').count()
    with pytest.raises(PySparkException, match=r"\[WALRUS_OFFSET_OUT_OF_RANGE\].*reversed"):
        reader(topic, startingOffsets=f'{{"{topic}": {{"0": 7}}}}', endingOffsets=f'{{"{topic}": {{"0": 3}}}}').count()
