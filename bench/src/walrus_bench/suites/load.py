"""The native load generator, aimed at a broker."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from walrus_client import Client
from walrus_client.dev import DevCluster

from walrus_bench import programs
from walrus_bench.sampling import Sample
from walrus_bench.suites import brokers
from walrus_bench.suites.disk import Disk


@dataclass
class Load:
    """Puts load on a cluster."""

    cluster: DevCluster
    seconds: float  # how long each sample lasts
    program: Path = field(default_factory=partial(programs.build, "walrus-bench-load"))
    numbers: Iterator[int] = field(default_factory=itertools.count)
    disk: Disk = field(init=False)

    def __post_init__(self) -> None:
        self.disk = Disk.under(self.cluster.directory)

    def run(self, case: str, *options: str | int) -> Sample:
        """One sample of a case on a topic of its own, which is deleted then: the rounds of a suite would fill the disk.

        Raises InvalidRunError when what is read back is not what was acknowledged.
        """
        topic = f"{case}-{next(self.numbers)}"
        sample = self.on_topics(case, topic, *options)
        with Client(self.cluster.bootstrap) as client:
            client.delete_topic(topic)
        self.disk.rest()
        return sample

    def on_topics(self, case: str, topic: str, *options: str | int) -> Sample:
        """The same on the topic of that name, or on the topics whose names begin so; they stay."""
        at = brokers.listeners(self.cluster.nodes[0])
        return programs.run(self.program, case, *at, "--topic", topic, *options, seconds=self.seconds)
