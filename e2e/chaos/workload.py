"""Producers and followers that keep going through every fault and remember what was acknowledged and what was seen.

Each producer appends proven records (`harness.records`) to one partition, idempotently; each partition has a follower
that reads on from where it is. A record that a follower has seen may never change or vanish afterwards. One more topic
is read over the text protocol, by a reader whose place the cluster keeps. Two more are written by clients of Kafka, and
read by groups of them (`kafka`, `groups`). All of them can be told to pause.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from harness.records import identity_of, value_of
from harness.waiting import wait_until
from walrus_client import Client, errors
from walrus_client.sender import ProducerOptions
from walrus_client.text import TextClient

from chaos import groups, kafka
from chaos.client_threads import start
from chaos.cursor import COMMITTED, CONNECTED
from chaos.emptiness import EmptyClaims
from chaos.gate import Gate
from chaos.group_verdict import GroupVerdict

WINDOW = 64  # records in flight, for each producer
DELIVERY_TIMEOUT_MS = 300_000  # longer than any fault with its recovery, also on a busy machine
FOLLOW_WAIT_MS = 300
CATCH_UP_TIMEOUT_S = 180.0
CURSOR_TOPIC = "chaos-cursor"
CURSOR_LEAD = 1_024  # records that the producer of the cursor's topic may be ahead of its reader
CURSOR_BURST = 256  # records of that topic between two times that its reader is told that there are no more
BURST_S = 1.0  # a reader that is told nothing for so long is not waited for: a node that wakes up finds new records
COMMIT_EVERY = 8
TEXT_TIMEOUT_S = 10.0  # so long the reader of the cursor, and its producer, hang on a node that is paused
RETRY_S = 0.1
BURST_LOOK_S = 0.02

Place = tuple[str, int]  # a topic and its partition


@dataclass(frozen=True)
class Shape:
    """How much of everything at the start. Producer *n* writes to topic and partition number *n* modulo their count;
    one more to the topic of the cursor. Those behind it are clients of Kafka.
    """

    topics: int = 2
    partitions: int = 2
    producers: int = 8

    def places(self) -> list[Place]:
        """All partitions."""
        return [(f"chaos-{topic}", partition) for topic in range(self.topics) for partition in range(self.partitions)]

    def kafka_places(self) -> list[Place]:
        """The partitions that clients of Kafka write, one producer each, and groups of them read."""
        return [(topic, partition) for topic in kafka.TOPICS for partition in range(self.partitions)]


@dataclass
class Workload:
    """What was done so far. `acked[n]` records of producer *n* are acknowledged, from sequence 0 on."""

    shape: Shape
    acked: dict[int, int] = field(default_factory=dict)
    place_of: dict[int, Place] = field(default_factory=dict)  # where each producer writes
    going: set[int] = field(default_factory=set)  # producers that are not told to end
    places: list[Place] = field(default_factory=list)  # all that is read, asked for and judged, but the cursor's
    seen: dict[Place, list[int]] = field(default_factory=dict)  # hash of each value, by offset
    cursor: list[int] = field(default_factory=list)  # sequences that its reader was handed, and its commits
    handed: set[int] = field(default_factory=set)  # the same, each once
    taken: int = 0  # records that the reader of the cursor was handed, those that came again included
    emptiness: EmptyClaims = field(default_factory=EmptyClaims)
    groups: list[GroupVerdict] = field(default_factory=list)  # consumers of Kafka, which go on until all is given
    gate: Gate = field(
        default_factory=Gate
    )  # where all producers, members of groups and the reader of the cursor pause
    refusals: Counter[str] = field(default_factory=Counter)  # reads refused with errors that are final to clients
    failures: list[BaseException] = field(default_factory=list)

    def total(self) -> int:
        """Records acknowledged."""
        return sum(self.acked.values())

    def end_of(self, place: Place) -> int:
        """Number of records acknowledged in a partition."""
        return sum(count for number, count in self.acked.items() if self.place_of[number] == place)

    def wait_for_progress(
        self, timeout_s: float, *, meanwhile: Callable[[], None] = lambda: None, of_kafka: bool = False
    ) -> str:
        """Waits until every producer had a whole window acknowledged that it sent after now, and the cursor moved.

        With *of_kafka* also those of Kafka's clients, and until each group of theirs was given something: a client of
        Kafka may stay with a node that is cut off from all others and believe what that one knows.

        *meanwhile* is called again and again. Says who came last.
        """
        known = {place for place in self.places if of_kafka or place[0] not in kafka.TOPICS} | {(CURSOR_TOPIC, 0)}
        before = {number: self.acked[number] for number in self.going if self.place_of[number] in known}
        taken = self.taken
        given = {group.name: group.total() for group in self.groups if of_kafka}
        last: list[str] = []

        def stuck() -> list[str]:
            producers = [n for n in before if self.acked[n] < before[n] + 2 * WINDOW]
            waiting = [f"producer {n} of {self.place_of[n]}, {self.acked[n]} acknowledged" for n in producers]
            is_held_up = self.shape.producers in producers or self.taken <= taken
            behind = [group for group in self.groups if group.total() <= given.get(group.name, -1)]
            waiting += [f"group {group.name}, given {group.total()}" for group in behind]
            return [*waiting, *([f"the reader of the cursor, handed {self.taken}"] if is_held_up else [])]

        def is_over() -> bool:
            nonlocal last
            meanwhile()
            waiting = stuck()
            last = waiting or last
            return bool(self.failures) or not waiting

        try:
            wait_until("writes to go on", is_over, timeout_s=timeout_s)
        except TimeoutError as late:
            raise TimeoutError(f"{late}; did not move: {', '.join(last)}") from None
        self.raise_failure()
        return ", ".join(last)

    def raise_failure(self) -> None:
        """Raises what made a producer or a follower give up."""
        if self.failures:
            raise self.failures[0]


class Crew:
    """The threads of a workload, one for each producer and for each reader."""

    def __init__(self, shape: Shape, bootstraps: Sequence[str], kafkas: Sequence[str]) -> None:
        """The clients are dealt over *bootstraps*, and *kafkas* for those of Kafka, so that each node has its share."""
        places = shape.places()
        self.workload = Workload(shape)
        self._bootstraps, self._kafkas = bootstraps, kafkas
        self._over = threading.Event()
        self._producers: dict[int, tuple[threading.Thread, threading.Event]] = {}
        self._readers: list[threading.Thread] = []
        for number in range(shape.producers + 1):
            self.produce(places[number % len(places)] if number < shape.producers else (CURSOR_TOPIC, 0))
        for place in shape.kafka_places():
            self.produce(place, by_kafka=True)
        for place in [*places, *shape.kafka_places()]:
            self.follow(place)

    def produce(self, place: Place, gate: Gate | None = None, *, by_kafka: bool = False) -> int:
        """One more producer, which pauses at *gate*, else with all others; gives its number."""
        number = len(self.workload.acked)
        self.workload.place_of[number] = place
        self.workload.acked[number] = 0
        self.workload.going.add(number)
        gate, written = gate or self.workload.gate, threading.Event()
        if by_kafka:
            failures, acked = self.workload.failures, self.workload.acked
            thread = start(failures, kafka.produce, acked, number, place, self._kafka(number), gate, written)
        else:
            thread = _start(_produce, self.workload, number, self._bootstrap(number), gate, written)
        self._producers[number] = thread, written
        return number

    def retire(self, number: int) -> None:
        """A producer ends; returns when all that it sent is acknowledged."""
        self.workload.going.discard(number)
        thread, written = self._producers[number]
        written.set()
        thread.join()

    def follow(self, place: Place) -> None:
        """From now on a partition is read, asked for, judged, and what its producers write must go on."""
        number = len(self.workload.places)
        self.workload.seen[place] = []
        self.workload.places.append(place)
        self._readers.append(_start(_follow, self.workload, place, self._bootstrap(number), self._over))

    def follow_cursor(self, texts: Sequence[str]) -> None:
        """The reader of the cursor; *texts* are the addresses of the text protocol."""
        self._readers.append(_start(_follow_cursor, self.workload, texts, self._over))

    def consume_in_groups(self) -> None:
        """Groups of Kafka's consumers, and somebody who asks what each has committed."""
        places = self.workload.shape.kafka_places()
        failures, gate = self.workload.failures, self.workload.gate

        def ends() -> dict[Place, int]:
            return {place: self.workload.end_of(place) for place in places}

        for name in groups.STRATEGIES:
            group = GroupVerdict(name)
            self.workload.groups.append(group)
            for number in range(groups.MEMBERS):
                target = groups.consume
                self._readers.append(
                    start(failures, target, group, number, self._kafka(number), gate, self._over, ends)
                )
            self._readers.append(start(failures, groups.watch, group, places, self._kafka(0), self._over))

    def join(self) -> None:
        """Returns when all that was sent is acknowledged and read. Raises what made somebody give up."""
        for _, written in self._producers.values():
            written.set()
        for number in self._producers:
            self.retire(number)
        self._over.set()
        for thread in self._readers:
            thread.join()
        self.workload.raise_failure()
        for group in self.workload.groups:
            group.check_whole({place: self.workload.end_of(place) for place in self.workload.shape.kafka_places()})

    def _kafka(self, number: int) -> str:
        return self._kafkas[number % len(self._kafkas)]

    def _bootstrap(self, number: int) -> str:
        return self._bootstraps[number % len(self._bootstraps)]


