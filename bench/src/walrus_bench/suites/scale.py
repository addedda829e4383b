"""Suite `scale`: what a cluster costs as it grows, one point of a curve after the other."""

import itertools
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from walrus_client import Client
from walrus_client.admin import AdminClient
from walrus_client.dev import DevCluster, NodeOptions, NodeState

from walrus_bench.sampling import InvalidRunError, Sample, Subject
from walrus_bench.suites import Phase, Prepared, Settings, brokers
from walrus_bench.suites.cluster import IDLE_MIN_S, idle_cpu
from walrus_bench.suites.failures import leader_of
from walrus_bench.suites.topics import memory_bytes

NODES = (3, 5, 9)
PARTITIONS = (10, 100, 1_000, 10_000, 30_000)
CONNECTIONS = (10, 100, 1_000)
ROLLING_TOPICS = (1, 4, 16)
QUICK_MOST = 100  # partitions and connections of a quick run

FEW_PARTITIONS = 30  # where nodes are counted
TOPIC_PARTITIONS_MAX = 10_000
QUIET_S = 5.0
PATIENCE_S = 120.0
LOOK_EVERY_S = 0.02
ASKED = 20  # partitions that must answer before a node counts as started


@dataclass(frozen=True)
class Point:
    """One point of the curves: how many of what."""

    axis: str
    size: int

    def subject(self, figure: str, measure: Callable[[], Sample]) -> Subject:
        """The measurement of a figure at this point."""
        return Subject(f"scale_{self.axis}_{figure}", "walrus", str(self.size), measure, rounds_max=1)


def points() -> Sequence[Phase]:
    """All points, each a phase of its own: what runs beside another is measured with it."""
    nodes = [(Point("nodes", size), _of_nodes) for size in NODES]
    partitions = [(Point("partitions", size), _of_partitions) for size in PARTITIONS]
    rolls = [(Point("rolls", size), _of_rolls) for size in ROLLING_TOPICS]
    connections = [(Point("connections", size), _of_connections) for size in CONNECTIONS]
    return [_phase(point, prepare) for point, prepare in itertools.chain(nodes, partitions, rolls, connections)]


def _phase(
    point: Point, prepare: Callable[[Point, Settings, ExitStack], tuple[DevCluster, list[Subject]]]
) -> Callable[[Settings], AbstractContextManager[Prepared]]:
    @contextmanager
    def phase(settings: Settings) -> Iterator[Prepared]:
        with ExitStack() as stack:
            cluster, subjects = prepare(point, settings, stack)
            yield Prepared(subjects, pids=brokers.pids(cluster))

    phase.__name__ = f"{point.axis}_{point.size}"
    return phase


def _of_nodes(point: Point, settings: Settings, stack: ExitStack) -> tuple[DevCluster, list[Subject]]:
    cluster = _running(point, settings, stack, nodes=point.size, partitions=FEW_PARTITIONS)
    return cluster, _usual(point, cluster, settings)


def _of_partitions(point: Point, settings: Settings, stack: ExitStack) -> tuple[DevCluster, list[Subject]]:
    size = min(point.size, QUICK_MOST) if settings.quick else point.size
    cluster = _running(point, settings, stack, nodes=brokers.NODES, partitions=size)
    return cluster, _usual(point, cluster, settings)


def _of_connections(point: Point, settings: Settings, stack: ExitStack) -> tuple[DevCluster, list[Subject]]:
    size = min(point.size, QUICK_MOST) if settings.quick else point.size
    cluster = _running(point, settings, stack, nodes=brokers.NODES, partitions=FEW_PARTITIONS)
    before = sum(map(memory_bytes, brokers.pids(cluster)))
    for number in range(size):
        node = cluster.nodes[number % len(cluster.nodes)]
        stack.enter_context(socket.create_connection((brokers.LOOPBACK, node.ports.text), timeout=PATIENCE_S))

    def bytes_of_each() -> Sample:
        grown = sum(map(memory_bytes, brokers.pids(cluster))) - before
        return Sample(grown / size / 1e3, "kB")

    return cluster, [point.subject("kb_each", bytes_of_each), point.subject("idle", partial(_idle, cluster, settings))]


