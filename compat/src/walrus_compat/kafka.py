"""Where features are tried with Apache Kafka itself: what its clients tell there, they may tell with Walrus, too."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from walrus_compat import apache
from walrus_compat.feature import SOON_S, await_so
from walrus_compat.stage import ASK_S, QUIET, Config, Stage, Stored

NODES = 3
# As soon as the nodes of Walrus look, which are told to look often.
SETTINGS = {
    "log.retention.check.interval.ms": 1_000,
    "log.cleaner.backoff.ms": 1_000,
    "log.initial.task.delay.ms": 1_000,
}


class Kafka(Stage):
    """Three brokers of Apache Kafka. What lies in their logs is read by librdkafka."""

    is_walrus = False

    def __init__(self, directory: Path, cluster: apache.Kafka) -> None:
        super().__init__(directory)
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def nodes(self) -> Sequence[int]:
        return [broker.number for broker in self._cluster.brokers]

    def make(self, topic: str, partitions: int, config: Config) -> None:
        known = {name: str(value) for name, value in config.items() if not name.startswith("walrus.")}
        self._admin.create_topics([NewTopic(topic, partitions, config=known)])[topic].result(ASK_S)
        await_so(f"{topic} has leaders", lambda: self._has_leaders(topic, partitions), SOON_S)

    def _has_leaders(self, topic: str, partitions: int) -> bool:
        told = self._admin.list_topics(topic, timeout=ASK_S).topics[topic].partitions
        return len(told) == partitions and all(partition.leader > 0 for partition in told.values())

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(ASK_S)
        await_so(f"{topic} is gone", lambda: topic not in self._admin.list_topics(timeout=ASK_S).topics, SOON_S)

    def log(self, topic: str, partition: int = 0) -> list[Stored]:
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "none", "enable.partition.eof": True, **QUIET}
        )
        low, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ASK_S)
        consumer.assign([TopicPartition(topic, partition, low)])
        found: list[Stored] = []
        while low < end and (not found or found[-1].offset < end - 1):
            message = consumer.poll(ASK_S)
            if message is None or message.error():
                break  # the last records before the end may have been compacted
            found.append(Stored(message.offset() or 0, message.key(), message.value()))
        consumer.close()
        return found

    def leads(self, topic: str) -> list[int]:
        leader = self._admin.list_topics(topic, timeout=ASK_S).topics[topic].partitions[0].leader
        here = self._cluster.brokers[0].home / "data" / f"{topic}-0"
        return [leader] * max(1, len(list(here.glob("*.log"))))

    def starts_at(self, topic: str) -> int:
        partition = TopicPartition(topic, 0)
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        return int(self._admin.list_offsets({partition: earliest})[partition].result(ASK_S).offset)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found = asked[group].result(ASK_S).topic_partitions or []
        return {each.partition: each.offset for each in found if each.topic == topic}

    def has_group(self, group: str) -> bool:
        return any(found.group_id == group for found in self._admin.list_consumer_groups().result(ASK_S).valid)

    def has_members(self, group: str) -> bool:
        return bool(self._admin.describe_consumer_groups([group])[group].result(ASK_S).members)

    def restart(self, node: int) -> None:
        broker = self._broker(node)
        broker.stop()
        broker.start()
        broker.wait_until_it_serves()

    def kill(self, node: int) -> None:
        self._broker(node).kill()

    def start(self, node: int) -> None:
        broker = self._broker(node)
        broker.start()
        broker.wait_until_it_serves()

    def _broker(self, node: int) -> apache.Broker:
        return next(broker for broker in self._cluster.brokers if broker.number == node)


@contextmanager
def on_kafka(directory: Path) -> Iterator[Stage]:
    """Three brokers that are gone afterwards; their logs stay."""
    with apache.running(directory / "kafka", nodes=NODES, settings=SETTINGS, heap="512m") as cluster:
        yield Kafka(directory, cluster)
