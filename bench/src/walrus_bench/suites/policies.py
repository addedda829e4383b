"""Suite `topics`: what topics let go, and what that costs whoever appends meanwhile."""

import itertools
import shutil
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from walrus_client import Client
from walrus_client.admin import AdminClient
from walrus_client.dev import DevCluster

from walrus_bench.goals import RECORD_BYTES
from walrus_bench.sampling import InvalidRunError, Sample, Subject
from walrus_bench.suites import Prepared, Settings, brokers
from walrus_bench.suites.load import Load
from walrus_bench.suites.topics import memory_bytes

SEGMENT_BYTES = 64 << 20
COMPACT: Mapping[str, str | int] = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}
SINGLE_COPY: Mapping[str, str | int] = {"walrus.replication.factor": 1, "min.insync.replicas": 1}

# Each key comes twenty times.
COMPACTED_RECORDS, QUICK_COMPACTED_RECORDS = 2_000_000, 20_000
LONG_COMPACTED_RECORDS = 5_000_000  # a compaction of these takes longer than a stream beside it
TIMES_EACH = 20
# Records of a few bytes, of which each has a key of its own.
KEYS, QUICK_KEYS = 50_000_000, 50_000
KEYED_RECORD_BYTES, KEYED_BATCH_RECORDS = 16, 2_000
EXPIRED_RECORDS, QUICK_EXPIRED_RECORDS = 10_000_000, 10_000

TIMEOUT_S = 1_800.0
LOOK_EVERY_S = 0.02


@contextmanager
def policies(settings: Settings) -> Iterator[Prepared]:
    """Sets up three brokers whose segments have 64 MiB."""
    with brokers.running(settings.data_dir / "policies", nodes=brokers.NODES, options=brokers.REPLICATED) as cluster:
        topics = _Topics(cluster, settings)
        topics.prepare()
        subjects = [
            Subject("compaction", "walrus", "auto", topics.compaction, rounds_max=3),
            Subject("append_beside_compaction", "walrus", "auto", topics.append_beside_compaction, rounds_max=3),
            Subject("compaction_memory", "walrus", "auto", topics.compaction_memory, rounds_max=1),
            Subject("retention_10gb_s", "walrus", "auto", topics.retention, rounds_max=1),
        ]
        yield Prepared(subjects, pids=brokers.pids(cluster))


@dataclass(frozen=True)
class _Passes:
    """What the compactions of all nodes have done so far."""

    count: float
    seconds: float
    read_bytes: float


