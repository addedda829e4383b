"""The driver of aiokafka."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from walrus_compat.drivers.common import Spec, Stop, main, record_of, tell, tell_read, tell_sent


def produce(spec: Spec, stop: Stop) -> None:
    """Send records, with the client's defaults wherever the spec does not say otherwise."""
    asyncio.run(_produce(spec, stop))


async def _produce(spec: Spec, stop: Stop) -> None:
    options = {"max_request_size": spec.bytes_max} if spec.bytes_max else {}
    producer = AIOKafkaProducer(
        bootstrap_servers=spec.bootstrap,
        acks="all" if spec.acks == -1 else spec.acks,
        compression_type=None if spec.codec == "none" else spec.codec,
        enable_idempotence=bool(spec.idempotent),
        **options,
    )
    await producer.start()
    number, waiting = 0, []
    while not stop.is_set and (spec.count == 0 or number < spec.count):
        record = record_of(spec, number)
        try:
            sent = await producer.send(
                spec.topic, key=record.key, value=record.value, headers=record.headers, timestamp_ms=record.time_ms
            )
            waiting.append(asyncio.create_task(_tell_when_sent(number, sent)))
        except KafkaError as error:
            tell_sent(number, None, repr(error))
        await asyncio.sleep(spec.pace_ms / 1000)
        number += 1
    await asyncio.gather(*waiting)
    await producer.stop()


async def _tell_when_sent(number: int, sent: "asyncio.Future[object]") -> None:
    try:
        metadata = await sent
    except KafkaError as error:
        tell_sent(number, None, repr(error))
        return
    tell_sent(number, getattr(metadata, "offset", None), None)


def consume(spec: Spec, stop: Stop) -> None:
    """Read partition 0 from a place on."""
    asyncio.run(_consume(spec, stop))


async def _consume(spec: Spec, stop: Stop) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=spec.bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    partition = TopicPartition(spec.topic, 0)
    consumer.assign([partition])
    kind, number = spec.place
    if kind == "earliest":
        await consumer.seek_to_beginning(partition)
    elif kind == "latest":
        await consumer.seek_to_end(partition)
    else:
        if kind == "time":
            number = (await consumer.offsets_for_times({partition: number}))[partition].offset
        consumer.seek(partition, number)
    tell(ready=True)
    count = 0
    while not stop.is_set and (spec.count == 0 or count < spec.count):
        try:
            batches = await consumer.getmany(timeout_ms=200)
        except KafkaError as error:
            tell(error=repr(error))
            continue
        for record in (record for batch in batches.values() for record in batch):
            tell_read(record.offset, record.key, record.value, list(record.headers), record.timestamp)
            count += 1
    await consumer.stop()


if __name__ == "__main__":
    main("aiokafka", produce, consume)
