"""The lives of a stream: what fails and is started again, and topics that change under it."""

import json
import re
import signal
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_walrus.losses import Cause
from pyspark_walrus.options import SourceOptions
from pyspark_walrus.source import StreamReader
from retold import cut_off, made_again, overwritten, trimmed
from sink import Sink

DRIVER = Path(__file__).parent / "support" / "driver.py"


def offsets_of(topic, start, end, partition=0):
    return [(topic, partition, offset) for offset in range(start, end)]


def lost_in(query):
    """What the progress reports said is lost."""
    reports = [json.loads(p["sources"][0]["latestOffset"] or "null") or {} for p in query.recentProgress]
    return [(lost["topic"], lost["start"], lost["end"]) for report in reports for lost in report.get("lost", [])]


@pytest.mark.parametrize("starting", ["earliest", "latest", "offsets"])
def test_a_stream_whose_first_micro_batch_failed_starts_again_where_it_began(topic, append, stream, starting):
    # Spark asked for the start anew: from "latest" it then lay behind the end that was written down, for ever.
    append(topic, start=0, end=50)
    where = json.dumps({topic: {"0": 20}}) if starting == "offsets" else starting
    began = {"earliest": 0, "latest": 50, "offsets": 20}[starting]
    with pytest.raises(PySparkException, match="fails on purpose"):
        stream(topic, Sink(fail_in=0), startingOffsets=where).awaitTermination()
    append(topic, start=50, end=120)
    sink = Sink()
    stream(topic, sink, startingOffsets=where).awaitTermination()
    assert sink.batches[0] == []
    assert sorted(sink.offsets()) == [(0, offset) for offset in range(began, 120)]


@pytest.mark.parametrize("starting", ["earliest", "offsets"])
def test_what_retention_took_between_two_starts_is_not_skipped_silently(topic, append, stream, retold, starting):
    append(topic, start=0, end=100)
    where = json.dumps({topic: {"0": 0}}) if starting == "offsets" else starting
    with pytest.raises(PySparkException, match="fails on purpose"):
        stream(topic, Sink(fail_in=0), servers=retold.address, startingOffsets=where).awaitTermination()
    retold.tell(topic, trimmed(30))
    with pytest.raises(PySparkException, match=r"\[WALRUS_DATA_LOSS\] offsets 0 to 29"):
        stream(topic, Sink(), servers=retold.address, startingOffsets=where).awaitTermination()
    sink = Sink()
    query = stream(topic, sink, servers=retold.address, startingOffsets=where, failOnDataLoss="false")
    query.awaitTermination()
    assert sorted(sink.offsets()) == [(0, offset) for offset in range(30, 100)]
    assert lost_in(query) == [(topic, 0, 30)]


