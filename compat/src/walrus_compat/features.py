"""The features, the rows of the table. Each is a function that raises `Broken` with what is not as it should be.

Those of `EACH` are tried with one client after the other. Those of `TOGETHER` do something to the cluster while a few
clients produce and read, each in topics of its own.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import walrus_client

from walrus_compat import verdict
from walrus_compat.clients import Client, Mode
from walrus_compat.driver import Driver, DriverError, acked, problems, read
from walrus_compat.stage import Stage

SOON_S, LONG_S = 60.0, 120.0
LOOK_S = 0.5  # between two looks at what the cluster does
# Records older than a week would go, where a topic has Kafka's defaults; these are an hour old.
HOUR_MS = 3_600_000


class Broken(Exception):  # noqa: N818 - a finding, not a failure of the program
    """A feature does not work as it should."""


@dataclass(frozen=True, slots=True)
class Each:
    """A feature that is tried with one client."""

    name: str
    what: str
    run: Callable[[Stage, Client], None]
    is_quick: bool = False


@dataclass(frozen=True, slots=True)
class Together:
    """Something that happens while a few clients produce and read; `config` are the settings of their topics.

    It is worth something only if the leader of each topic has changed so often that there were `leads_min` of them.
    """

    name: str
    what: str
    happens: Callable[[Stage, Sequence[str]], None]
    leads_min: int
    config: dict[str, str | int | bool] = field(default_factory=dict)
    is_quick: bool = False


Feature = Each | Together


def check(is_so: bool, what: str) -> None:
    """Raise `Broken` where something does not hold."""
    if not is_so:
        raise Broken(what)


def produced(stage: Stage, client: Client, topic: str, **spec: Any) -> dict[int, int]:
    """Have a client produce so many records, all of which must be acknowledged; return their offsets."""
    given = {"producer": "p", "acks": -1, "idempotent": int(client.modes[0].idempotent), "codec": "none", **spec}
    with stage.drive(client, "produce", topic, **given) as driver:
        events = driver.finish()
    found = acked(events)
    check(not problems(events), f"the producer was told {problems(events)}")
    check(len(found) == given["count"], f"{len(found)} of {given['count']} were acknowledged")
    return found


def consumed(stage: Stage, client: Client, topic: str, begin: str, count: int) -> list[dict[str, Any]]:
    """Have a client read so many records from a place on."""
    with stage.drive(client, "consume", topic, from_=begin, count=count) as driver:
        events = driver.finish()
    check(not problems(events), f"the reader was told {problems(events)}")
    return read(events)


def codecs(stage: Stage, client: Client) -> None:
    """Records of each codec, with and without keys, values and headers, come back as they were sent."""
    began_ms = int(time.time() * 1_000) - HOUR_MS
    for codec in client.codecs:
        topic = stage.topic("codec")
        offsets = produced(stage, client, topic, codec=codec, count=60, mixed=1, time_ms=began_ms)
        check(offsets == {number: number for number in range(60)}, f"{codec}: the offsets are {offsets}")
        for number, record in enumerate(consumed(stage, client, topic, "earliest", 60)):
            found = tuple(record[name] for name in ("read", "key", "value", "headers", "time_ms"))
            expected = (
                number,
                None if number % 3 == 0 else f"key {number}",
                None if number % 5 == 0 and number % 3 else f"p {number} ",
                [["first", "1"], ["second", "2"]] if number % 2 else [],
                began_ms + number,
            )
            check(found == expected, f"{codec}: {found} came back for {expected}")


def sizes(stage: Stage, client: Client) -> None:
    """Records of up to a million bytes are taken; one beyond the topic's limit is refused, and the next one is not."""
    topic = stage.topic("size", {"max.message.bytes": 1_048_588})
    produced(stage, client, topic, count=3, size=1_000_000, bytes_max=2_000_000)
    (first, *_) = consumed(stage, client, topic, "earliest", 3)
    check(first["size"] == 1_000_000, f"{first['size']} bytes came back")
    spec = {
        "producer": "p",
        "acks": -1,
        "idempotent": 0,
        "codec": "none",
        "count": 1,
        "size": 1_100_000,
        "bytes_max": 2_000_000,
    }
    with stage.drive(client, "produce", topic, **spec) as driver:
        told = problems(driver.finish())
    words = (
        "too large",
        "larger than",
        "MSG_SIZE_TOO_LARGE",
        "MessageSizeTooLarge",
        "MESSAGE_TOO_LARGE",
        "RecordTooLarge",
    )
    check(bool(told) and any(word in told[0] for word in words), f"beyond the limit it was told {told}")
    check(produced(stage, client, topic, count=1) == {0: 3}, "the next record is not behind the others")


