"""Groups of consumers (librdkafka) whose members come and go, and commit before they read on."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from chaos.gate import Gate
from chaos.group_verdict import GroupVerdict, Place
from chaos.kafka import LOGGER, TOPICS, settings

STRATEGIES: Final = {"chaos-eager": "range", "chaos-cooperative": "cooperative-sticky"}
MEMBERS: Final = 3  # Each group has so many; one of them is static.
SESSION_MS, HEARTBEAT_MS = 6_000, 500
STAY_S: Final = (4.0, 20.0)  # a member leaves after so long, and comes back as another one
AWAY_S: Final = 2.0
BATCH_RECORDS, BATCH_WAIT_S = 500, 0.3
ASK_S, ASK_TIMEOUT_S = 0.5, 10.0
ENDS_TIMEOUT_S: Final = 180.0  # the group has everything so long after the last record

Ends = Callable[[], Mapping[Place, int]]


@dataclass
class _Assigned:
    """The partitions that a member has, each with the last offset that it got, and where it has to begin at least."""

    verdict: GroupVerdict
    last: dict[Place, int | None] = field(default_factory=dict)
    at_least: dict[Place, int] = field(default_factory=dict)

    def on_assign(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self.verdict.joined += 1
        for place in map(_place_of, places):
            self.last[place] = None
            self.at_least[place] = self.verdict.committed.get(place, 0)

    def on_revoke(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        for place in map(_place_of, places):
            self.last.pop(place, None)

    def give(self, message: Message) -> None:
        place, offset = (str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0)
        if place not in self.last:
            return  # it was revoked while this was on its way
        before = self.last[place]
        value = hash(message.value())
        self.verdict.give(place, offset, value, before=before, at_least=self.at_least[place])
        self.last[place] = offset

    def next_offsets(self) -> list[TopicPartition]:
        return [TopicPartition(*place, last + 1) for place, last in self.last.items() if last is not None]


def consume(verdict: GroupVerdict, number: int, bootstrap: str, gate: Gate, over: threading.Event, ends: Ends) -> None:
    """Is a member of the group, again and again, until after *over* the group has all records below *ends*.

    Where the gate closes, a member leaves, and another one comes once it is open. What happens then may take brokers
    out of the metadata, at which librdkafka 2.16 sometimes locks up for good while it asks for the end of an epoch: its
    thread that drops a broker and the one that asks for leaders wait for each other (issue 5476 of librdkafka).
    """
    chance, deadline = random.Random(), float("inf")
    static = {"group.instance.id": f"member-{number}"} if number == 0 else {}
    options = (
        settings(bootstrap)
        | static
        | {
            "group.id": verdict.name,
            "partition.assignment.strategy": STRATEGIES[verdict.name],
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )
    with gate.entered():
        while True:
            assigned, leaves_at = _Assigned(verdict), time.monotonic() + chance.uniform(*STAY_S)
            consumer = Consumer(options, logger=LOGGER)
            consumer.subscribe(
                list(TOPICS), on_assign=assigned.on_assign, on_revoke=assigned.on_revoke, on_lost=assigned.on_revoke
            )
            while over.is_set() or (gate.is_open and time.monotonic() < leaves_at):
                if over.is_set():
                    deadline = min(deadline, time.monotonic() + ENDS_TIMEOUT_S)
                    if verdict.has_all(ends()) or time.monotonic() > deadline:
                        consumer.close()
                        return
                _read_and_commit(consumer, assigned)
            consumer.close()
            gate.passed(over)
            over.wait(chance.uniform(0, AWAY_S))


def watch(verdict: GroupVerdict, places: Sequence[Place], bootstrap: str, over: threading.Event) -> None:
    """Asks what is committed, as somebody who is no member, until *over*."""
    consumer = Consumer(settings(bootstrap) | {"group.id": verdict.name}, logger=LOGGER)
    while not over.wait(ASK_S):
        at_least = {place: verdict.committed.get(place, 0) for place in places}
        try:
            told = consumer.committed([TopicPartition(*place) for place in places], timeout=ASK_TIMEOUT_S)
        except KafkaException:
            continue  # nobody answers in time
        for each in told:
            if each.error is None:
                verdict.tell(_place_of(each), max(each.offset, 0), at_least=at_least[_place_of(each)])
    consumer.close()


def _read_and_commit(consumer: Consumer, assigned: _Assigned) -> None:
    messages = [each for each in consumer.consume(BATCH_RECORDS, BATCH_WAIT_S) if each.error() is None]
    for message in messages:
        assigned.give(message)
    offsets = assigned.next_offsets()
    if not messages or not offsets:
        return
    try:
        for committed in consumer.commit(offsets=offsets, asynchronous=False) or ():
            if committed.error is None:
                assigned.verdict.commit(_place_of(committed), committed.offset)
            else:
                assigned.verdict.refuse(committed.error.name())
    except KafkaException as refusal:
        assigned.verdict.refuse(refusal.args[0].name())


def _place_of(partition: TopicPartition) -> Place:
    return partition.topic, partition.partition