def test_the_first_micro_batch_is_empty_whatever_comes_meanwhile(topic, append, cluster):
    # Records that come between Spark's first two questions would else belong to a batch whose start nobody remembers.
    options = {"bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    reader = StreamReader(SourceOptions.parse(options))
    append(topic, start=0, end=50)
    start = reader.initialOffset()
    append(topic, start=50, end=80)
    assert reader.initialOffset() == start
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert reader.partitions(start, start) == []
    assert reader.latestOffset(start, ReadAllAvailable())["offsets"] == {topic: {"0": 80}}
    reader.stop()


def test_a_topic_that_subscribe_lost_keeps_its_part_of_a_batch_and_its_offsets(client, topic, append, stream):
    other = f"{topic}-b"
    client.create_topic(other)
    append(topic, start=0, end=100)
    append(other, start=0, end=60)
    with pytest.raises(PySparkException, match="fails on purpose"):
        stream(f"{topic},{other}", Sink(fail_in=1)).awaitTermination()
    sink = Sink()
    stream(topic, sink).awaitTermination()
    assert Counter(sink.rows) == Counter(offsets_of(topic, 0, 100) + offsets_of(other, 0, 60))
    append(topic, start=100, end=130)
    append(other, start=60, end=90)
    stream(topic, sink).awaitTermination()
    stream(f"{topic},{other}", sink).awaitTermination()
    assert Counter(sink.rows) == Counter(offsets_of(topic, 0, 130) + offsets_of(other, 0, 90))


def test_a_topic_that_subscribe_gained_is_read_from_its_beginning(client, topic, append, stream):
    append(topic, start=0, end=100)
    sink = Sink()
    stream(topic, sink).awaitTermination()
    other = f"{topic}-b"
    client.create_topic(other)
    append(other, start=0, end=60)
    stream(f"{topic},{other}", sink, maxOffsetsPerTrigger="25").awaitTermination()
    assert Counter(sink.rows) == Counter(offsets_of(topic, 0, 100) + offsets_of(other, 0, 60))


def test_a_query_that_accepts_losses_skips_what_is_gone_when_it_is_planned(topic, append, stream, retold):
    append(topic, start=0, end=400)
    sink = Sink(fail_in=3)
    with pytest.raises(PySparkException, match="fails on purpose"):
        stream(topic, sink, servers=retold.address, maxOffsetsPerTrigger="100").awaitTermination()
    retold.tell(topic, trimmed(250))  # batch 3 is [200, 300)
    sink.fail_in = None
    query = stream(topic, sink, servers=retold.address, failOnDataLoss="false")
    query.awaitTermination()
    wanted = [*range(200), *range(250, 400)]
    assert sorted(offset for _, offset in sink.offsets()) == wanted
    assert lost_in(query) == [(topic, 200, 250)]


def test_a_query_that_accepts_losses_skips_what_retention_takes_from_under_a_task(
    topic, append, stream, retold, spark_log
):
    # Its tasks failed, and advised the option that was set.
    append(topic, start=0, end=600)
    sink = Sink()
    retold.before_next_read(lambda: retold.tell(topic, trimmed(540)))
    stream(topic, sink, servers=retold.address, failOnDataLoss="false").awaitTermination()
    assert sorted(offset for _, offset in sink.offsets()) == list(range(540, 600))
    told = re.findall(rf"skips offsets (\d+) to (\d+) of partition 0 of topic {topic}: (.*)", spark_log.read_text())
    assert {cause for *_, cause in told} == {Cause.TRIMMED.value}
    assert [offset for first, last, _ in told for offset in range(int(first), int(last) + 1)] == list(range(540))


def test_what_retention_takes_from_under_a_task_is_an_error_otherwise(topic, append, stream, retold):
    append(topic, start=0, end=600)
    retold.before_next_read(lambda: retold.tell(topic, trimmed(540)))
    with pytest.raises(PySparkException, match=r"\[WALRUS_DATA_LOSS\] offsets 0 to 499"):
        stream(topic, Sink(), servers=retold.address).awaitTermination()


def test_a_partition_that_lost_its_end_is_read_on_from_there(topic, append, stream, retold):
    # The query went on from its own offset: what was appended below it was never read.
    append(topic, start=0, end=300)
    sink = Sink()
    stream(topic, sink, servers=retold.address).awaitTermination()
    retold.tell(topic, cut_off(200))
    with pytest.raises(PySparkException, match=r"\[WALRUS_DATA_LOSS\] offsets 200 to 299"):
        stream(topic, sink, servers=retold.address).awaitTermination()
    query = stream(topic, sink, servers=retold.address, failOnDataLoss="false")
    query.awaitTermination()
    assert lost_in(query) == [(topic, 200, 300)]
    retold.tell(topic, cut_off(250))  # others were appended
    stream(topic, sink, servers=retold.address, failOnDataLoss="false").awaitTermination()
    assert Counter(sink.offsets()) == Counter([(0, n) for n in range(300)] + [(0, n) for n in range(200, 250)])


def test_what_is_appended_where_a_task_found_the_end_gone_is_read(topic, append, stream, retold):
    # Only the task saw it; the query went on from where the partition then ended, or from its own offset.
    append(topic, start=0, end=300)
    retold.before_next_read(lambda: retold.tell(topic, cut_off(200)))

    class Appending(Sink):
        def __call__(self, rows, batch_id):
            super().__call__(rows, batch_id)
            if batch_id == 1:
                retold.tell(topic, overwritten(200))

    sink = Appending()
    query = stream(topic, sink, servers=retold.address, failOnDataLoss="false")
    query.awaitTermination()
    assert len(sink.batches[1]) == 200
    sink.assert_once(end=300)
    assert lost_in(query) == [(topic, 200, 300)]


def test_a_run_that_asks_a_node_that_is_behind_reaches_its_target(topic, append, stream, retold):
    # The node knew the query's own offset, so what it did not know was left for the next run.
    append(topic, start=0, end=100)
    sink = Sink()
    stream(topic, sink, servers=retold.address).awaitTermination()
    append(topic, start=100, end=320)
    retold.list_late(topic, cut_off(150), times=3, skip=1)  # the target comes from one that knows
    stream(topic, sink, servers=retold.address).awaitTermination()
    sink.assert_once(end=320)


def test_a_checkpoint_of_an_earlier_version_is_refused(topic, append, stream, tmp_path):
    # Its first micro-batch was not empty: nobody knows any more where it began, and it was skipped.
    append(topic, start=0, end=100)
    offsets = {"ids": {topic: "11111111-1111-4111-8111-111111111111"}, "offsets": {topic: {"0": 100}}, "v": 1}
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    facts = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})
    (tmp_path / "checkpoint" / "offsets" / "0").write_text(f"v1\n{facts}\n{json.dumps(offsets)}")
    with pytest.raises(PySparkException, match=r"\[WALRUS_VERSION_UNSUPPORTED\].*start with a new checkpoint"):
        stream(topic, Sink()).awaitTermination()


