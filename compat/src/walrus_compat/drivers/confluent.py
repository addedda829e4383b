"""The driver of confluent-kafka, librdkafka's client for Python."""

from importlib.metadata import version

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

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

OFFSETS_S = 30.0


def produce(spec: Spec, stop: Stop) -> None:
    """Send records, with the client's defaults wherever the spec does not say otherwise."""
    options: dict[str, object] = {
        "bootstrap.servers": spec.bootstrap,
        "acks": spec.acks,
        "compression.type": spec.codec,
        "enable.idempotence": bool(spec.idempotent),
    }
    if spec.bytes_max:
        options["message.max.bytes"] = spec.bytes_max
    producer = Producer(options)
    for number in stop.numbers(spec):
        record = record_of(spec, number)

        def delivered(error: KafkaError | None, message: Message, number: int = number) -> None:
            tell_sent(number, message.offset(), error)

        headers: list[tuple[str, str | bytes | None]] = [*record.headers]
        producer.produce(
            spec.topic,
            key=record.key,
            value=record.value,
            headers=headers,
            timestamp=record.time_ms or 0,  # 0 is the present
            on_delivery=delivered,
        )
        producer.poll(0)
    producer.flush()


def consume(spec: Spec, stop: Stop) -> None:
    """Read partition 0 from a place on."""
    options = {
        "bootstrap.servers": spec.bootstrap,
        "group.id": "none",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(options)
    kind, number = spec.place
    if kind == "time":
        asked = [TopicPartition(spec.topic, 0, number)]
        number = consumer.offsets_for_times(asked, OFFSETS_S)[0].offset
    begin = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}.get(kind, number)
    consumer.assign([TopicPartition(spec.topic, 0, begin)])
    tell(ready=True)
    count = 0
    while not stop.is_set and (spec.count == 0 or count < spec.count):
        message = consumer.poll(0.2)
        if message is None:
            continue
        if message.error():
            tell(error=str(message.error()))
            continue
        _tell_read(message)
        count += 1
    consumer.close()


def _tell_read(message: Message) -> None:
    offset, partition, headers = message.offset() or 0, message.partition() or 0, message.headers() or []
    tell_read(offset, message.key(), message.value(), headers, message.timestamp()[1], partition)  # type: ignore[arg-type]


def member(spec: Spec, stop: Stop) -> None:
    """Share the partitions of a topic with the other members of a group, and commit what was read."""
    options: dict[str, object] = {
        "bootstrap.servers": spec.bootstrap,
        "group.id": spec.group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": spec.session_ms,
    }
    if spec.instance:
        options["group.instance.id"] = spec.instance
    if spec.cooperative:
        options["partition.assignment.strategy"] = "cooperative-sticky"
    held: set[int] = set()
    read: dict[int, int] = {}  # What was read and is not yet committed.
    consumer = Consumer(options)

    def assigned(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
        held.update(partition.partition for partition in partitions)
        tell(assigned=sorted(held))

    def revoked(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            held.discard(partition.partition)
            read.pop(partition.partition, None)
        tell(assigned=sorted(held))

    consumer.subscribe([spec.topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not stop.is_set:
        for message in consumer.consume(100, 0.1):
            if message.error():
                tell(error=str(message.error()))
                continue
            _tell_read(message)
            read[message.partition() or 0] = (message.offset() or 0) + 1
        if not read:
            continue
        try:
            consumer.commit(
                offsets=[TopicPartition(spec.topic, partition, offset) for partition, offset in read.items()],
                asynchronous=False,
            )
            tell_committed(read)
            read.clear()
        except KafkaException as error:
            tell(uncommitted=str(error))
    consumer.close()


def topics(spec: Spec, _stop: Stop) -> None:
    """List all topics."""
    tell(topics=len(AdminClient({"bootstrap.servers": spec.bootstrap}).list_topics(timeout=60).topics))


def admin(spec: Spec, _stop: Stop) -> None:
    """Look after topics and groups, step by step."""
    client, made = AdminClient({"bootstrap.servers": spec.bootstrap}), f"{spec.topic}-made"
    config = ConfigResource(ResourceType.TOPIC, made)

    def tell_partitions() -> None:
        described = client.describe_topics(TopicCollection([made]))[made].result()
        tell_step("partitions", len(described.partitions))

    def tell_config() -> None:
        (described,) = client.describe_configs([config]).values()
        tell_step("config", described.result()["retention.ms"].value)

    def tell_listed() -> None:
        listed = client.list_consumer_groups().result()
        tell_step("groups", spec.group in [group.group_id for group in listed.valid])

    client.create_topics([NewTopic(made, 2, config={"retention.ms": "86400000"})])[made].result()
    tell_step("create")
    tell_partitions()
    client.create_partitions([NewPartitions(made, 4)])[made].result()
    tell_step("create partitions")
    tell_partitions()
    tell_config()
    entry = ConfigEntry("retention.ms", "172800000", incremental_operation=AlterConfigOpType.SET)
    (altered,) = client.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, made, incremental_configs=[entry])]
    ).values()
    altered.result()
    tell_step("alter config")
    tell_config()
    tell_step("list", made in client.list_topics(timeout=30).topics)
    (records,) = client.delete_records([TopicPartition(spec.topic, 0, 5)]).values()
    tell_step("delete records", records.result().low_watermark)
    tell_listed()
    group = client.describe_consumer_groups([spec.group])[spec.group].result()
    tell_step("group", group.state.name.lower())
    (offsets,) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(spec.group)]).values()
    (committed,) = offsets.result().topic_partitions
    tell_step("offset", committed.offset)
    client.delete_consumer_groups([spec.group])[spec.group].result()
    tell_step("delete group")
    tell_listed()
    client.delete_topics([made])[made].result()
    tell_step("delete")


if __name__ == "__main__":
    main({"confluent-kafka": version("confluent-kafka")}, produce, consume, member, topics, admin)
