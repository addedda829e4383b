"""The driver of kafka-python."""

from functools import partial

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from walrus_compat.drivers.common import Spec, Stop, main, record_of, tell, tell_read, tell_sent


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


if __name__ == "__main__":
    main("kafka-python", produce, consume)
