"""Where features are tried: a cluster of three real nodes, and what lies in its logs in the end."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import walrus_client
from walrus_client.dev import DevCluster
from walrus_client.model import Record

from walrus_compat.clients import Client
from walrus_compat.driver import Driver


@dataclass
class Stage:
    """A cluster, and topics on it that nobody had before."""

    cluster: DevCluster
    walrus: walrus_client.Client
    directory: Path

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)

    def topic(self, name: str, config: Mapping[str, str | int | bool] | None = None) -> str:
        """Make a topic of one partition, as clients of Kafka would have it, and with these settings."""
        topic = f"{name}-{next(self._numbers)}"
        self.walrus.create_topic(topic, config={"walrus.leaders": "sticky", **(config or {})})
        return topic

    def drive(self, client: Client, command: str, topic: str, **spec: object) -> Driver:
        """Start a driver."""
        errors = self.directory / f"{client.name.replace(' ', '-')}.log"
        bootstrap = self.cluster.kafka_bootstrap
        return Driver(client, command, errors=errors, bootstrap=bootstrap, topic=topic, **spec)

    def log(self, topic: str) -> list[Record]:
        """Everything that lies in partition 0 of a topic, read by Walrus's own client."""
        return list(self.walrus.read(topic))
