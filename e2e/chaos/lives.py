"""A topic that is deleted and made anew under its name, again and again: no life of it shows a record of another.

The values of a life name it. What was acknowledged is read until the life is deleted. Meanwhile a reader takes whatever
life has the name, through each node in turn. By its segments it reads one life only. By the name it may be given a life
that was deleted a moment ago by a node that has not heard of that, but the offsets of each begin at 0.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle

from harness.records import identity_of, value_of
from harness.waiting import wait_until
from walrus_client import Client, Record, errors
from walrus_client.sender import ProducerOptions

from chaos.client_threads import until_done
from chaos.gate import Gate

TOPIC = "chaos-again"
PRODUCER = 2_000_000  # the producer of the first life; that of the next one has the next number
RECORDS = 20
PAUSE_S = 0.05
LOOK_TIMEOUT_MS = 5_000
GONE_TIMEOUT_S = 60.0
DELIVERY_TIMEOUT_MS = 300_000
SHOWN = 5

# A node may be away, and the life that was listed may be over, also between two pages of an answer.
_PASSING = (
    errors.RetryableError,
    errors.OutcomeUnknown,
    errors.UnknownTopic,
    errors.UnknownSegment,
    errors.OffsetOutOfRange,
)


@dataclass
class Lives:
    """What became of them. They are numbered from 1 on; `begun` of them were made, `ended` of those deleted."""

    begun: int = 0
    ended: int = 0
    looks: int = 0  # times that a life was read by its segments while it was there
    late: int = 0  # times that the name gave a life that was deleted before
    life_of: dict[str, int] = field(default_factory=dict)  # by the topic's uuid
    false: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether every promise held, and there was something to see."""
        return not self.false and self.ended > 0 and self.looks > 0

    def __str__(self) -> str:
        wrong = f"; {len(self.false)} false: {self.false[:SHOWN]}" if self.false else "; nothing wrong"
        return f"{self.ended} topics made and deleted, looked at {self.looks} times, {self.late} times late{wrong}"

    def check_whole(self, life: int, records: Iterable[Record]) -> None:
        """All that is read of a life that was just written."""
        found = [(record.offset, record.value) for record in records]
        if found != [(sequence, value_of(PRODUCER + life, sequence)) for sequence in range(RECORDS)]:
            shown = [(offset, identity_of(value)) for offset, value in found][:SHOWN]
            self.false.append(f"topic {life} has {len(found)} records, {shown}")

    def check_part(self, where: str, uuid: str, records: Iterable[Record]) -> None:
        """What was read of the segments of the topic with that uuid."""
        self.looks += 1
        for record in records:
            life = self._life(where, record)
            if life is not None and self.life_of.setdefault(uuid, life) != life:
                self.false.append(f"{where}: topic {self.life_of[uuid]} has record {record.offset} of topic {life}")

    def check_name(self, where: str, ended: int, records: Iterable[Record]) -> None:
        """What the name gave to somebody who asked when *ended* lives were deleted."""
        lives = [life for record in records if (life := self._life(where, record)) is not None]
        self.late += any(life <= ended for life in lives)

    def _life(self, where: str, record: Record) -> int | None:
        producer, sequence = identity_of(record.value) or (0, 0)
        life = producer - PRODUCER
        if not 1 <= life <= self.begun or record.value != value_of(producer, record.offset):
            self.false.append(f"{where}: at offset {record.offset} is record {sequence} of topic {life}")
            return None
        return life


def make_again(state: Lives, bootstrap: str, gate: Gate, over: threading.Event) -> None:
    """Makes a topic, writes to it, reads it and deletes it, until *over*."""
    with gate.entered(), Client(bootstrap) as client:
        while not over.is_set():
            gate.passed(over)
            _live_once(state, client)


def look(state: Lives, bootstraps: Sequence[str], over: threading.Event) -> None:
    """Reads whatever life is there until *over*, through another node each time."""
    for bootstrap in cycle(bootstraps):
        if over.wait(PAUSE_S):
            return
        node = bootstrap.partition(",")[0]
        try:
            with Client(node, retry_timeout_ms=0, request_timeout_ms=LOOK_TIMEOUT_MS) as client:
                listed = client.topic_segments(TOPIC)
                for segment in listed.partitions[0].segments:
                    state.check_part(node, listed.topic.uuid, list(client.read(TOPIC, segment=segment.uuid)))
                ended = state.ended
                state.check_name(node, ended, list(client.read(TOPIC)))
        except _PASSING:
            continue


def check_all_ended(state: Lives, bootstraps: Sequence[str]) -> None:
    """Reads by the name through each node: all lives are deleted, and none comes back."""
    for bootstrap in bootstraps:
        node = bootstrap.partition(",")[0]
        try:
            wait_until(f"{node} to know that {TOPIC} is deleted", partial(_is_unknown, node), timeout_s=GONE_TIMEOUT_S)
        except TimeoutError as late:
            state.false.append(str(late))


def _is_unknown(node: str) -> bool:
    try:
        with Client(node, retry_timeout_ms=0, request_timeout_ms=LOOK_TIMEOUT_MS) as client:
            list(client.read(TOPIC))
    except errors.UnknownTopic:
        return True
    except (errors.RetryableError, errors.OutcomeUnknown):
        return False
    return False


def _live_once(state: Lives, client: Client) -> None:
    life = state.begun + 1
    state.begun = life  # from here on its records may be seen
    until_done(lambda: client.create_topic(TOPIC))
    _append(client, [value_of(PRODUCER + life, sequence) for sequence in range(RECORDS)])
    until_done(lambda: state.check_whole(life, list(client.read(TOPIC))))
    until_done(lambda: client.delete_topic(TOPIC), done=errors.UnknownTopic)
    state.ended = life


def _append(client: Client, values: Sequence[bytes]) -> None:
    """One producer for all tries: a record that was stored by one whose answer was lost is not stored again."""
    options = ProducerOptions(delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
    with client.producer(TOPIC, options=options) as producer:
        for delivery in [producer.send(value, partition=0) for value in values]:
            delivery.result()
