"""Producers that people use, as they come: what one process of them gets acknowledged, on the disk."""

import re
import subprocess
import time

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from walrus_compat import apache

from walrus_bench.goals import RECORD_BYTES
from walrus_bench.sampling import InvalidRunError, Sample
from walrus_bench.suites.raw_kafka import SYNCED, RawKafka

JAVA_RECORDS_A_SECOND = 300_000  # how many it is given for each second that a sample should take
PATIENCE_S = 120.0


def java(raw: RawKafka) -> Sample:
    """Kafka's own load generator, with the producer's defaults: idempotent, batches of 16 KiB."""
    topic = _topic(raw, "java")
    records = max(1_000, int(JAVA_RECORDS_A_SECOND * raw.seconds))
    size = ("--num-records", str(records), "--record-size", str(RECORD_BYTES), "--throughput", "-1")
    properties = ("--producer-props", f"bootstrap.servers={raw.bootstrap}")
    command = apache.java("org.apache.kafka.tools.ProducerPerformance", "--topic", topic, *size, *properties)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)  # noqa: S603
    _delete(raw, topic)
    # The last line sums up: `900000 records sent, 412087.9 records/sec (402.43 MB/sec), ...`
    rates = re.findall(r"^\d+ records sent, ([\d.]+) records/sec", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not rates:
        raise InvalidRunError(f"the Java producer failed ({done.returncode}): {done.stderr.strip()[-2000:]}")
    return Sample(float(rates[-1]), "records/s", {"records": records})


def librdkafka(raw: RawKafka) -> Sample:
    """confluent-kafka with an idempotent producer, from Python."""
    topic = _topic(raw, "librdkafka")
    failed: list[KafkaError] = []
    acknowledged = 0

    def told(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        acknowledged += 1
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": raw.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    record, began, sent = b"x" * RECORD_BYTES, time.monotonic(), 0
    while time.monotonic() < began + raw.seconds:
        try:
            producer.produce(topic, record, on_delivery=told)
            sent += 1
        except BufferError:
            producer.poll(0.01)
    left = producer.flush(PATIENCE_S)
    elapsed = time.monotonic() - began
    _delete(raw, topic)
    if failed or left or acknowledged != sent:
        raise InvalidRunError(f"{left} of {sent} records were not acknowledged by confluent-kafka: {failed[:1]}")
    return Sample(sent / elapsed, "records/s", {"records": sent})


def _topic(raw: RawKafka, name: str) -> str:
    topic = f"{name}-{next(raw.numbers)}"
    config = dict([SYNCED[raw.system].split("=")]) if raw.system in SYNCED else {}
    admin = AdminClient({"bootstrap.servers": raw.bootstrap})
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result()
    return topic


def _delete(raw: RawKafka, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": raw.bootstrap})
    admin.delete_topics([topic])[topic].result()