def _of_rolls(point: Point, settings: Settings, stack: ExitStack) -> tuple[DevCluster, list[Subject]]:
    """Every append ends a segment, in so many topics at the same time."""
    cluster = _running(point, settings, stack, nodes=brokers.NODES, partitions=1)
    with AdminClient(cluster.admin_addresses, secret_file=cluster.secret_file) as admin:
        admin.set_config({"segments.min_age_ms": 0, "segments.rolls_per_second_max": 1_000_000})
    names = [f"rolling-{number}" for number in range(point.size)]
    with Client(cluster.bootstrap) as client:
        for name in names:
            client.create_topic(name, config={"walrus.segment.entries": 1})

    def rolls_per_second() -> Sample:
        began, commands = time.monotonic(), _metadata_version(cluster)
        ends = began + max(settings.seconds, 1.0)
        counts = [0] * len(names)

        def roll(number: int, name: str) -> None:
            with Client(cluster.bootstrap) as client:
                while time.monotonic() < ends:
                    client.append(name, [b"x"])
                    counts[number] += 1

        threads = [threading.Thread(target=roll, args=each, daemon=True) for each in enumerate(names)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        rolls = sum(counts)
        commands = _metadata_version(cluster) - commands
        return Sample(rolls / (time.monotonic() - began), "1/s", {"commands_per_roll": commands / max(rolls, 1)})

    return cluster, [point.subject("a_second", rolls_per_second)]


def _running(point: Point, settings: Settings, stack: ExitStack, *, nodes: int, partitions: int) -> DevCluster:
    """A cluster with a topic of so many partitions, of three copies each, that has come to rest."""
    directory = settings.data_dir / f"{point.axis}-{point.size}"
    options = NodeOptions(replication_factor=brokers.NODES, write_quorum=2)
    cluster = stack.enter_context(brokers.running(directory, nodes=nodes, options=options))
    with AdminClient(cluster.admin_addresses, secret_file=cluster.secret_file) as admin:
        admin.set_config({"topics.creations_per_second_max": 100_000})
    with Client(cluster.bootstrap) as client:
        for number, left in enumerate(range(partitions, 0, -TOPIC_PARTITIONS_MAX)):
            client.create_topic(f"scale-{number}", partitions=min(left, TOPIC_PARTITIONS_MAX))
        for partition in range(min(ASKED, partitions)):
            client.append("scale-0", [b"x"], partition=partition)
    if not settings.quick:
        time.sleep(QUIET_S)
    return cluster


def _usual(point: Point, cluster: DevCluster, settings: Settings) -> list[Subject]:
    return [
        point.subject("idle", partial(_idle, cluster, settings)),
        point.subject("memory", partial(_memory, cluster)),
        point.subject("commands", partial(_commands, cluster, settings)),
        point.subject("failover", partial(_failover, cluster)),
        point.subject("start", partial(_start, cluster)),
    ]


def _idle(cluster: DevCluster, settings: Settings) -> Sample:
    """CPU of all nodes together, which nobody asks for anything."""
    return idle_cpu(brokers.pids(cluster), settings.seconds if settings.quick else max(settings.seconds, IDLE_MIN_S))


def _memory(cluster: DevCluster) -> Sample:
    """Resident memory of the node that has most."""
    return Sample(max(map(memory_bytes, brokers.pids(cluster))) / 1e6, "MB")


def _commands(cluster: DevCluster, settings: Settings) -> Sample:
    """Commands of the metadata in a second, while nobody asks for anything."""
    seconds = settings.seconds if settings.quick else 10.0
    before, began = _metadata_version(cluster), time.monotonic()
    threading.Event().wait(seconds)
    return Sample((_metadata_version(cluster) - before) / (time.monotonic() - began), "1/s")


def _failover(cluster: DevCluster) -> Sample:
    """Seconds from the kill of a node until each of some partitions that it led takes an append."""
    victim = leader_of(cluster, "scale-0")
    others = [node for node in cluster.nodes if node.name != victim.name]
    bootstrap = ",".join(f"{brokers.LOOPBACK}:{node.ports.grpc}" for node in others)
    with Client(bootstrap) as client:
        led = [
            partition.partition
            for partition in client.segments("scale-0")
            if (leader := partition.segments[-1].leader) is not None and leader.id == victim.node_id
        ]
        cluster.kill(victim.name)
        began = time.monotonic()
        for partition in led[:ASKED]:
            client.append("scale-0", [b"x"], partition=partition)
        seconds = time.monotonic() - began
    cluster.start([victim.name])
    return Sample(seconds, "s", {"led": len(led)})


def _start(cluster: DevCluster) -> Sample:
    """Seconds from the start of a node until it is ready and answers appends to some partitions."""
    node = cluster.nodes[0]
    cluster.stop([node.name])
    began = time.monotonic()
    cluster.start([node.name])
    with Client(f"{brokers.LOOPBACK}:{node.ports.grpc}") as client:
        # A listing of all segments waits until each end is known; appends to these partitions wait for these only.
        partitions = next(topic.partitions for topic in client.topics() if topic.name == "scale-0")
        for partition in range(min(ASKED, partitions)):
            client.append("scale-0", [b"x"], partition=partition)
    return Sample(time.monotonic() - began, "s")


def _metadata_version(cluster: DevCluster) -> int:
    """How many commands have changed the metadata, as a node tells."""
    return int(_metrics(cluster.nodes[0])["metadata_version"])


def _metrics(node: NodeState) -> dict[str, int]:
    """The answer to METRICS of the text protocol."""
    command = b"METRICS"
    with socket.create_connection((brokers.LOOPBACK, node.ports.text), timeout=PATIENCE_S) as connection:
        connection.sendall(struct.pack("<I", len(command)) + command)
        with connection.makefile("rb") as answers:
            (length,) = struct.unpack("<I", answers.read(4))
            answer = answers.read(length).decode()
    try:
        found: dict[str, int] = json.loads(answer.removeprefix("OK "))
    except ValueError as error:
        raise InvalidRunError(f"{node.name} answers METRICS with {answer[:100]!r}") from error
    return found
