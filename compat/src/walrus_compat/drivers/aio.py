"""The driver of aiokafka."""

import asyncio
from importlib.metadata import version

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

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


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Tells which partitions a member has."""

    def on_partitions_revoked(self, _revoked: list[TopicPartition]) -> None:
        tell(assigned=[])

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        tell(assigned=sorted(partition.partition for partition in assigned))


def member(spec: Spec, stop: Stop) -> None:
    """Share the partitions of a topic with the other members of a group, and commit what was read."""
    asyncio.run(_member(spec, stop))


async def _member(spec: Spec, stop: Stop) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=spec.bootstrap,
        group_id=spec.group,
        group_instance_id=spec.instance or None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=spec.session_ms,
        heartbeat_interval_ms=min(3_000, spec.session_ms // 3),
    )
    consumer.subscribe([spec.topic], listener=_Listener())
    await consumer.start()
    while not stop.is_set:
        read: dict[int, int] = {}
        try:
            batches = await consumer.getmany(timeout_ms=100)
        except KafkaError as error:
            tell(error=repr(error))
            continue
        for record in (record for batch in batches.values() for record in batch):
            headers = list(record.headers)
            tell_read(record.offset, record.key, record.value, headers, record.timestamp, record.partition)
            read[record.partition] = record.offset + 1
        if not read:
            continue
        try:
            await consumer.commit({TopicPartition(spec.topic, part): offset for part, offset in read.items()})
            tell_committed(read)
        except KafkaError as error:
            tell(uncommitted=repr(error))
    await consumer.stop()


def topics(spec: Spec, _stop: Stop) -> None:
    """List all topics."""
    asyncio.run(_topics(spec))


async def _topics(spec: Spec) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=spec.bootstrap)
    await client.start()
    tell(topics=len(await client.list_topics()))
    await client.close()


def admin(spec: Spec, _stop: Stop) -> None:
    """Look after topics and groups, step by step."""
    asyncio.run(_admin(spec))


async def _admin(spec: Spec) -> None:
    client, made = AIOKafkaAdminClient(bootstrap_servers=spec.bootstrap), f"{spec.topic}-made"
    await client.start()

    async def tell_partitions() -> None:
        (described,) = await client.describe_topics([made])
        tell_step("partitions", len(described["partitions"]))

    async def tell_config() -> None:
        (described,) = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, made)])
        (resource,) = described.to_object()["resources"]
        values = {entry["config_names"]: entry["config_value"] for entry in resource["config_entries"]}
        tell_step("config", values["retention.ms"])

    async def tell_listed() -> None:
        tell_step("groups", spec.group in [group[0] for group in await client.list_consumer_groups()])

    created = await client.create_topics([NewTopic(made, 2, 3, topic_configs={"retention.ms": "86400000"})])
    tell_step("create", _problem(created.topic_errors[0][1]))
    await tell_partitions()
    await client.create_partitions({made: NewPartitions(4)})
    tell_step("create partitions")
    await tell_partitions()
    await tell_config()
    (altered,) = await client.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, made, configs={"retention.ms": "172800000"})]
    )
    tell_step("alter config", _problem(altered.resources[0][0]))
    await tell_config()
    tell_step("list", made in await client.list_topics())
    partition = TopicPartition(spec.topic, 0)
    tell_step("delete records", (await client.delete_records({partition: RecordsToDelete(5)}))[partition])
    await tell_listed()
    (described,) = await client.describe_consumer_groups([spec.group])
    tell_step("group", described.groups[0][2].lower())
    tell_step("offset", (await client.list_consumer_group_offsets(spec.group))[partition].offset)
    deleted = await client.delete_topics([made])
    tell_step("delete", _problem(deleted.topic_error_codes[0][1]))
    await client.close()


def _problem(code: int) -> str | None:
    """This client answers with codes where others raise."""
    return for_code(code).__name__ if code else None


if __name__ == "__main__":
    main({"aiokafka": version("aiokafka")}, produce, consume, member, topics, admin)
