"""Suite `kafka`, three brokers: replicated records, groups of consumers, the metadata of many topics."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from walrus_client.admin import AdminClient
from walrus_client.dev import DevCluster, DevError, NodeOptions
from walrus_compat import apache

from walrus_bench.sampling import InvalidRunError, Sample, Subject
from walrus_bench.suites import Prepared, Settings, brokers, limits
from walrus_bench.suites.kafka import HEAP, WARM_UP_OURS_S, WARM_UP_S, require_apache
from walrus_bench.suites.load import Load
from walrus_bench.suites.raw_kafka import RawKafka, cluster_pids, warm_up

MEMBERS, QUICK_MEMBERS = 50, 5
GROUPS, QUICK_GROUPS = 1_000, 10  # groups that are loaded, with offsets of so many partitions
PARTITIONS, QUICK_PARTITIONS = 1_000, 10
TOPICS, QUICK_TOPICS = 10_000, 100
CREATIONS_PER_SECOND = 100_000  # the limit on creations is no limit here
REQUESTS_IN_FLIGHT = 64


@contextmanager
def replicated(settings: Settings) -> Iterator[Prepared]:
    """Sets up three brokers that have each record on two disks before they acknowledge it, and three of Apache Kafka,
    which leave the writing to the operating system.
    """
    require_apache()
    machine = limits.prepare(settings, ("durable_4k",))
    with (
        brokers.running(settings.data_dir / "three", nodes=brokers.NODES, options=brokers.REPLICATED) as three,
        apache.running(settings.data_dir / "apache", nodes=brokers.NODES, heap=HEAP) as kafka,
    ):
        ours, theirs = RawKafka.of_walrus(three, settings.seconds), RawKafka.of_apache(kafka, settings.seconds)
        if not settings.quick:
            warm_up(theirs, WARM_UP_S)
            warm_up(ours, WARM_UP_OURS_S)
        subjects = [
            *machine.subjects,
            Subject("kafka_produce_replicated", "walrus", "auto", partial(ours.durable, "produce")),
            Subject("kafka_produce_replicated", "apache", "", partial(theirs.unsynced, "produce")),
            Subject("kafka_e2e_replicated", "walrus", "auto", partial(ours.durable, "end_to_end")),
            Subject("kafka_e2e_replicated", "apache", "", partial(theirs.unsynced, "end_to_end")),
        ]
        yield Prepared(subjects, pids=cluster_pids(ours, theirs), notes=machine.notes)


@contextmanager
def groups(settings: Settings) -> Iterator[Prepared]:
    """Sets up three brokers for groups of consumers, and one that has a million offsets to load."""
    members = QUICK_MEMBERS if settings.quick else MEMBERS
    single = brokers.running(settings.data_dir / "single", nodes=1, options=NodeOptions())
    with (
        single as one,
        brokers.running(settings.data_dir / "three", nodes=brokers.NODES, options=brokers.REPLICATED) as three,
    ):
        raw = RawKafka.of_walrus(three, settings.seconds)
        loaded = Loaded(one, settings)
        subjects = [
            Subject("rebalance_50", "walrus", "auto", partial(raw.run, "rebalance", "--clients", members)),
            Subject("offset_commits", "walrus", "auto", partial(raw.run, "commits", "--clients", members)),
            Subject("coordinator_failover", "walrus", "auto", partial(failover, three, raw)),
            Subject("group_load", "walrus", "auto", loaded.restart),
        ]
        yield Prepared(subjects, pids=[*brokers.pids(one), *brokers.pids(three)])


def failover(cluster: DevCluster, raw: RawKafka) -> Sample:
    """From the kill of a group's coordinator to the next commit; the node is back for the next sample."""
    sample = raw.run("failover")
    (killed,) = (node for node in cluster.nodes if node.node_id == sample.facts["killed"])
    cluster.start([killed.name])
    return sample


@dataclass
class Loaded:
    """A broker that coordinates groups which have committed many offsets."""

    cluster: DevCluster
    settings: Settings
    is_loaded: bool = False

    @property
    def many(self) -> tuple[str | int, ...]:
        """How many they are, as options."""
        quick = self.settings.quick
        groups, partitions = (QUICK_GROUPS, QUICK_PARTITIONS) if quick else (GROUPS, PARTITIONS)
        return "--groups", groups, "--partitions", partitions

    def restart(self) -> Sample:
        """From the start of the broker until all groups tell what they have committed."""
        if not self.is_loaded:
            self._raw().on_topic("load_groups", "loaded", *self.many)
            self.is_loaded = True
        node = self.cluster.nodes[0]
        self.cluster.stop([node.name])
        failed: list[DevError] = []
        start = threading.Thread(target=partial(self._start, node.name, failed), daemon=True)
        start.start()
        sample = self._raw().on_topic("groups_answer", "loaded", *self.many)
        start.join()
        if failed:
            raise InvalidRunError(f"{node.name} did not start: {failed[0]}") from failed[0]
        return sample

    def _raw(self) -> RawKafka:
        return RawKafka.of_walrus(self.cluster, self.settings.seconds)

    def _start(self, name: str, failed: list[DevError]) -> None:
        try:
            self.cluster.start([name])
        except DevError as error:
            failed.append(error)


@contextmanager
def many_topics(settings: Settings) -> Iterator[Prepared]:
    """Sets up three brokers with many topics."""
    with brokers.running(settings.data_dir / "topics", nodes=brokers.NODES, options=brokers.REPLICATED) as cluster:
        with AdminClient(cluster.admin_addresses, secret_file=cluster.secret_file) as admin:
            admin.set_config({"topics.creations_per_second_max": CREATIONS_PER_SECOND})
        topics = QUICK_TOPICS if settings.quick else TOPICS
        load = Load(cluster, settings.seconds)
        load.on_topics("create_topics", "topic", "--topics", topics, "--in-flight", REQUESTS_IN_FLIGHT)
        raw = RawKafka.of_walrus(cluster, settings.seconds)
        subjects = [
            Subject("metadata_10k", "walrus", "auto", partial(raw.run, "metadata")),
            Subject("metadata_10k_beside", "walrus", "auto", partial(beside_metadata, raw)),
        ]
        yield Prepared(subjects, pids=brokers.pids(cluster))


def beside_metadata(raw: RawKafka) -> Sample:
    """What is produced while a client asks for the metadata of all topics, over what is produced alone."""
    alone = raw.durable("produce")
    asked: list[Sample] = []
    longer = replace(raw, seconds=2 * raw.seconds)
    asking = threading.Thread(target=lambda: asked.append(longer.run("metadata", "--every-ms", 1_000)), daemon=True)
    asking.start()
    beside = raw.durable("produce")
    asking.join()
    if not asked:
        raise InvalidRunError("the metadata could not be asked for beside producers")
    facts = {"alone": alone.value, "beside": beside.value, "metadata_p50_us": asked[0].facts["p50_us"]}
    return Sample(beside.value / alone.value, "x", facts)
