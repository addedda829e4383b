"""Where features are tried: a cluster of three brokers, and what lies in its logs in the end."""

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import walrus_client
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from walrus_client.dev import DevCluster

from walrus_compat.clients import Client
from walrus_compat.driver import Driver

Config = Mapping[str, str | int]
ASK_S, MANY_S = 30.0, 120.0
QUIET = {"log_level": 2}  # for librdkafka as our own client: that nodes are away is what is tried
AT_ONCE = 100  # topics that are made by one request


class Stored(NamedTuple):
    """A record as it lies in a log."""

    offset: int
    key: bytes | None
    value: bytes | None


class Stage(ABC):
    """A cluster, and topics on it that nobody had before."""

    is_walrus = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._numbers = itertools.count(1)
        self._many: set[str] = set()
        self._making = threading.Lock()  # the first who wants many topics makes them, others wait

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """The addresses of all brokers, running or not."""

    @property
    @abstractmethod
    def nodes(self) -> Sequence[int]:
        """The ids of all brokers."""

    @abstractmethod
    def make(self, topic: str, partitions: int, config: Config) -> None:
        """Make a topic, which every broker knows then."""

    @abstractmethod
    def delete(self, topic: str) -> None:
        """Delete a topic."""

    @abstractmethod
    def log(self, topic: str, partition: int = 0) -> list[Stored]:
        """Everything that lies in a partition, read by another client than those that are tried."""

    @abstractmethod
    def leads(self, topic: str) -> list[int]:
        """Who led partition 0 of a topic from segment to segment as far as is known, in order; the last one does."""

    @abstractmethod
    def starts_at(self, topic: str) -> int:
        """The first offset that partition 0 of a topic has still."""

    @abstractmethod
    def committed(self, group: str, topic: str) -> dict[int, int]:
        """What a group has committed, by partition."""

    @abstractmethod
    def has_group(self, group: str) -> bool:
        """Whether there is a group of that name."""

    @abstractmethod
    def has_members(self, group: str) -> bool:
        """Whether anybody is a member of a group that there is."""

    @abstractmethod
    def restart(self, node: int) -> None:
        """Stop a broker, which may hand over first, and start it again."""

    @abstractmethod
    def kill(self, node: int) -> None:
        """Kill a broker."""

    @abstractmethod
    def start(self, node: int) -> None:
        """Start a broker that was killed; returns when it serves."""

    def name(self, kind: str) -> str:
        """Return a name that nothing else has."""
        return f"{kind}-{next(self._numbers)}"

    def topic(self, kind: str, config: Config | None = None, *, partitions: int = 1) -> str:
        """Make a topic, as clients of Kafka would have it, and with these settings."""
        topic = self.name(kind)
        self.make(topic, partitions, config or {})
        return topic

    def many(self, prefix: str, count: int) -> list[str]:
        """Many topics, which are made once for all who want them."""
        names = [f"{prefix}-{number:05}" for number in range(count)]
        with self._making:
            if prefix in self._many:
                return names
            admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
            for first in range(0, count, AT_ONCE):
                wanted = [NewTopic(name, 1) for name in names[first : first + AT_ONCE]]
                for made in admin.create_topics(wanted, request_timeout=MANY_S).values():
                    made.result()
            self._many.add(prefix)
        return names

    def drive(self, client: Client, command: str, topic: str, **spec: object) -> Driver:
        """Start a driver."""
        errors = self.directory / f"{client.name.replace(' ', '-')}.log"
        return Driver(client, command, errors=errors, bootstrap=self.bootstrap, topic=topic, **spec)

    def coordinator(self, group: str) -> int:
        """The broker that coordinates a group."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})  # which must live until it has answered
        node = admin.describe_consumer_groups([group])[group].result(ASK_S).coordinator
        assert node is not None, "a described group has one"
        return int(node.id)


class Walrus(Stage):
    """Three nodes of Walrus. What lies in their logs is read by its own client."""

    def __init__(self, directory: Path, cluster: DevCluster, client: walrus_client.Client) -> None:
        super().__init__(directory)
        self._cluster = cluster
        self.client = client

    @property
    def bootstrap(self) -> str:
        return self._cluster.kafka_bootstrap

    @property
    def nodes(self) -> Sequence[int]:
        return [node.node_id for node in self._cluster.nodes]

    def make(self, topic: str, partitions: int, config: Config) -> None:
        self.client.create_topic(topic, partitions=partitions, config={"walrus.leaders": "sticky", **config})

    def delete(self, topic: str) -> None:
        self.client.delete_topic(topic)

    def log(self, topic: str, partition: int = 0) -> list[Stored]:
        while True:
            begin = self.client.segments(topic)[partition].log_start
            try:
                records = list(self.client.read(topic, partition, begin))
            except walrus_client.OffsetOutOfRange:
                continue  # its first records have gone since
            return [Stored(record.offset, record.key, record.value) for record in records]

    def leads(self, topic: str) -> list[int]:
        (partition, *_) = self.client.segments(topic)
        return [segment.leader.id if segment.leader else 0 for segment in partition.segments]

    def starts_at(self, topic: str) -> int:
        return self.client.segments(topic)[0].log_start

    def committed(self, group: str, topic: str) -> dict[int, int]:
        positions = self.client.describe_group(group).positions
        return {position.partition: position.offset for position in positions if position.topic == topic}

    def has_group(self, group: str) -> bool:
        return any(found.name == group for found in self.client.groups())

    def has_members(self, group: str) -> bool:
        return bool(self.client.describe_group(group).members)

    def restart(self, node: int) -> None:
        self._cluster.restart(str(node))

    def kill(self, node: int) -> None:
        self._cluster.kill(str(node))

    def start(self, node: int) -> None:
        self._cluster.start([str(node)])