def test_an_end_that_a_node_does_not_know_yet_is_no_loss(topic, append, stream, retold):
    append(topic, start=0, end=300)
    sink = Sink()
    stream(topic, sink, servers=retold.address).awaitTermination()
    append(topic, start=300, end=320)
    retold.list_late(topic, cut_off(200), times=3)
    stream(topic, sink, servers=retold.address).awaitTermination()  # took its goal from that node
    sink.assert_once(end=300)
    stream(topic, sink, servers=retold.address).awaitTermination()
    sink.assert_once(end=320)


def test_a_partition_that_is_added_meanwhile_is_for_the_next_run(client, topic, append, stream):
    append(topic, start=0, end=100)

    class Adding(Sink):
        def __call__(self, rows, batch_id):
            had_rows = bool(self.rows)
            super().__call__(rows, batch_id)
            if self.rows and not had_rows:
                client.add_partitions(topic, 2)
                append(topic, start=0, end=70, partition=1)

    sink = Adding()
    stream(topic, sink).awaitTermination()
    assert Counter(sink.rows) == Counter(offsets_of(topic, 0, 100))
    sink = Sink()
    stream(topic, sink).awaitTermination()
    assert Counter(sink.rows) == Counter(offsets_of(topic, 0, 70, partition=1))


def test_a_partition_that_is_added_is_read_from_its_first_record_by_a_query_that_runs(client, topic, append, stream):
    append(topic, start=0, end=100)
    sink = Sink()
    query = stream(topic, sink, available_now=False)
    sink.wait_for(100)
    client.add_partitions(topic, 3)
    append(topic, start=0, end=70, partition=2)
    sink.wait_for(170)
    query.stop()
    assert Counter(sink.rows) == Counter(offsets_of(topic, 0, 100) + offsets_of(topic, 0, 70, partition=2))


@pytest.mark.parametrize(("event", "error"), [("deleted", "TOPIC_NOT_FOUND"), ("made again", "TOPIC_RECREATED")])
def test_a_topic_that_is_deleted_meanwhile_is_named(topic, append, stream, retold, event, error):
    append(topic, start=0, end=100)

    class Deleting(Sink):
        def __call__(self, rows, batch_id):
            super().__call__(rows, batch_id)
            retold.forget(topic) if event == "deleted" else retold.tell(topic, made_again)

    with pytest.raises(PySparkException, match=rf"\[WALRUS_{error}\] topic {topic}"):
        stream(topic, Deleting(), servers=retold.address).awaitTermination()


def test_records_of_a_topic_that_was_made_again_are_not_taken_for_the_old_ones(topic, append, stream, retold):
    append(topic, start=0, end=100)
    retold.before_next_read(lambda: retold.tell(topic, made_again))
    with pytest.raises(PySparkException, match=rf"\[WALRUS_TOPIC_RECREATED\] topic {topic}"):
        stream(topic, Sink(), servers=retold.address, failOnDataLoss="false").awaitTermination()


def test_one_connection_serves_a_query_and_one_each_task(topic, append, stream, retold):
    append(topic, start=0, end=1_600)  # four segments
    stream(topic, Sink(), servers=retold.address, maxOffsetsPerTrigger="400").awaitTermination()
    assert "ListTopics" not in retold.calls
    tasks = 4
    assert len(retold.peers) <= 1 + tasks


@pytest.mark.timeout(900)  # three Sparks start, whatever else the machine has to do
def test_a_killed_driver_is_followed_by_one_that_goes_on(cluster, client, topic, append, stream, tmp_path):
    names = [topic, f"{topic}-b", f"{topic}-c"]
    for number, name in enumerate(names):
        if name != topic:
            client.create_topic(name)
        append(name, start=0, end=300 + 100 * number)
    for batch, moment in [(0, "before"), (1, "after"), (1, "committed")]:
        places = (cluster.bootstrap, ",".join(names), str(tmp_path))
        command = [sys.executable, str(DRIVER), *places, str(batch), moment]
        killed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    kept = {int(file.stem): json.loads(file.read_text()) for file in (tmp_path / "out").glob("*.json")}
    assert 0 < sum(map(len, kept.values())) < 300  # there is something left to do
    sink = Sink()
    sink.batches = {number: [tuple(row) for row in rows] for number, rows in kept.items()}
    stream(",".join(names), sink).awaitTermination()  # with the same checkpoint
    wanted = [row for number, name in enumerate(names) for row in offsets_of(name, 0, 300 + 100 * number)]
    assert Counter(sink.rows) == Counter(wanted)
