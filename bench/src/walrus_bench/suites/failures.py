"""Suite `cluster`, three brokers: how long writes stand still when a leader is killed, or falls silent."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from walrus_client import Client, ProducerOptions, WalrusError
from walrus_client.dev import DevCluster, NodeState

from walrus_bench.goals import RECORD_BYTES
from walrus_bench.sampling import InvalidRunError, Sample, Subject, quantile
from walrus_bench.suites import Prepared, Settings, brokers
from walrus_bench.suites.brokers import NODES, REPLICATED

FAILURES = 4  # in each sample
RECOVERY_TIMEOUT_S = 120.0


@contextmanager
def failures(settings: Settings) -> Iterator[Prepared]:
    """Sets up three brokers whose leaders are killed or stopped while one client appends."""
    with brokers.running(settings.data_dir / "failures", nodes=NODES, options=REPLICATED) as cluster:
        times = 1 if settings.quick else FAILURES
        killed, stopped = _Gaps(cluster, "killed", _kill), _Gaps(cluster, "stopped", _freeze)
        quantiles = {"kill_to_ack_p50": 0.5, "kill_to_ack_p99": 0.99}
        subjects = [
            Subject("kill_to_ack", "walrus", "auto", partial(killed.measure, times), quantiles),
            Subject("silent_host", "walrus", "auto", partial(stopped.measure, times), {"silent_host_p99": 0.99}),
        ]
        yield Prepared(subjects, pids=brokers.pids(cluster))


@dataclass
class _Gaps:
    """Times in which nothing was acknowledged, after something was done to the leader of a topic."""

    cluster: DevCluster
    topic: str
    harm: Callable[[DevCluster, NodeState], None]

    def measure(self, times: int) -> Sample:
        """Does it a few times; the sample is their median, in seconds."""
        with Client(self.cluster.bootstrap) as client:
            client.create_topic(self.topic)
        gaps = [self._gap() for _ in range(times)]
        return Sample(quantile(gaps, 0.5), "s", {"most_s": max(gaps)}, gaps)

    def _gap(self) -> float:
        """From the harm to the first acknowledgement of a record that was sent after it."""
        victim = leader_of(self.cluster, self.topic)
        others = [node for node in self.cluster.nodes if node.name != victim.name]
        bootstrap = ",".join(f"{brokers.LOOPBACK}:{node.ports.grpc}" for node in (victim, *others))
        with _appending(bootstrap, self.topic) as appended:
            appended.wait_for_one_sent_after(time.monotonic())
            began = time.monotonic()
            self.harm(self.cluster, victim)
            gap = appended.wait_for_one_sent_after(began) - began
        self.cluster.kill(victim.name, number=signal.SIGCONT)
        self.cluster.start()
        return gap


def leader_of(cluster: DevCluster, topic: str) -> NodeState:
    """The leader of the open segment of a topic's first partition, once there is one that runs."""
    deadline = time.monotonic() + RECOVERY_TIMEOUT_S
    while time.monotonic() < deadline:
        with Client(cluster.bootstrap) as client:
            client.append(topic, [b"who leads?"], partition=0)
            leader = client.segments(topic)[0].segments[-1].leader
        for node in cluster.nodes:
            if leader is not None and node.node_id == leader.id and node.is_running():
                return node
        time.sleep(0.1)
    raise InvalidRunError(f"{topic} has no leader")


def _kill(cluster: DevCluster, victim: NodeState) -> None:
    cluster.kill(victim.name)


def _freeze(cluster: DevCluster, victim: NodeState) -> None:
    cluster.kill(victim.name, number=signal.SIGSTOP)


class _Appended:
    """When the records of one client were sent and acknowledged, one after another."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._last = (0.0, 0.0)  # sent, acknowledged
        self._failure: WalrusError | None = None

    def note(self, sent: float, acknowledged: float) -> None:
        with self._changed:
            self._last = sent, acknowledged
            self._changed.notify_all()

    def fail(self, failure: WalrusError) -> None:
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    def wait_for_one_sent_after(self, moment: float) -> float:
        """When it was acknowledged."""
        with self._changed:
            there = self._changed.wait_for(lambda: self._failure or self._last[0] > moment, RECOVERY_TIMEOUT_S)
            if self._failure is not None or not there:
                raise InvalidRunError(f"nothing was acknowledged for {RECOVERY_TIMEOUT_S:g} s: {self._failure}")
            return self._last[1]


@contextmanager
def _appending(bootstrap: str, topic: str) -> Iterator[_Appended]:
    """One client that appends a record when the one before is acknowledged; the record under way at a failure counts
    as the one before.
    """
    appended, over = _Appended(), threading.Event()

    def append() -> None:
        try:
            with Client(bootstrap) as client, client.producer(topic, options=ProducerOptions(linger_ms=0)) as producer:
                while not over.is_set():
                    under_way = time.monotonic()
                    producer.send(b"x" * RECORD_BYTES).result()
                    appended.note(under_way, time.monotonic())
        except WalrusError as failure:
            appended.fail(failure)

    thread = threading.Thread(target=append, daemon=True)
    thread.start()
    try:
        yield appended
    finally:
        over.set()
        thread.join(RECOVERY_TIMEOUT_S)
