"""`format("walrus")` in a real Spark against real brokers."""

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from appended import SEGMENT_ENTRIES_MAX, record_of
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_walrus.options import SourceOptions
from pyspark_walrus.source import StreamReader
from walrus_client import Client, SegmentState
from walrus_client.dev import NodeOptions, start_cluster


@pytest.fixture
def reader(spark, cluster):
    """Starts a batch query; keywords are options."""

    def _reader(topic, **options):
        source = spark.read.format("walrus").option("bootstrap.servers", cluster.bootstrap)
        return source.option("subscribe", topic).options(**options).load()

    return _reader


@pytest.fixture
def stream(spark, cluster, tmp_path):
    """Starts a stream from the beginning into *sink*, a function of (rows, batch id), with one checkpoint per test."""

    def _stream(topic, sink, *, available_now=True, servers=None, **options):
        source = spark.readStream.format("walrus").option("bootstrap.servers", servers or cluster.bootstrap)
        source = source.option("subscribe", topic).options(**{"startingOffsets": "earliest", **options})
        writer = source.load().writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    return _stream


class Sink:
    """Keeps the offsets of each micro-batch; one that is done again replaces itself, as an idempotent sink does."""

    def __init__(self, fail_in=None):
        self.batches = {}
        self.fail_in = fail_in
        self.changed = threading.Condition()

    def __call__(self, rows, batch_id):
        offsets = [(row.partition, row.offset) for row in rows.select("partition", "offset").collect()]
        if batch_id == self.fail_in:
            raise RuntimeError("the sink fails on purpose")
        with self.changed:
            self.batches[batch_id] = offsets
            self.changed.notify_all()

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.offsets()) >= count, timeout=60)

    def offsets(self):
        return [offset for batch in self.batches.values() for offset in batch]

    def assert_once(self, *, end, partitions=1):
        expected = {(partition, offset): 1 for partition in range(partitions) for offset in range(end)}
        assert Counter(self.offsets()) == expected


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


def test_sealed_segments_are_read_side_by_side(topic, append, reader):
    append(topic, start=0, end=1_600)
    assert reader(topic).rdd.getNumPartitions() == 1  # three small segments and the open one: not worth more tasks
    split = reader(topic, minPartitions="6")
    assert split.rdd.getNumPartitions() == 6
    assert sorted(row.offset for row in split.select("offset").collect()) == list(range(1_600))


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
    assert [len(sink.batches[number]) for number in sorted(sink.batches)] == [300, 300, 300, 100]
    sink.assert_once(end=1_000)


def test_micro_batches_keep_to_the_number_of_bytes(topic, append, stream, client):
    append(topic, start=0, end=1_000)
    (partition,) = client.segments(topic)
    half = sum(segment.bytes for segment in partition.segments) // 2
    sink = Sink()
    stream(topic, sink, maxBytesPerTrigger=str(half)).awaitTermination()
    assert 2 <= len(sink.batches) <= 3
    assert all(400 < len(batch) < 600 for batch in list(sink.batches.values())[:2])
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
    failing = Sink(fail_in=1)
    with pytest.raises(PySparkException, match="fails on purpose"):
        stream(topic, failing, maxOffsetsPerTrigger="300").awaitTermination()
    assert list(failing.batches) == [0]
    append(topic, start=900, end=1_000)
    sink = Sink()
    sink.batches = failing.batches
    stream(topic, sink, maxOffsetsPerTrigger="300").awaitTermination()
    assert sorted(offset for _, offset in sink.batches[1]) == list(range(300, 600))
    sink.assert_once(end=1_000)


def test_a_stream_from_latest_that_fails_in_its_first_records_skips_none_of_them(topic, append, stream):
    append(topic, start=0, end=50)
    query = stream(topic, Sink(fail_in=1), available_now=False, startingOffsets="latest")
    query.processAllAvailable()
    append(topic, start=50, end=120)
    with pytest.raises(PySparkException, match="fails on purpose"):
        query.awaitTermination(60)
    append(topic, start=120, end=150)
    sink = Sink()
    stream(topic, sink, startingOffsets="latest").awaitTermination()
    assert sorted(sink.offsets()) == [(0, offset) for offset in range(50, 150)]


def test_the_first_micro_batch_of_a_stream_from_latest_is_empty_so_that_its_start_is_written_down(
    topic, append, cluster
):
    # Records that come between Spark's first two questions would else belong to a batch whose start nobody remembers.
    options = {"bootstrap.servers": cluster.bootstrap, "subscribe": topic}
    reader = StreamReader(SourceOptions.parse(options))
    append(topic, start=0, end=50)
    start = reader.initialOffset()
    append(topic, start=50, end=80)
    assert reader.initialOffset() == start
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader.latestOffset(start, ReadAllAvailable())["offsets"] == {topic: {"0": 80}}


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


def test_a_topic_that_was_made_again_is_not_mistaken_for_the_old_one(topic, append, stream, tmp_path):
    append(topic, start=0, end=100)
    sink = Sink()
    stream(topic, sink).awaitTermination()
    anew = start_cluster(tmp_path / "anew", nodes=1, options=NodeOptions(segment_entries_max=SEGMENT_ENTRIES_MAX))
    try:
        with Client(anew.bootstrap) as client:
            client.create_topic(topic)
            client.append(topic, [record_of(offset) for offset in range(300)])
        with pytest.raises(PySparkException, match=r"\[WALRUS_TOPIC_RECREATED\]"):
            stream(topic, sink, servers=anew.bootstrap).awaitTermination()
    finally:
        anew.stop()
    sink.assert_once(end=100)


def test_errors_reach_the_user_by_their_names(reader, topic, append):
    append(topic, start=0, end=10)
    with pytest.raises(PySparkException, match=r"\[WALRUS_OPTION_INVALID\].*did you mean subscribe"):
        reader(topic, subscribed="x")
    with pytest.raises(PySparkException, match=r"\[WALRUS_TOPIC_NOT_FOUND\].*no-such-topic"):
        reader("no-such-topic").count()
    with pytest.raises(PySparkException, match=r"\[WALRUS_OFFSET_OUT_OF_RANGE\]"):
        reader(topic, endingOffsets=f'{{"{topic}": {{"0": 11}}}}').count()
    with pytest.raises(PySparkException, match=r"\[WALRUS_OFFSET_OUT_OF_RANGE\].*reversed"):
        reader(topic, startingOffsets=f'{{"{topic}": {{"0": 7}}}}', endingOffsets=f'{{"{topic}": {{"0": 3}}}}').count()
