"""The driver of confluent-kafka, librdkafka's client for Python."""

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, Message, Producer, TopicPartition

from walrus_compat.drivers.common import Spec, Stop, main, record_of, tell, tell_read, tell_sent

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
        offset, headers = message.offset(), message.headers() or []
        tell_read(offset or 0, message.key(), message.value(), headers, message.timestamp()[1])  # type: ignore[arg-type]
        count += 1
    consumer.close()


if __name__ == "__main__":
    main("confluent-kafka", produce, consume)
