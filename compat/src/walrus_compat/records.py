"""Records as they are sent and read by one client: codecs, sizes, acknowledgements, places to begin at."""

import time

from walrus_compat.clients import Client
from walrus_compat.driver import Driver, DriverError, problems, read
from walrus_compat.feature import SOON_S, Broken, check, consumed, produced, sending
from walrus_compat.stage import Stage

# Records older than a week would go, where a topic has Kafka's defaults; these are an hour old.
HOUR_MS = 3_600_000
AGAIN_S = 1.0  # until somebody makes a topic again that was deleted


def codecs(stage: Stage, client: Client) -> None:
    """Records of each codec, with and without keys, values and headers, come back as they were sent."""
    began_ms = int(time.time() * 1_000) - HOUR_MS
    for codec in client.codecs:
        topic = stage.topic("codec")
        offsets = produced(stage, client, topic, codec=codec, count=60, mixed=1, time_ms=began_ms)
        check(offsets == {number: number for number in range(60)}, f"{codec}: the offsets are {offsets}")
        for number, record in enumerate(consumed(stage, client, topic, "earliest", 60)):
            expected = {
                "read": number,
                "key": None if number % 3 == 0 else f"key {number}",
                "value": None if number % 5 == 0 and number % 3 else f"p {number} ",
                "headers": [["first", "1"], ["second", "2"]] if number % 2 else [],
                "time_ms": began_ms + number,
            }
            sent = {name: content for name, content in expected.items() if name not in client.lacks}
            found = {name: record[name] for name in sent}
            check(found == sent, f"{codec}: {found} came back for {sent}")


def sizes(stage: Stage, client: Client) -> None:
    """Records of up to a million bytes are taken; one beyond the topic's limit is refused, and the next one is not."""
    topic = stage.topic("size", {"max.message.bytes": 1_048_588})
    produced(stage, client, topic, count=3, size=1_000_000, bytes_max=2_000_000)
    (first, *_) = consumed(stage, client, topic, "earliest", 3)
    check(first["size"] == 1_000_000, f"{first['size']} bytes came back")
    spec = sending(client, idempotent=0, count=1, size=1_100_000, bytes_max=2_000_000)
    with stage.drive(client, "produce", topic, **spec) as driver:
        told = problems(driver.finish())
    words = (
        "too large",
        "larger than",
        "MSG_SIZE_TOO_LARGE",
        "MessageSizeTooLarge",
        "MESSAGE_TOO_LARGE",
        "larger message",
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
    places = [("earliest", 0), ("offset:97", 97)]
    if "time_ms" not in client.lacks:
        places.append((f"time:{began_ms + 42}", 42))
    for begin, first in places:
        found = [record["read"] for record in consumed(stage, client, topic, begin, 100 - first)]
        check(found == list(range(first, 100)), f"from {begin} on it read {found}")


def latest(stage: Stage, client: Client) -> None:
    """A reader at the end gets what comes from then on, and waits for it."""
    topic = stage.topic("latest")
    produced(stage, client, topic, count=100)
    spec = sending(client, idempotent=0, pace_ms=20)
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
    spec = sending(client, idempotent=int(client.modes[-1].idempotent), pace_ms=4)
    with (
        stage.drive(client, "produce", topic, **spec) as writer,
        stage.drive(client, "consume", topic, from_="earliest") as reader,
    ):
        # The first topic gets so many records that the second one has fewer of them for longer than any client waits
        # before it looks again.
        reader.wait("records of the first topic", lambda events: len(read(events)) >= 1_000, SOON_S)
        begun = len(writer.events), len(reader.events)
        stage.delete(topic)
        time.sleep(AGAIN_S)
        stage.make(topic, 1, {})
        try:
            go_on(stage, topic, writer, reader, begun)
        except DriverError as error:
            if told := [*problems(writer.events), *problems(reader.events)]:
                raise Broken("the application was told", told) from error
            raise


def go_on(stage: Stage, topic: str, writer: Driver, reader: Driver, begun: tuple[int, int]) -> None:
    """Wait until a producer and a reader, which had told so much, have come to the end of a topic that is new."""
    writer.wait(
        "acknowledgements of the second topic",
        lambda events: any(event.get("acked") and event["offset"] < 10 for event in events[begun[0] :]),
        SOON_S,
    )
    writer.stop()
    writer.finish()
    end = stage.log(topic)[-1].offset
    reader.wait(
        "the end of the second topic",
        lambda events: any(event.get("read") == end for event in events[begun[1] :]),
        SOON_S,
    )