@contextmanager
def running(shape: Shape, bootstraps: Sequence[str], texts: Sequence[str], kafkas: Sequence[str]) -> Iterator[Crew]:
    """Runs a workload while the block runs. When it ends, all that was sent is acknowledged and followers caught up."""
    _create_topics(shape, bootstraps)
    crew = Crew(shape, bootstraps, kafkas)
    crew.follow_cursor(texts)
    crew.consume_in_groups()
    yield crew  # what fails here is not kept waiting for clients of a cluster that does not answer
    crew.join()


def _create_topics(shape: Shape, bootstraps: Sequence[str]) -> None:
    """Creates the topics and waits until every node has heard of them."""
    plain: dict[str, dict[str, str]] = {topic: {} for topic, _ in shape.places()}
    topics = plain | kafka.TOPICS
    with Client(bootstraps[0]) as client:
        for topic, config in topics.items():
            client.create_topic(topic, partitions=shape.partitions, config=config)
        client.create_topic(CURSOR_TOPIC)
    for bootstrap in bootstraps:
        with Client(bootstrap) as client:
            wait_until(
                f"{bootstrap} to know the topics",
                partial(_knows, client, {*topics, CURSOR_TOPIC}),
                timeout_s=CATCH_UP_TIMEOUT_S,
            )


