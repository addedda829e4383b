"""The driver of kafka-python."""

from functools import partial
from importlib.metadata import version
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import KafkaError

from walrus_compat.drivers.common import (
    Spec,
    Stop,
    main,
    record_of,
    tell,
    tell_committed,
    tell_read,
    tell_sent,
    tell_step,
)

# A poll that ends before the committed offsets have come leaves its question behind, and takes the answer for what is
# committed when the member gets the same partitions again, whoever has read them meanwhile (`_offset_fetch_futures`).
MEMBER_POLL_MS = 2_000


def produce(spec: Spec, stop: Stop) -> None:
    """Send records, with the client's defaults wherever the spec does not say otherwise."""
    options = {"max_request_size": spec.bytes_max} if spec.bytes_max else {}
    producer = KafkaProducer(
        bootstrap_servers=spec.bootstrap.split(","),
        acks="all" if spec.acks == -1 else spec.acks,
        compression_type=None if spec.codec == "none" else spec.codec,
        enable_idempotence=bool(spec.idempotent),
        **options,
    )
    for number in stop.numbers(spec):
        record = record_of(spec, number)
        try:
            sent = producer.send(
                spec.topic, key=record.key, value=record.value, headers=record.headers, timestamp_ms=record.time_ms
            )
        except KafkaError as error:
            tell_sent(number, None, error)
            continue
        sent.add_callback(partial(_acked, number)).add_errback(partial(_failed, number))
    producer.flush()
    producer.close()


def _acked(number: int, metadata: object) -> None:
    tell_sent(number, getattr(metadata, "offset", None), None)


def _failed(number: int, error: BaseException) -> None:
    tell_sent(number, None, repr(error))


def consume(spec: Spec, stop: Stop) -> None:
    """Read partition 0 from a place on."""
    consumer = KafkaConsumer(
        bootstrap_servers=spec.bootstrap.split(","), enable_auto_commit=False, auto_offset_reset="earliest"
    )
    partition = TopicPartition(spec.topic, 0)
    consumer.assign([partition])
    kind, number = spec.place
    if kind == "earliest":
        consumer.seek_to_beginning(partition)
    elif kind == "latest":
        consumer.seek_to_end(partition)
        consumer.position(partition)
    else:
        consumer.seek(
            partition, consumer.offsets_for_times({partition: number})[partition].offset if kind == "time" else number
        )
    tell(ready=True)
    count = 0
    while not stop.is_set and (spec.count == 0 or count < spec.count):
        try:
            batches = consumer.poll(timeout_ms=200)
        except KafkaError as error:
            tell(error=repr(error))
            continue
        for record in (record for batch in batches.values() for record in batch):
            tell_read(record.offset, record.key, record.value, list(record.headers), record.timestamp)
            count += 1
    consumer.close()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells which partitions a member has, and forgets what was read of the others."""

    def __init__(self, read: dict[int, int]) -> None:
        self._held: set[int] = set()
        self._read = read

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        for partition in revoked:
            self._held.discard(partition.partition)
            self._read.pop(partition.partition, None)
        tell(assigned=sorted(self._held))

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self._held.update(partition.partition for partition in assigned)
        tell(assigned=sorted(self._held))


def member(spec: Spec, stop: Stop) -> None:
    """Share the partitions of a topic with the other members of a group, and commit what was read."""
    options: dict[str, Any] = {"group_instance_id": spec.instance} if spec.instance else {}
    if spec.cooperative:
        options["partition_assignment_strategy"] = (CooperativeStickyAssignor,)
    consumer = KafkaConsumer(
        bootstrap_servers=spec.bootstrap.split(","),
        group_id=spec.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=spec.session_ms,
        heartbeat_interval_ms=min(3_000, spec.session_ms // 3),
        **options,
    )
    read: dict[int, int] = {}  # What was read and is not yet committed.
    consumer.subscribe([spec.topic], listener=_Listener(read))
    while not stop.is_set:
        try:
            batches = consumer.poll(timeout_ms=MEMBER_POLL_MS)
        except KafkaError as error:
            tell(error=repr(error))
            continue
        for partition, records in batches.items():
            for record in records:
                tell_read(
                    record.offset,
                    record.key,
                    record.value,
                    list(record.headers),
                    record.timestamp,
                    partition.partition,
                )
                read[partition.partition] = record.offset + 1
        if not read:
            continue
        try:
            consumer.commit(
                {
                    TopicPartition(spec.topic, partition): OffsetAndMetadata(offset, "", -1)
                    for partition, offset in read.items()
                }
            )
            tell_committed(read)
            read.clear()
        except KafkaError as error:
            tell(uncommitted=repr(error))
    consumer.close()


def topics(spec: Spec, _stop: Stop) -> None:
    """List all topics."""
    client = KafkaAdminClient(bootstrap_servers=spec.bootstrap.split(","))
    tell(topics=len(client.list_topics()))
    client.close()


def admin(spec: Spec, _stop: Stop) -> None:
    """Look after topics and groups, step by step."""
    client, made = KafkaAdminClient(bootstrap_servers=spec.bootstrap.split(",")), f"{spec.topic}-made"

    def tell_partitions() -> None:
        (described,) = client.describe_topics([made])
        tell_step("partitions", len(described["partitions"]))

    def tell_config() -> None:
        described = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, made)])
        tell_step("config", described["topic"][made]["retention.ms"]["value"])

    def tell_listed() -> None:
        tell_step("groups", spec.group in [group["group_id"] for group in client.list_groups()])

    client.create_topics({made: {"num_partitions": 2, "configs": {"retention.ms": "86400000"}}})
    tell_step("create")
    tell_partitions()
    client.create_partitions({made: 4})
    tell_step("create partitions")
    tell_partitions()
    tell_config()
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, made, configs={"retention.ms": "172800000"})])
    tell_step("alter config")
    tell_config()
    tell_step("list", made in client.list_topics())
    partition = TopicPartition(spec.topic, 0)
    tell_step("delete records", client.delete_records({partition: 5})[partition]["low_watermark"])
    tell_listed()
    tell_step("group", client.describe_groups([spec.group])[spec.group]["group_state"].lower())
    tell_step("offset", client.list_group_offsets([spec.group])[spec.group][partition].offset)
    client.delete_groups([spec.group])
    tell_step("delete group")
    tell_listed()
    client.delete_topics([made])
    tell_step("delete")
    client.close()


if __name__ == "__main__":
    main({"kafka-python": version("kafka-python")}, produce, consume, member, topics, admin)
