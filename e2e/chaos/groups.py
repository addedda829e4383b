"""Groups of consumers (librdkafka) whose members come and go, and commit before they read on."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

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
class Assigned:
    """The partitions that a member has, each with the last offset that it got, and where it has to begin at least.

    Where a group is rebalanced, librdkafka pauses and goes on behind what it has given, as far as it knows that. By its
    source, records of the call that was just ending may come once more, from where the call before the rebalance began;
    consumers of Kafka have to expect that. Whatever else comes again breaks a promise, and whatever does not come.
    """

    verdict: GroupVerdict
    last: dict[Place, int | None] = field(default_factory=dict)
    at_least: dict[Place, int] = field(default_factory=dict)
    _reached: dict[Place, int] = field(default_factory=dict)  # the highest offset that it got
    _calls: int = 0
    _began: dict[Place, int | None] = field(default_factory=dict)  # `last`, when the present call began
    _began_before: dict[Place, int | None] = field(default_factory=dict)  # the same of the call before it
    _again: dict[Place, tuple[int, int]] = field(default_factory=dict)  # from where records may come again; since when

    def begin(self) -> None:
        """A call that gives records begins; the group may be rebalanced in it."""
        self._calls += 1
        self._began_before, self._began = self._began, dict(self.last)

    def on_assign(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        self.verdict.joined += 1
        for place in map(_place_of, places):
            self.last[place] = None
            self.at_least[place] = self.verdict.committed.get(place, 0)
        self._note_rebalance()

    def on_revoke(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        for place in map(_place_of, places):
            for known in (self.last, self._reached, self._began, self._began_before, self._again):
                known.pop(place, None)
        self._note_rebalance()

    def _note_rebalance(self) -> None:
        for place in self.last:
            before = self._began_before.get(place)
            self._again[place] = (self.at_least[place] if before is None else before + 1, self._calls)

    def give(self, place: Place, offset: int, value: int) -> None:
        """Takes what the member was given."""
        if place not in self.last:
            return  # it was revoked while this was on its way
        before = self.last[place]
        if before is not None and place in self._again:
            first, since = self._again[place]
            if first <= offset <= before:
                self.verdict.repeated += 1
                before = offset - 1
            if since < self._calls:  # all that the call had which saw the rebalance was given
                del self._again[place]
        self.verdict.give(place, offset, value, before=before, at_least=self.at_least[place])
        self.last[place] = offset
        self._reached[place] = max(offset, self._reached.get(place, offset))

    def next_offsets(self) -> list[TopicPartition]:
        """What to commit: behind all that it got, also while some of it comes again."""
        return [TopicPartition(*place, reached + 1) for place, reached in self._reached.items()]


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
            assigned, leaves_at = Assigned(verdict), time.monotonic() + chance.uniform(*STAY_S)
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


def _read_and_commit(consumer: Consumer, assigned: Assigned) -> None:
    assigned.begin()
    messages = [each for each in consumer.consume(BATCH_RECORDS, BATCH_WAIT_S) if each.error() is None]
    for message in messages:
        place, offset = (str(message.topic()), int(message.partition() or 0)), int(message.offset() or 0)
        assigned.give(place, offset, hash(message.value()))
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
