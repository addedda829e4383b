"""The native program that speaks Kafka's protocol, aimed at a broker of Walrus or of Apache Kafka."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from walrus_client.dev import DevCluster
from walrus_compat.apache import Kafka

from walrus_bench import programs
from walrus_bench.sampling import Sample
from walrus_bench.suites.disk import Disk

NOT_SYNCED: Mapping[str, str] = {"walrus": "walrus.fsync=never"}
# Kafka leaves the writing to the operating system, unless a topic says otherwise.
SYNCED: Mapping[str, str] = {"apache": "flush.messages=1"}


@dataclass(frozen=True)
class RawKafka:
    """Puts load on a cluster by Kafka's protocol, on a new topic each time."""

    system: str
    bootstrap: str
    pids: Callable[[], Sequence[tuple[int, int]]]  # node and process of each broker that runs now
    seconds: float
    disk: Disk
    program: Path = field(default_factory=partial(programs.build, "walrus-bench-kafka"))
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def of_walrus(cls, cluster: DevCluster, seconds: float) -> "RawKafka":
        """Load on nodes of Walrus."""

        def pids() -> Sequence[tuple[int, int]]:
            return [(node.node_id, node.process.pid) for node in cluster.nodes if node.process is not None]

        return cls("walrus", cluster.kafka_bootstrap, pids, seconds, Disk.under(cluster.directory))

    @classmethod
    def of_apache(cls, cluster: Kafka, seconds: float) -> "RawKafka":
        """Load on brokers of Apache Kafka."""
        pids = [(broker.number, broker.process.pid) for broker in cluster.brokers if broker.process is not None]
        return cls("apache", cluster.bootstrap, lambda: pids, seconds, Disk.under(cluster.brokers[0].home))

    def durable(self, case: str, *options: str | int) -> Sample:
        """A case whose records are on the disk before they are acknowledged."""
        return self.run(case, *_config(SYNCED, self.system), *options)

    def unsynced(self, case: str, *options: str | int) -> Sample:
        """A case whose records reach the disk when the operating system wants."""
        return self.run(case, *_config(NOT_SYNCED, self.system), *options)

    def run(self, case: str, *options: str | int) -> Sample:
        """One sample of a case. Raises InvalidRunError when what is read back is not what was acknowledged."""
        return self.on_topic(case, f"{case}-{next(self.numbers)}", *options)

    def on_topic(self, case: str, topic: str, *options: str | int) -> Sample:
        """The same on the topic of that name."""
        self.disk.rest()
        at = ("--bootstrap", self.bootstrap, "--pids", ",".join(f"{node}:{pid}" for node, pid in self.pids()))
        return programs.run(self.program, case, *at, "--topic", topic, *options, seconds=self.seconds)


def _config(of: Mapping[str, str], system: str) -> tuple[str, ...]:
    return ("--config", of[system]) if system in of else ()


def p50(sample: Sample) -> Sample:
    """What one request takes, in us, of a sample that counts them."""
    return Sample(float(sample.facts["p50_us"]), "us", sample.facts)


def warm_up(load: RawKafka, seconds: float) -> None:
    """Load that nobody looks at: the compiler of a Java program learns from it what is hot."""
    brief = 10.0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        short = replace(load, seconds=min(brief, seconds))
        short.unsynced("produce", "--batch-records", 15)
        short.unsynced("fetch", "--bytes", 64 << 20)


def cluster_pids(*loads: RawKafka) -> list[int]:
    """The processes of all brokers under load."""
    return [pid for load in loads for _, pid in load.pids()]
