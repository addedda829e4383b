"""Suite `topics`: three brokers with ten thousand topics."""

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from walrus_client.admin import AdminClient
from walrus_client.dev import DevCluster, DevError

from walrus_bench.sampling import InvalidRunError, Sample, Subject
from walrus_bench.suites import Prepared, Settings, brokers
from walrus_bench.suites.cluster import IDLE_MIN_S, QUIET_S, idle_cpu
from walrus_bench.suites.load import Load
from walrus_bench.suites.metadata import commit_p50

NAME = "topic"  # the first part of the names of all
TOPICS, QUICK_TOPICS = 10_000, 200
FEW_TOPICS = 10  # what a command costs is compared with that of a cluster that has so many
REQUESTS_IN_FLIGHT = 64
CREATIONS_PER_SECOND = 100_000  # the limit on creations is no limit here


@contextmanager
def ten_thousand(settings: Settings) -> Iterator[Prepared]:
    """Sets up three brokers with a few topics; the first subject makes the others, which stay."""
    with brokers.running(settings.data_dir / "topics", nodes=brokers.NODES, options=brokers.REPLICATED) as cluster:
        crowd = _Crowd(cluster, settings)
        crowd.prepare()
        subjects = [
            Subject("topics_10k_create_s", "walrus", "auto", crowd.create, rounds_max=1),
            Subject("topic_bytes", "walrus", "auto", crowd.bytes_of_each, rounds_max=1),
            Subject("topics_10k_idle", "walrus", "auto", crowd.idle),
            Subject("metadata_commit_growth", "walrus", "auto", crowd.commit_growth),
            Subject("topics_10k_restart_s", "walrus", "auto", crowd.restart),
        ]
        yield Prepared(subjects, pids=brokers.pids(cluster))


@dataclass
class _Crowd:
    """Many topics on a cluster, and what was measured before they were there."""

    cluster: DevCluster
    settings: Settings
    load: Load = field(init=False)
    few_commit_ms: float = 0.0
    few_bytes: Sequence[int] = ()
    is_complete: bool = False

    def __post_init__(self) -> None:
        self.load = Load(self.cluster, self.settings.seconds)

    @property
    def topics(self) -> int:
        return QUICK_TOPICS if self.settings.quick else TOPICS

    def prepare(self) -> None:
        """Makes the few topics, and measures what a command and the processes take with them."""
        admin = f"{brokers.LOOPBACK}:{self.cluster.nodes[0].ports.admin}"
        with AdminClient(admin, secret_file=self.cluster.secret_file) as client:
            client.set_config({"topics.creations_per_second_max": CREATIONS_PER_SECOND})
        self._make(0, FEW_TOPICS)
        self.few_commit_ms = self._commit_ms()
        self.few_bytes = [memory_bytes(pid) for pid in brokers.pids(self.cluster)]

    def create(self) -> Sample:
        """Seconds until all topics are made, and some of them answer an append and a read."""
        self.is_complete = True
        return self._make(FEW_TOPICS, self.topics - FEW_TOPICS)

    def bytes_of_each(self) -> Sample:
        """What a topic takes of the memory of a node, of the one where it takes most."""
        self._settle()
        now = [memory_bytes(pid) for pid in brokers.pids(self.cluster)]
        made = self.topics - FEW_TOPICS
        each = [(after - before) / made for before, after in zip(self.few_bytes, now, strict=True)]
        return Sample(max(each), "B/topic", {"rss_mb_max": max(now) / 1e6})

    def idle(self) -> Sample:
        """CPU of all nodes, which nobody asks for anything."""
        self._settle()
        seconds = self.settings.seconds if self.settings.quick else max(self.settings.seconds, IDLE_MIN_S)
        return idle_cpu(brokers.pids(self.cluster), seconds)

    def commit_growth(self) -> Sample:
        """What a command takes with all topics, over what it took with few."""
        self._settle()
        commit_ms = self._commit_ms()
        return Sample(commit_ms / self.few_commit_ms, "x", {"ms": commit_ms, "few_ms": self.few_commit_ms})

    def restart(self) -> Sample:
        """Seconds from the start of a node until some topics answer an append and a read there."""
        self._settle()
        node = self.cluster.nodes[0]
        self.cluster.stop([node.name])
        failed: list[DevError] = []
        start = threading.Thread(target=partial(self._start, node.name, failed), daemon=True)
        start.start()
        sample = self.load.on_topics("topics_answer", NAME, "--topics", self.topics)
        start.join()
        if failed:
            raise InvalidRunError(f"{node.name} did not start: {failed[0]}") from failed[0]
        return sample

    def _start(self, name: str, failed: list[DevError]) -> None:
        try:
            self.cluster.start([name])
        except DevError as error:
            failed.append(error)

    def _make(self, first: int, topics: int) -> Sample:
        options = ("--first", first, "--topics", topics, "--in-flight", REQUESTS_IN_FLIGHT)
        return self.load.on_topics("create_topics", NAME, *options)

    def _commit_ms(self) -> float:
        seconds = max(self.settings.seconds, 1.0)
        return statistics.median(commit_p50(self.cluster, seconds).value for _ in range(3))

    def _settle(self) -> None:
        """Makes the topics, should nobody have asked for the time that takes, and rests."""
        if not self.is_complete:
            self.create()
        if not self.settings.quick:
            time.sleep(QUIET_S)


def memory_bytes(pid: int) -> int:
    """Resident memory of a process. Raises InvalidRunError where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        lines = []
    for line in lines:
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise InvalidRunError(f"process {pid} has ended")