@dataclass
class _Topics:
    """Topics that are filled, and then told to let something go."""

    cluster: DevCluster
    settings: Settings
    load: Load = field(init=False)
    client: Client = field(init=False)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.load = Load(self.cluster, self.settings.seconds)
        self.client = Client(self.cluster.bootstrap)

    def prepare(self) -> None:
        """Makes segments small enough that all but the last few bytes of a topic are sealed."""
        admin = f"{brokers.LOOPBACK}:{self.cluster.nodes[0].ports.admin}"
        segment_bytes = 1 << 20 if self.settings.quick else SEGMENT_BYTES
        with AdminClient(admin, secret_file=self.cluster.secret_file) as client:
            settings = {"segments.max_bytes": segment_bytes, "segments.max_entries": 1 << 40, "segments.min_age_ms": 0}
            client.set_config(settings)

    def compaction(self) -> Sample:
        """MB of input a second that a pass goes through, until all that it wrote is on a quorum and has its place."""
        topic = self._filled()
        before = self._passes()
        self.client.alter_topic(topic, COMPACT)
        self._await_passes(before.count + 1)
        after = self._passes()
        self.client.delete_topic(topic)
        megabytes, seconds = (after.read_bytes - before.read_bytes) / 1e6, after.seconds - before.seconds
        return Sample(megabytes / seconds, "MB/s", {"read_mb": megabytes, "seconds": seconds})

    def append_beside_compaction(self) -> Sample:
        """Records/s that a stream reaches beside a compaction, over what it reached just before."""
        records = QUICK_COMPACTED_RECORDS if self.settings.quick else LONG_COMPACTED_RECORDS
        topic = self._filled("--keys", records // TIMES_EACH, records=records)
        alone = self.load.run("append_stream")
        before = self._passes()
        first = self._first_segment(topic)
        self.client.alter_topic(topic, COMPACT)
        deadline = time.monotonic() + TIMEOUT_S
        while self._first_segment(topic) == first and time.monotonic() < deadline:
            threading.Event().wait(LOOK_EVERY_S)
        beside = self.load.run("append_stream")
        has_ended = self._passes().count > before.count
        self._await_passes(before.count + 1)
        self.client.delete_topic(topic)
        facts = {"alone": alone.value, "beside": beside.value, "ended_meanwhile": has_ended}
        return Sample(beside.value / alone.value, "x", facts)

    def compaction_memory(self) -> Sample:
        """MiB that the node with the most of them takes more, at any moment, while it compacts 50 million keys."""
        keys = QUICK_KEYS if self.settings.quick else KEYS
        batches = ("--record-bytes", KEYED_RECORD_BYTES, "--batch-records", KEYED_BATCH_RECORDS)
        topic = self._filled("--keys", keys, *batches, records=keys, config=SINGLE_COPY)
        pids = brokers.pids(self.cluster)
        resting = {pid: memory_bytes(pid) for pid in pids}
        most = dict.fromkeys(pids, 0)
        before = self._passes()
        self.client.alter_topic(topic, COMPACT)
        deadline = time.monotonic() + TIMEOUT_S
        while not self._is_clean(topic) and time.monotonic() < deadline:
            for pid in pids:
                most[pid] = max(most[pid], memory_bytes(pid) - resting[pid])
            threading.Event().wait(LOOK_EVERY_S)
        after = self._passes()
        self.client.delete_topic(topic)
        facts = {"keys": keys, "passes": after.count - before.count, "seconds": after.seconds - before.seconds}
        return Sample(max(most.values()) / (1 << 20), "MiB", facts)

    def retention(self) -> Sample:
        """Seconds until the disk has the space of 10 GB back, from the change of the topic on."""
        records = QUICK_EXPIRED_RECORDS if self.settings.quick else EXPIRED_RECORDS
        topic = self._filled(records=records, config=SINGLE_COPY)
        wanted = shutil.disk_usage(self.settings.data_dir).free + int(records * RECORD_BYTES * 0.95)
        began = time.monotonic()
        self.client.alter_topic(topic, {"retention.ms": 1})
        while shutil.disk_usage(self.settings.data_dir).free < wanted and not self.settings.quick:
            if time.monotonic() - began > TIMEOUT_S:
                raise InvalidRunError(f"the space of {topic} is not free again")
            threading.Event().wait(LOOK_EVERY_S)
        seconds = time.monotonic() - began
        self.client.delete_topic(topic)
        return Sample(seconds, "s", {"gigabytes": records * RECORD_BYTES / 1e9})

    def _filled(
        self, *options: str | int, records: int | None = None, config: Mapping[str, str | int] | None = None
    ) -> str:
        topic = f"policies-{next(self.numbers)}"
        self.client.create_topic(topic, config=config or {})
        if records is None:
            records = QUICK_COMPACTED_RECORDS if self.settings.quick else COMPACTED_RECORDS
            options = ("--keys", records // TIMES_EACH)
        self.load.on_topics("fill", topic, "--topic-exists", "--records", records, *options)
        return topic

    def _is_clean(self, topic: str) -> bool:
        """Whether all that is sealed was looked at."""
        (kept,) = self.client.describe_topic(topic).partitions
        (partition,) = self.client.segments(topic)
        return kept.compacted_to == partition.segments[-1].base_offset

    def _first_segment(self, topic: str) -> str:
        (partition,) = self.client.segments(topic)
        return partition.segments[0].uuid

    def _await_passes(self, count: float) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self._passes().count < count:
            if time.monotonic() > deadline:
                raise InvalidRunError("a compaction does not end")
            threading.Event().wait(LOOK_EVERY_S)

    def _passes(self) -> _Passes:
        sums = {
            "walrus_compaction_seconds_count": 0.0,
            "walrus_compaction_seconds_sum": 0.0,
            "walrus_compacted_bytes_total": 0.0,
        }
        for node in self.cluster.nodes:
            with urllib.request.urlopen(f"http://{brokers.LOOPBACK}:{node.ports.http}/metrics", timeout=10) as answer:
                for line in answer.read().decode().splitlines():
                    name, _, value = line.partition(" ")
                    if name in sums:
                        sums[name] += float(value)
        return _Passes(*sums.values())