def acks(stage: Stage, client: Client) -> None:
    """Appends without an answer, with the leader's, and with all replicas' are stored in their order."""
    topic = stage.topic("acks")
    for wanted in (1, -1):
        produced(stage, client, topic, count=50, acks=wanted, idempotent=0, producer=f"acks{wanted}")
    produced(stage, client, topic, count=50, acks=0, idempotent=0, producer="acks0")
    expected = [(f"acks{wanted}", number) for wanted in (1, -1, 0) for number in range(50)]
    found: list[tuple[str, int]] = []
    deadline = time.monotonic() + SOON_S
    while len(found) < len(expected) and time.monotonic() < deadline:
        found = [tuple(record.value.decode().split(" ")[:2]) for record in stage.log(topic) if record.value]  # type: ignore[misc]
        found = [(producer, int(number)) for producer, number in found]
    check(found == expected, f"{len(found)} of {len(expected)} are stored, or in another order")


def places(stage: Stage, client: Client) -> None:
    """A reader begins at the first record, at an offset, and at a time."""
    began_ms = int(time.time() * 1_000) - HOUR_MS
    topic = stage.topic("places")
    produced(stage, client, topic, count=100, time_ms=began_ms)
    for begin, first in (("earliest", 0), ("offset:97", 97), (f"time:{began_ms + 42}", 42)):
        found = [record["read"] for record in consumed(stage, client, topic, begin, 100 - first)]
        check(found == list(range(first, 100)), f"from {begin} on it read {found}")


def latest(stage: Stage, client: Client) -> None:
    """A reader at the end gets what comes from then on, and waits for it."""
    topic = stage.topic("latest")
    produced(stage, client, topic, count=100)
    spec = {"producer": "p", "acks": -1, "idempotent": 0, "codec": "none", "pace_ms": 20}
    with stage.drive(client, "consume", topic, from_="latest") as reader:
        reader.wait_ready()
        with stage.drive(client, "produce", topic, **spec) as writer:
            reader.wait("10 new records", lambda events: len(read(events)) >= 10, SOON_S)
            writer.stop()
            writer.finish()
        reader.stop()
        events = reader.finish()
    found = [record["read"] for record in read(events)]
    check(found[0] >= 100, f"it read {found[0]}, which was there before")
    check(found == list(range(found[0], found[0] + len(found))), f"it read {found}")


def made_again(stage: Stage, client: Client) -> None:
    """A topic is deleted and made again under a producer and a reader: both go on with the new one."""
    topic = stage.topic("again")
    spec = {"producer": "p", "acks": -1, "idempotent": int(client.modes[-1].idempotent), "codec": "none", "pace_ms": 20}
    with (
        stage.drive(client, "produce", topic, **spec) as writer,
        stage.drive(client, "consume", topic, from_="earliest") as reader,
    ):
        reader.wait("records of the first topic", lambda events: len(read(events)) >= 50, SOON_S)
        stage.walrus.delete_topic(topic)
        stage.walrus.create_topic(topic, config={"walrus.leaders": "sticky"})
        writer.wait(
            "acknowledgements of the second topic",
            lambda events: any(event.get("acked") and event["offset"] < 10 for event in events[-20:]),
            SOON_S,
        )
        writer.stop()
        writer.finish()
        end = stage.log(topic)[-1].offset
        try:
            reader.wait(
                "the end of the second topic", lambda events: any(e.get("read") == end for e in events[-1:]), SOON_S
            )
        except DriverError as error:
            raise Broken(f"the reader was told {problems(reader.events)}") from error


EACH = [
    Each("codecs", "every codec, keys, values and headers, there or not, times", codecs, is_quick=True),
    Each("sizes", "records up to the limit, and one beyond it", sizes),
    Each("acks", "`acks` 0, 1 and all", acks),
    Each("places", "reading from the first record, an offset, a time", places, is_quick=True),
    Each("latest", "reading from the end on, waiting for what comes", latest),
    Each("made again", "a topic deleted and made again under a producer and a reader", made_again),
]


@dataclass(frozen=True, slots=True)
class Pair:
    """A producer and a reader of one client at work on a topic of their own."""

    client: Client
    mode: Mode
    topic: str
    writer: Driver
    reader: Driver


