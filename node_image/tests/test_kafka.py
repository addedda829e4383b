"""Clients of Kafka, unmodified, against a real node: librdkafka by its Python binding, and kcat."""

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from node_process import NodeProcess
from waiting import wait_until
from walrus_client.admin import AdminClient

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 30
# Records that are older than a week go: topics of these clients have Kafka's default of `retention.ms`.
START_MS = int(time.time() * 1_000) - 3_600_000

Make = Callable[..., NodeProcess]


@pytest.fixture
def broker(node: Make) -> NodeProcess:
    """A node that has founded a cluster."""
    started = node("--bootstrap").start()
    started.wait_ready()
    return started


def address(broker: NodeProcess) -> str:
    return f"127.0.0.1:{broker.ports['kafka']}"


def producer(broker: NodeProcess, **options: Any) -> Producer:
    return Producer({"bootstrap.servers": address(broker), "linger.ms": 5, **options})


def produce(by: Producer, topic: str, records: list[dict[str, Any]]) -> list[int]:
    """Produce records, and answer the offset of each."""
    offsets: list[int] = []
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offsets.append(message.offset())
        else:
            failures.append(error)

    for record in records:
        by.produce(topic, on_delivery=delivered, **record)
    assert by.flush(PATIENCE_S) == 0
    assert not failures
    return offsets


def consumer_of(broker: NodeProcess, **options: Any) -> Consumer:
    """A consumer that commits nothing: there are no groups yet, and at its end it would wait for one."""
    common = {"bootstrap.servers": address(broker), "group.id": "none", "enable.auto.commit": False}
    return Consumer({**common, **options})


