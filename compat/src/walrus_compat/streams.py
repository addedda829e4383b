"""Kafka Streams: words are counted, and the count is right at least once though it is killed."""

from collections import Counter

from confluent_kafka import Producer

from walrus_compat.driver import Driver
from walrus_compat.feature import SOON_S, await_so, check, check_told
from walrus_compat.program import ours
from walrus_compat.stage import Stage

WORDS = ("herring", "sprat", "cod")
PARTITIONS = 2
ROUND = 200  # Every word comes so many times in a round.


def words(stage: Stage) -> None:
    """It is killed while it counts, and goes on elsewhere: from its offsets, and from the topic of its counts."""
    topic, to = stage.topic("words", partitions=PARTITIONS), stage.topic("counts", partitions=PARTITIONS)
    group = stage.name("words")
    sent: Counter[str] = Counter()
    with count(stage, topic, to, group, "first") as first:
        first.wait_ready()
        send(stage, topic, sent)
        await_so("some are counted", lambda: bool(counted(stage, to)), SOON_S)
        first.kill()
        check_told("application", first.events)
    send(stage, topic, sent)
    with count(stage, topic, to, group, "second") as second:
        second.wait_ready()
        send(stage, topic, sent)
        await_so("all are counted", lambda: all(counted(stage, to)[word] >= sent[word] for word in WORDS), SOON_S)
        second.stop()
        check_told("application", second.finish())


def count(stage: Stage, topic: str, to: str, group: str, place: str) -> Driver:
    """The application, whose folder is its own."""
    state = stage.directory / f"{group}-{place}"
    return stage.drive(ours("Words"), "count", topic, to=to, group=group, state=state)


def send(stage: Stage, topic: str, sent: Counter[str]) -> None:
    """Send each word so often."""
    producer = Producer({"bootstrap.servers": stage.bootstrap})
    for _ in range(ROUND):
        for word in WORDS:
            producer.produce(topic, key=word, value=word)
            sent[word] += 1
    check(producer.flush(SOON_S) == 0, "words were not stored")


def counted(stage: Stage, to: str) -> Counter[str]:
    """The last count of each word."""
    logs = [stage.log(to, partition) for partition in range(PARTITIONS)]
    last = {record.key: record.value for log in logs for record in log}
    return Counter({key.decode(): int.from_bytes(value) for key, value in last.items() if key and value})