@contextmanager
def pairs(stage: Stage, clients: Sequence[Client], config: dict[str, str | int | bool]) -> Iterator[list[Pair]]:
    """Producers and readers of all clients in all their modes, at work."""
    with ExitStack() as stack:
        found = []
        for client in clients:
            for mode in client.modes:
                topic = stage.topic("together", config)
                spec = {"producer": "p", "acks": -1, "idempotent": int(mode.idempotent), "codec": "none", "pace_ms": 4}
                writer = stack.enter_context(stage.drive(client, "produce", topic, **spec))
                reader = stack.enter_context(stage.drive(client, "consume", topic, from_="earliest"))
                found.append(Pair(client, mode, topic, writer, reader))
        for pair in found:
            pair.reader.wait("its first records", lambda events: len(read(events)) >= 10, SOON_S)
        yield found


def found_wrong(stage: Stage, pair: Pair, feature: Together) -> list[str]:
    """End the work of a pair, and tell what was wrong with it."""
    pair.writer.stop()
    events = pair.writer.finish()
    wrong = [f"the producer was told: {problem}" for problem in problems(events)]
    log = stage.log(pair.topic)
    stored = [verdict.number_of(record.value) for record in log]
    wrong += verdict.of_producer(stored, acked(events), is_idempotent=pair.mode.idempotent)
    end = log[-1].offset + 1 if log else 0
    led = leaders(stage, pair.topic)
    leads = 1 + sum(before != after for before, after in pairwise(led))
    if leads < feature.leads_min:
        wrong.append(f"nothing was tried: {len(led)} segments, and {leads} leads")

    def is_through(events: list[dict[str, Any]]) -> bool:
        return any(event.get("read") == end - 1 for event in reversed(events))

    try:
        pair.reader.wait("the end of the log", is_through, SOON_S)
    except DriverError as error:
        wrong.append(str(error))
    pair.reader.stop()
    wrong += verdict.of_reader([event["read"] for event in read(pair.reader.events)], 0, end)
    wrong += [f"the reader was told: {problem}" for problem in problems(pair.reader.events)]
    return [f"{pair.mode.name}: {what}" for what in wrong]


def leaders(stage: Stage, topic: str) -> list[int]:
    """The nodes that led the segments of a topic, in order. While one ends, that is not known for a moment."""
    deadline = time.monotonic() + SOON_S
    while True:
        try:
            (partition,) = stage.walrus.segments(topic)
            return [segment.leader.id if segment.leader else 0 for segment in partition.segments]
        except walrus_client.WalrusError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_S)


def await_all(stage: Stage, topics: Sequence[str], what: str, is_so: Callable[[list[int]], bool]) -> None:
    """Wait until the leaders of each topic's segments are so."""
    deadline = time.monotonic() + LONG_S
    while waiting := [topic for topic in topics if not is_so(leaders(stage, topic))]:
        check(time.monotonic() < deadline, f"{what}: not within {LONG_S:g} s in {waiting}")
        time.sleep(LOOK_S)


def rolls(stage: Stage, topics: Sequence[str]) -> None:
    """Let segments end every second until there are ten of each topic."""
    await_all(stage, topics, "ten segments", lambda led: len(led) >= 10)


def rolling_restart(stage: Stage, _topics: Sequence[str]) -> None:
    """Stop each node in turn, which hands over first, and start it again."""
    for node in stage.cluster.nodes:
        stage.cluster.restart(node.name)


def kills(stage: Stage, topics: Sequence[str]) -> None:
    """Kill each node in turn, and start it again when others lead what it led."""
    for node in stage.cluster.nodes:
        stage.cluster.kill(node.name)
        killed = node.node_id
        await_all(stage, topics, f"others lead what {node.name} led", lambda led, killed=killed: led[-1] != killed)  # type: ignore[misc]
        stage.cluster.start([node.name])


def longest_pause_s(events: Sequence[dict[str, Any]]) -> float:
    """The longest time between two acknowledgements."""
    times = [event["at"] for event in events if "acked" in event]
    return max((after - before for before, after in pairwise(times)), default=0.0)


EVERY_SECOND: dict[str, str | int | bool] = {"segment.ms": 1_000}
ROTATING: dict[str, str | int | bool] = {"walrus.leaders": "rotate"}

TOGETHER = [
    Together("rolls, sticky", "segments end every second, their leaders stay", rolls, 1, EVERY_SECOND, is_quick=True),
    Together(
        "rolls, rotating",
        "segments end every second, and another node leads each",
        rolls,
        8,
        EVERY_SECOND | ROTATING,
        is_quick=True,
    ),
    Together("rolling restart", "each node stops in turn, and is started again", rolling_restart, 2, is_quick=True),
    Together("leaders killed", "each node is killed in turn, and is started again", kills, 2, is_quick=True),
]
