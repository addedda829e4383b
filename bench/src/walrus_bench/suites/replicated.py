"""Suite `cluster`: appends to three copies, of which two are waited for, by one client beside all three brokers."""

import itertools
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from walrus_client import Client
from walrus_client.dev import DevCluster, NodeOptions

from walrus_bench.sampling import Sample, Subject
from walrus_bench.suites import Prepared, Settings, brokers, limits
from walrus_bench.suites.load import Load

ONE_IN_FLIGHT = ("--batch-records", 1, "--in-flight", 1)
ROLL_ENTRIES = 1_000  # records of a segment: a third of a second of one in flight
# Producers that a partition remembers; the few are what the many are compared with.
FEW_PRODUCERS, MANY_PRODUCERS, QUICK_PRODUCERS = 10, 50_000, 500
FIRST_ROLLS, PRODUCERS_ROLLS = 6, 50  # the first ones store what all the producers have just written
ROLLS_TIME = 4  # times that of other samples: of five rounds with six rolls each, the p99 would be the slowest roll


@contextmanager
def appends(settings: Settings) -> Iterator[Prepared]:
    """Sets up three brokers, and one beside them for the same load on a single copy."""
    machine = limits.prepare(settings, ("durable_4k",))
    single = brokers.running(settings.data_dir / "single", nodes=1, options=NodeOptions())
    with (
        single as one,
        brokers.running(settings.data_dir / "replicated", nodes=brokers.NODES, options=brokers.REPLICATED) as three,
    ):
        streams = Streams(Load(three, settings.seconds), Load(one, settings.seconds))
        subjects = [
            *machine.subjects,
            # next to the limit it is held against, before the streams that keep the disk busy for a while
            Subject("replicated_append_p50", "walrus", "auto", partial(one_in_flight, streams.three)),
            Subject("replicated_append", "walrus", "auto", streams.replicated),
            Subject("replicated_over_single", "walrus", "auto", streams.over_single),
        ]
        yield Prepared(subjects, pids=[*brokers.pids(one), *brokers.pids(three)], notes=machine.notes)


@dataclass
class Streams:
    """The same stream of batches to three copies and to one, in turn."""

    three: Load
    one: Load
    latest: Sample | None = None

    def replicated(self) -> Sample:
        """Records/s on three copies."""
        self.latest = self.three.run("append_stream")
        return self.latest

    def over_single(self) -> Sample:
        """What is reached on three copies, just now or in this round, over what is reached on one."""
        three, self.latest = self.latest or self.replicated(), None
        single = self.one.run("append_stream")
        facts = {"replicated": three.value, "single": single.value}
        return Sample(three.value / single.value, "x", facts)


def one_in_flight(load: Load) -> Sample:
    """What one durable append takes when nothing else is under way, in us (p50)."""
    sample = load.run("append_stream", *ONE_IN_FLIGHT)
    return Sample(float(sample.facts["p50_us"]), "us", sample.facts)


@contextmanager
def planned_rolls(settings: Settings) -> Iterator[Prepared]:
    """Sets up three brokers whose segments are short."""
    options = replace(brokers.REPLICATED, segment_entries_max=ROLL_ENTRIES, segment_age_min="0")
    with brokers.running(settings.data_dir / "rolls", nodes=brokers.NODES, options=options) as cluster:
        measure = partial(Load(cluster, max(ROLLS_TIME * settings.seconds, 1.0)).run, "roll_pauses", *ONE_IN_FLIGHT)
        quantiles = {"planned_roll_pause_p99": 0.99}
        subjects = [
            Subject("planned_roll_pause", "walrus", "auto", measure, quantiles),
            Subject("roll_by_producers", "walrus", "auto", Rolls(cluster, settings).by_producers),
        ]
        yield Prepared(subjects, pids=brokers.pids(cluster))


@dataclass
class Rolls:
    """Rolls of partitions that remember few producers and many."""

    cluster: DevCluster
    settings: Settings
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def by_producers(self) -> Sample:
        """What an append takes that waits for a roll, where many producers are remembered over where few are."""
        load, number = Load(self.cluster, self.settings.seconds), next(self.numbers)
        many = QUICK_PRODUCERS if self.settings.quick else MANY_PRODUCERS
        topics = {count: f"producers-{number}-{count}" for count in (FEW_PRODUCERS, many)}
        took: dict[int, list[float]] = {count: [] for count in topics}
        with Client(self.cluster.bootstrap) as client:
            for count, topic in topics.items():
                load.on_topics("fill", topic, "--records", count, "--batch-records", 1, "--producers", count)
                client.alter_topic(topic, {"walrus.segment.entries": 1})
            for _ in range(FIRST_ROLLS + PRODUCERS_ROLLS):
                for count, topic in topics.items():
                    began = time.perf_counter()
                    client.append(topic, [b"x"])
                    took[count].append((time.perf_counter() - began) * 1e3)
            for topic in topics.values():
                client.delete_topic(topic)
        few_ms, many_ms = (statistics.median(took[count][FIRST_ROLLS:]) for count in topics)
        facts = {"few_ms": few_ms, "many_ms": many_ms, "slowest_first_ms": max(took[many][:FIRST_ROLLS])}
        return Sample(many_ms / few_ms, "x", facts)
