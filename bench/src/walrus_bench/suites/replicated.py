"""Suite `cluster`, three brokers: how long writes stand still when a leader is killed, or falls silent."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from walrus_client import Client, ProducerOptions, WalrusError
from walrus_client.dev import DevCluster, NodeOptions, NodeState

from walrus_bench.goals import RECORD_BYTES
from walrus_bench.sampling import InvalidRunError, Sample, Subject
from walrus_bench.suites import Prepared, Settings, brokers

NODES, WRITE_QUORUM = 3, 2
REPLICATED = NodeOptions(replication_factor=NODES, write_quorum=WRITE_QUORUM)
KILLS = 4  # in each sample
RECOVERY_TIMEOUT_S = 120.0


@contextmanager
def failures(settings: Settings) -> Iterator[Prepared]:
    """Sets up three brokers whose leaders are killed or stopped while one client appends."""
    with brokers.running(settings.data_dir / "failures", nodes=NODES, options=REPLICATED) as cluster:
        kills = 1 if settings.quick else KILLS
        killed, stopped = _Gaps(cluster, "killed"), _Gaps(cluster, "stopped")
        subjects = [
            Subject("kill_to_ack_p50", "walrus", "auto", partial(killed.more, kills, _kill, 0.5)),
            Subject("kill_to_ack_p99", "walrus", "auto", partial(killed.more, kills, _kill, 0.99)),
            Subject("silent_host_p99", "walrus", "auto", partial(stopped.more, kills, _freeze, 0.99)),
        ]
        yield Prepared(subjects, pids=brokers.pids(cluster))


@dataclass
class _Gaps:
    """Times in which nothing was acknowledged, after something was done to the leader of a topic."""

    cluster: DevCluster
    topic: str
    seconds: list[float] = field(default_factory=list)

    def more(self, times: int, harm: Callable[[DevCluster, NodeState], None], quantile: float) -> Sample:
        """Does it a few more times; the sample is a quantile of all times so far."""
        with Client(self.cluster.bootstrap) as client:
            client.create_topic(self.topic)
        for _ in range(times):
            self.seconds.append(self._gap(harm))
        value = _quantile(self.seconds, quantile)
        return Sample(value, "s", {"times": len(self.seconds), "most": max(self.seconds)})

    def _gap(self, harm: Callable[[DevCluster, NodeState], None]) -> float:
        """From the harm to the first acknowledgement of a record that was sent after it."""
        victim = self._leader()
        others = [node for node in self.cluster.nodes if node.name != victim.name]
        bootstrap = ",".join(f"{brokers.LOOPBACK}:{node.ports.grpc}" for node in (victim, *others))
        with _appending(bootstrap, self.topic) as appended:
            appended.wait_for_one_sent_after(time.monotonic())
            began = time.monotonic()
            harm(self.cluster, victim)
            gap = appended.wait_for_one_sent_after(began) - began
        self.cluster.kill(victim.name, number=signal.SIGCONT)
        self.cluster.start()
        return gap

    def _leader(self) -> NodeState:
        """The leader of the open segment, once there is one that runs."""
        deadline = time.monotonic() + RECOVERY_TIMEOUT_S
        while time.monotonic() < deadline:
            with Client(self.cluster.bootstrap) as client:
                client.append(self.topic, [b"who leads?"])
                leader = client.segments(self.topic)[0].segments[-1].leader
            for node in self.cluster.nodes:
                if leader is not None and node.node_id == leader.id and node.is_running():
                    return node
            time.sleep(0.1)
        raise InvalidRunError(f"{self.topic} has no leader")


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


def _quantile(values: Sequence[float], quantile: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)]