def consume(broker: NodeProcess, topic: str, offset: int = 0) -> list[Message]:
    """Everything from an offset on to the end."""
    consumer = consumer_of(broker, **{"enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, offset)])
    found = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, "neither a record nor the end"
        if message.error() is None:
            found.append(message)
            continue
        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
        consumer.close()
        return found


def watermarks(broker: NodeProcess, topic: str) -> tuple[int, int]:
    consumer = consumer_of(broker)
    low_and_high: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
    consumer.close()
    return low_and_high


def test_records_of_every_codec_come_back_as_they_were_sent(broker: NodeProcess) -> None:
    records: list[dict[str, Any]] = [
        {
            "key": None if number % 3 == 0 else f"key {number}".encode(),
            "value": None if number % 5 == 0 else b"value" * (number % 40),
            "headers": [("first", b"1"), ("second", None)] if number % 2 else [],
            "timestamp": START_MS + number,
        }
        for number in range(500)
    ]
    for codec in CODECS:
        topic = f"of-{codec}"
        assert produce(producer(broker, **{"compression.type": codec}), topic, records) == list(range(500))
        found = consume(broker, topic)
        assert [message.offset() for message in found] == list(range(500))
        for sent, message in zip(records, found, strict=True):
            assert (message.key(), message.value()) == (sent["key"], sent["value"])
            assert (message.headers() or []) == sent["headers"]
            assert message.timestamp()[1] == sent["timestamp"]


def test_reads_begin_at_an_offset_a_time_and_the_end(broker: NodeProcess) -> None:
    records = [{"value": b"x", "timestamp": START_MS + 10 * number} for number in range(100)]
    produce(producer(broker), "t", records)
    assert [message.offset() for message in consume(broker, "t", 97)] == [97, 98, 99], "inside of a batch"
    assert consume(broker, "t", 100) == []
    assert watermarks(broker, "t") == (0, 100)
    consumer = consumer_of(broker)
    times = [START_MS + 345, START_MS + 990, START_MS + 991]
    found = [consumer.offsets_for_times([TopicPartition("t", 0, at)], PATIENCE_S)[0].offset for at in times]
    consumer.close()
    assert found[:2] == [35, 99]
    assert found[2] == -1, "no record is as new"


def test_an_idempotent_producer_goes_on_over_a_kill_and_nothing_is_there_twice(broker: NodeProcess) -> None:
    by = producer(broker, **{"enable.idempotence": True})
    first = [{"value": f"{number}".encode()} for number in range(1_000)]
    assert produce(by, "t", first) == list(range(1_000))
    before = (watermarks(broker, "t"), [message.value() for message in consume(broker, "t")])
    broker.kill()
    broker.start().wait_ready()
    assert (watermarks(broker, "t"), [message.value() for message in consume(broker, "t")]) == before
    second = [{"value": f"{number}".encode()} for number in range(1_000, 2_000)]
    assert produce(by, "t", second) == list(range(1_000, 2_000))
    assert [message.value() for message in consume(broker, "t")] == [f"{n}".encode() for n in range(2_000)]


def test_whoever_produces_while_the_node_is_killed_loses_nothing(broker: NodeProcess) -> None:
    by = producer(broker, **{"enable.idempotence": True})
    produce(by, "t", [{"value": b"0"}])
    acknowledged: list[bytes] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append(message.value())

    for number in range(1, 5_000):
        by.produce("t", value=f"{number}".encode(), on_delivery=delivered)
        if number == 2_500:
            by.poll(0)
            broker.kill()
            broker.start()
    broker.wait_ready()
    assert by.flush(PATIENCE_S) == 0
    values = [message.value() for message in consume(broker, "t")]
    assert values == [b"0", *acknowledged], "in order, and each once"
    assert len(values) == 5_000


def test_a_topic_that_is_not_there_is_made_as_clients_of_kafka_know_it(broker: NodeProcess) -> None:
    produce(producer(broker), "made", [{"value": b"x"}])
    too_large = producer(broker, **{"message.max.bytes": 4_000_000})
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        produce(too_large, "made", [{"value": b"x" * 1_100_000}])
    unwilling = consumer_of(broker, **{"allow.auto.create.topics": False})
    with pytest.raises(KafkaException):
        unwilling.get_watermark_offsets(TopicPartition("absent", 0), PATIENCE_S)
    unwilling.close()


def test_each_listener_tells_the_addresses_of_its_name(node: Make) -> None:
    spare = [node().ports["kafka"] for _ in range(2)]
    started = node(
        *("--bootstrap", "--kafka-listener"),
        f"outside=127.0.0.1:{spare[0]},advertise=localhost:{spare[0]};closed=127.0.0.1:{spare[1]},admin=off",
    ).start()
    started.wait_ready()
    told = {}
    for port in (started.ports["kafka"], *spare):
        metadata = Producer({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=PATIENCE_S)
        told[port] = [(broker.host, broker.port) for broker in metadata.brokers.values()]
    assert told == {
        started.ports["kafka"]: [("127.0.0.1", started.ports["kafka"])],
        spare[0]: [("localhost", spare[0])],
        spare[1]: [("127.0.0.1", spare[1])],
    }
    closed = Producer({"bootstrap.servers": f"127.0.0.1:{spare[1]}"})
    missing = closed.list_topics("t", timeout=PATIENCE_S).topics["t"]
    assert missing.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART, "nothing is made where admin=off"


def kcat(broker: NodeProcess, *arguments: str, sent: str = "") -> str:
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("kcat is not installed: apt-get install kcat")
    command = [program, "-b", address(broker), *arguments]
    done = subprocess.run(command, input=sent, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat_of_debian_produces_and_consumes_with_every_codec(broker: NodeProcess, tmp_path: Path) -> None:
    lines = "".join(f"key{number}:value {number}\n" for number in range(200))
    for codec in CODECS:
        kcat(broker, "-P", "-t", codec, "-K:", "-z", codec, sent=lines)
        assert kcat(broker, "-C", "-t", codec, "-K:", "-e", "-q", "-o", "beginning") == lines
    assert kcat(broker, "-C", "-t", "gzip", "-e", "-q", "-o", "-2") == "value 198\nvalue 199\n"
    assert '"topic":"gzip"' in kcat(broker, "-L", "-J").replace(" ", "")
    assert kcat(broker, "-Q", "-t", "gzip:0:-1") == "gzip [0] offset 200\n"


def requests(broker: NodeProcess, api: str) -> int:
    """How many requests of an API there were so far."""
    lines = broker.get("/metrics")[1].splitlines()
    return sum(int(line.split()[-1]) for line in lines if line.startswith(f'walrus_kafka_requests_total{{api="{api}"'))


def test_a_consumer_reads_on_over_segments_and_asks_for_the_end_of_no_epoch(node: Make) -> None:
    """Where librdkafka asked, it lost records that it held: an answer behind newer metadata was a cut log for it."""
    broker = node("--bootstrap", "--segment-entries-max", "100", "--segment-age-min", "0").start()
    broker.wait_ready()
    by, epochs = producer(broker), set[int | None]()
    consumer = consumer_of(broker, **{"topic.metadata.refresh.interval.ms": 100})
    produce(by, "t", [{"value": b"first"}])
    consumer.assign([TopicPartition("t", 0, 1)])
    before = requests(broker, "Metadata")
    while requests(broker, "Metadata") < before + 4:  # it refreshes them once in a second, and knows a new epoch then
        for offset in produce(by, "t", [{"value": b"x"}] * 250):
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            assert (message.error(), message.offset()) == (None, offset)
            epochs.add(message.leader_epoch())
    consumer.close()
    assert len(epochs) > 4
    assert requests(broker, "OffsetForLeaderEpoch") == 0


def test_a_listener_tells_the_address_that_a_file_gives_it_and_follows_the_file(node: Make, tmp_path: Path) -> None:
    """An address that somebody else gives a node, as Kubernetes does, is known after its start, and may change."""
    file = tmp_path / "addresses"
    started = node("--bootstrap", "--kafka-listener", "outside=127.0.0.1:0,advertise=file,admin=off")
    started.start("--advertised-file", str(file)).wait_ready()
    with AdminClient(f"127.0.0.1:{started.ports['admin']}") as admin:

        def outside() -> list[str]:
            (member,) = admin.members()
            return [one.address for one in member.listeners if one.address != address(started)]

        wait_until("the others are told", lambda: admin.members()[0].listeners)
        assert outside() == []
        for told in ("b.example.org:31092", "192.0.2.7:31093"):
            file.write_text(f"kafka/outside={told}")
            wait_until("it is told", lambda told=told: outside() == [told])
        file.write_text("")
        wait_until("it is told no more", lambda: outside() == [])
