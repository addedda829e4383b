"""Producers and followers that keep going through every fault and remember what was acknowledged and what was seen.

Each producer appends proven records (`harness.records`) to one partition, idempotently; each partition has a follower
that reads on from where it is. A record that a follower has seen may never change or vanish afterwards.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from harness.load import wait_until
from harness.records import value_of
from walrus_client import Client, errors
from walrus_client.sender import ProducerOptions

WINDOW = 64  # records in flight, for each producer
DELIVERY_TIMEOUT_MS = 300_000  # longer than any fault with its recovery, also on a busy machine
FOLLOW_WAIT_MS = 300
CATCH_UP_TIMEOUT_S = 180.0


@dataclass(frozen=True)
class Shape:
    """How much of everything. Producer *n* writes to topic and partition number *n* modulo their count."""

    topics: int = 2
    partitions: int = 2
    producers: int = 8

    def places(self) -> list[tuple[str, int]]:
        """All partitions."""
        return [(f"chaos-{topic}", partition) for topic in range(self.topics) for partition in range(self.partitions)]

    def place(self, producer: int) -> tuple[str, int]:
        """The partition that a producer writes to."""
        places = self.places()
        return places[producer % len(places)]


@dataclass
class Workload:
    """What was done so far. `acked[n]` records of producer *n* are acknowledged, from sequence 0 on."""

    shape: Shape
    acked: dict[int, int]
    seen: dict[tuple[str, int], list[int]] = field(default_factory=dict)  # hash of each value, by offset
    failures: list[BaseException] = field(default_factory=list)

    def total(self) -> int:
        """Records acknowledged."""
        return sum(self.acked.values())

    def wait_for_progress(self, timeout_s: float) -> None:
        """Waits until every producer had a whole window acknowledged that it sent after now."""
        before = dict(self.acked)

        def all_moved() -> bool:
            return bool(self.failures) or all(self.acked[n] >= before[n] + 2 * WINDOW for n in before)

        try:
            wait_until(all_moved, "writes to go on", timeout_s)
        except TimeoutError as late:
            stuck = {n: self.shape.place(n) for n in before if self.acked[n] < before[n] + 2 * WINDOW}
            raise TimeoutError(f"{late}; these producers did not move: {stuck}") from None
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raises what made a producer or a follower give up."""
        if self.failures:
            raise self.failures[0]


@contextmanager
def running(shape: Shape, bootstraps: Sequence[str]) -> Iterator[Workload]:
    """Runs the workload while the block runs. When it ends, all that was sent is acknowledged and followers caught up.

    The clients are dealt over *bootstraps*, so that each node has its share of them.
    """
    _create_topics(shape, bootstraps)
    workload = Workload(shape, dict.fromkeys(range(shape.producers), 0), {place: [] for place in shape.places()})
    written, over = threading.Event(), threading.Event()
    producers = [
        _start(_produce, workload, number, bootstraps[number % len(bootstraps)], written)
        for number in range(shape.producers)
    ]
    followers = [
        _start(_follow, workload, place, bootstraps[number % len(bootstraps)], over)
        for number, place in enumerate(shape.places())
    ]
    yield workload  # what fails here is not kept waiting for clients of a cluster that does not answer
    written.set()
    for thread in producers:
        thread.join()
    over.set()
    for thread in followers:
        thread.join()
    workload.raise_failure()


def _create_topics(shape: Shape, bootstraps: Sequence[str]) -> None:
    """Creates the topics and waits until every node has heard of them."""
    topics = {topic for topic, _ in shape.places()}
    with Client(bootstraps[0]) as client:
        for topic in sorted(topics):
            client.create_topic(topic, partitions=shape.partitions)
    for bootstrap in bootstraps:
        with Client(bootstrap) as client:
            wait_until(partial(_knows, client, topics), f"{bootstrap} to know the topics", CATCH_UP_TIMEOUT_S)


def _knows(client: Client, topics: set[str]) -> bool:
    return topics <= {topic.name for topic in client.topics()}


def _start(target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread


def _produce(workload: Workload, number: int, bootstrap: str, written: threading.Event) -> None:
    topic, partition = workload.shape.place(number)
    options = ProducerOptions(linger_ms=1, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
    try:
        with Client(bootstrap) as client, client.producer(topic, options=options) as producer:
            while not written.is_set():
                first = workload.acked[number]
                values = (value_of(number, sequence) for sequence in range(first, first + WINDOW))
                for delivery in [producer.send(value, partition=partition) for value in values]:
                    delivery.result()
                workload.acked[number] = first + WINDOW
    except Exception as failure:
        workload.failures.append(failure)


def _follow(workload: Workload, place: tuple[str, int], bootstrap: str, over: threading.Event) -> None:
    """Reads on until it has read to the end once after *over*."""
    topic, partition = place
    seen = workload.seen[place]
    deadline = float("inf")
    try:
        with Client(bootstrap) as client:
            while True:
                last_round = over.is_set()
                if last_round:
                    deadline = min(deadline, time.monotonic() + CATCH_UP_TIMEOUT_S)
                try:
                    for record in client.read(topic, partition=partition, offset=len(seen), wait_ms=FOLLOW_WAIT_MS):
                        if record.offset != len(seen):
                            raise AssertionError(
                                f"{topic}/{partition}: offset {record.offset} came after {len(seen) - 1}"
                            )
                        seen.append(hash(record.value))
                except errors.RetryableError:
                    if time.monotonic() > deadline:
                        raise
                    continue
                if last_round:
                    return
    except Exception as failure:
        workload.failures.append(failure)