def _knows(client: Client, topics: set[str]) -> bool:
    return topics <= {topic.name for topic in client.topics()}


def _start(target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread


class Burst:
    """When the producer of the cursor's topic writes, so that its reader comes to the end again and again."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._begun, self._told, self._since_s = 0, 0, 0.0

    def goes_on(self, first: int, now_s: float) -> bool:
        """Whether the records from *first* on are written now."""
        told = self._workload.emptiness.final
        if first >= self._begun + CURSOR_BURST:
            if told == self._told and now_s < self._since_s + BURST_S:
                return False
            self._begun, self._told, self._since_s = first, told, now_s
        return first <= self._workload.taken + CURSOR_LEAD


def _produce(workload: Workload, number: int, bootstrap: str, gate: Gate, written: threading.Event) -> None:
    topic, partition = workload.place_of[number]
    chance = random.Random()  # what is in the values need not come again
    options = ProducerOptions(linger_ms=1, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
    burst = Burst(workload)
    try:
        with gate.entered(), Client(bootstrap) as client, client.producer(topic, options=options) as producer:
            while not written.is_set():
                gate.passed(written)
                first = workload.acked[number]
                window = range(first, first + WINDOW)
                values = [value_of(number, sequence, random=chance.getrandbits(64)) for sequence in window]
                if topic == CURSOR_TOPIC:
                    values = [value.hex().encode() for value in values]  # the text protocol carries text
                    if not burst.goes_on(first, time.monotonic()) and not written.wait(BURST_LOOK_S):
                        continue
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
                except errors.RejectedError as refusal:  # the topic is there, and so is everything up to this offset
                    workload.refusals[type(refusal).__name__] += 1
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(RETRY_S)
                    continue
                if last_round:
                    return
    except Exception as failure:
        workload.failures.append(failure)


def _follow_cursor(workload: Workload, addresses: Sequence[str], over: threading.Event) -> None:
    """Takes record after record, and commits now and then, until after *over* it has all, and has heard that it has."""
    deadline, turn = float("inf"), 0
    try:
        with workload.gate.entered():
            while not (over.is_set() and has_heard_the_end(workload)):
                if over.is_set():
                    deadline = min(deadline, time.monotonic() + CATCH_UP_TIMEOUT_S)
                if time.monotonic() > deadline:
                    raise TimeoutError("the reader of the cursor did not get all records")
                address = addresses[turn % len(addresses)]
                try:
                    with TextClient(address, timeout_s=TEXT_TIMEOUT_S) as client:
                        _take(workload, client, over)
                except errors.Unavailable:
                    over.wait(RETRY_S)
                workload.emptiness.has_ended(time.monotonic())
                turn += 1
    except Exception as failure:
        workload.failures.append(failure)


def _take(workload: Workload, client: TextClient, over: threading.Event) -> None:
    """Until an answer is an error, or the end was heard. A node that is cut off must not say EMPTY for ever."""
    workload.cursor.append(CONNECTED)
    while not (over.is_set() and has_heard_the_end(workload)):
        workload.gate.passed(over)
        known = workload.acked[workload.shape.producers]
        answer = client.request(f"GET {CURSOR_TOPIC}")
        if answer.startswith("OK "):
            identity = identity_of(bytes.fromhex(answer.removeprefix("OK ")))
            if identity is None:
                raise AssertionError(f"GET answered what nobody put there: {answer!r}")
            workload.cursor.append(identity[1])
            workload.handed.add(identity[1])
            workload.taken += 1
            if identity[1] % COMMIT_EVERY == 0:
                if not client.request("COMMIT").startswith("OK"):
                    return
                workload.cursor.append(COMMITTED)
        elif answer == "EMPTY":
            workload.emptiness.check(client.address, known, workload.handed, time.monotonic())
            if workload.acked[workload.shape.producers] == known:  # else it is asked at once whether it knows of more
                time.sleep(RETRY_S)
        else:
            time.sleep(RETRY_S)
            return


def has_heard_the_end(workload: Workload) -> bool:
    """Whether all was handed out and EMPTY was claimed: a run without any such claim would prove nothing."""
    is_judged = bool(workload.emptiness) or bool(workload.emptiness.false)
    return is_judged and workload.handed.issuperset(range(workload.acked[workload.shape.producers]))
