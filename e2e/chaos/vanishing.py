"""Topics from which records go while faults are done: one keeps them for seconds, one is deleted and made anew, often.

What may be gone is known. The first has one producer, so the offset of a record is its number, and a record may be gone
only once it is older than the topic keeps it. Of the second, all that was acknowledged is there until it is deleted,
and nothing of one topic is ever read from the next that has its name.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from harness.records import identity_of, value_of
from harness.waiting import wait_until
from walrus_client import Client, errors
from walrus_client.sender import ProducerOptions

from chaos.gate import Gate

SHORT_TOPIC, AGAIN_TOPIC = "chaos-short", "chaos-again"
PRODUCER = 1_000_000  # the producer of the first topic, and of the topics that are made again from here on
KEPT_S = 3.0
SETTINGS = {"retention.ms": int(KEPT_S * 1_000), "walrus.segment.entries": 500}
WINDOW = 32
PAUSE_S = 0.02
WAIT_MS = 300
DELIVERY_TIMEOUT_MS = 300_000
EMPTIED_TIMEOUT_S = 120.0
AGAIN_RECORDS = 20
SHOWN = 5


@dataclass
class Vanishing:
    """What became of both topics. `sent_s[n]` is when record *n* of the first was made."""

    sent_s: list[float] = field(default_factory=list)
    acked: int = 0
    read: int = 0
    gone: int = 0  # records that went before the reader came to them
    made: int = 0  # topics that were made again
    is_judged_again: bool = False
    false: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether every promise held, and there was something to see."""
        return not self.false and self.read > 0 and (self.made > 0 or not self.is_judged_again)

    def __str__(self) -> str:
        wrong = f"; {len(self.false)} false: {self.false[:SHOWN]}" if self.false else "; nothing wrong"
        return f"{self.read} records read before they went, {self.gone} not; {self.made} topics made again{wrong}"

    def check_record(self, expected: int, offset: int, value: bytes | None) -> None:
        """A reader that had read up to *expected* was given this."""
        self.read += 1
        if (offset, identity_of(value)) != (expected, (PRODUCER, expected)):
            self.false.append(f"record {expected} came as {identity_of(value)} at offset {offset}")

    def check_start(self, wanted: int, start: int, now_s: float) -> None:
        """A node said before *now_s* that record *wanted* is gone, and all up to *start*."""
        self.gone += max(0, start - wanted)
        if start <= wanted or start > len(self.sent_s):
            self.false.append(f"record {wanted} was refused, and the first is {start} of {len(self.sent_s)}")
        elif now_s < self.sent_s[start - 1] + KEPT_S:
            self.false.append(f"record {start - 1} was gone {now_s - self.sent_s[start - 1]:.2f} s after it was made")

    def check_again(self, number: int, values: Sequence[bytes | None]) -> None:
        """All that is read of a topic that was just made and written."""
        wanted = [(PRODUCER + number, sequence) for sequence in range(AGAIN_RECORDS)]
        if [identity_of(value) for value in values] != wanted:
            shown = [identity_of(value) for value in values][:SHOWN]
            self.false.append(f"topic {number} has {len(values)} records, {shown}")


@contextmanager
def vanishing(bootstraps: Sequence[str], gate: Gate, *, again: bool) -> Iterator[Vanishing]:
    """Runs the clients of both topics while the block runs; with *again* also those of the second.

    When it ends, all that was acknowledged was read or has gone, and the first topic is empty.
    """
    state, over, ended = Vanishing(is_judged_again=again), threading.Event(), threading.Event()
    with Client(bootstraps[0]) as client:
        client.create_topic(SHORT_TOPIC, config=SETTINGS)
    producer = _start(state, _produce, state, bootstraps[0], gate, over)
    others = [_start(state, _follow, state, bootstraps[-1], ended)]
    if again:
        others.append(_start(state, _make_again, state, bootstraps[-1], gate, over))
    yield state  # what fails here is not kept waiting for clients of a cluster that does not answer
    over.set()
    producer.join()
    ended.set()
    for thread in others:
        thread.join()
    if state.failures:
        raise state.failures[0]
    _wait_until_empty(bootstraps[0], state.acked)


def _wait_until_empty(bootstrap: str, acked: int) -> None:
    kept: object = None

    def is_empty() -> bool:
        nonlocal kept
        try:
            kept = (partition := client.describe_topic(SHORT_TOPIC).partitions[0])
        except errors.RetryableError as refusal:
            kept = refusal
            return False
        return partition.log_start == acked

    with Client(bootstrap) as client:
        try:
            wait_until(f"{SHORT_TOPIC} to be empty", is_empty, timeout_s=EMPTIED_TIMEOUT_S)
        except TimeoutError as late:
            raise TimeoutError(f"{late}: {acked} were acknowledged, {kept}") from None


def _start(state: Vanishing, target: Callable[..., None], *arguments: object) -> threading.Thread:
    def guarded() -> None:
        try:
            target(*arguments)
        except Exception as failure:
            state.failures.append(failure)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    return thread


def _produce(state: Vanishing, bootstrap: str, gate: Gate, over: threading.Event) -> None:
    options = ProducerOptions(linger_ms=1, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
    with gate.entered(), Client(bootstrap) as client, client.producer(SHORT_TOPIC, options=options) as producer:
        while not over.wait(PAUSE_S):
            gate.passed(over)
            window = range(state.acked, state.acked + WINDOW)
            state.sent_s.extend(time.monotonic() for _ in window)
            made_ms = time.time_ns() // 1_000_000  # this clock counts: that of the broker which takes it may be wrong
            values = [value_of(PRODUCER, sequence) for sequence in window]
            sent = [producer.send(value, partition=0, timestamp_ms=made_ms) for value in values]
            for delivery in sent:
                delivery.result()
            state.acked += WINDOW


def _follow(state: Vanishing, bootstrap: str, ended: threading.Event) -> None:
    """Reads on until it has read to the end, or what was there has gone, once after *ended*."""
    offset = 0
    with Client(bootstrap) as client:
        while not (ended.is_set() and offset >= state.acked):
            try:
                for record in client.read(SHORT_TOPIC, offset=offset, wait_ms=WAIT_MS):
                    state.check_record(offset, record.offset, record.value)
                    offset += 1
            except errors.OffsetOutOfRange as refusal:
                start = refusal.start if refusal.start is not None else offset
                state.check_start(offset, start, time.monotonic())
                offset = max(offset + 1, start)
            except errors.RetryableError:  # the client has tried for long, and tries again
                continue


def _make_again(state: Vanishing, bootstrap: str, gate: Gate, over: threading.Event) -> None:
    with gate.entered(), Client(bootstrap) as client:
        while not over.is_set():
            gate.passed(over)
            _make_once(state, client, state.made + 1)
            state.made += 1


def _make_once(state: Vanishing, client: Client, number: int) -> None:
    _until_done(lambda: client.create_topic(AGAIN_TOPIC))
    _append(client, [value_of(PRODUCER + number, sequence) for sequence in range(AGAIN_RECORDS)])
    _until_done(lambda: state.check_again(number, [each.value for each in client.read(AGAIN_TOPIC)]))
    _until_done(lambda: client.delete_topic(AGAIN_TOPIC), done=errors.UnknownTopic)


def _append(client: Client, values: Sequence[bytes]) -> None:
    """One producer for all tries: a record that was stored by one whose answer was lost is not stored again."""
    options = ProducerOptions(delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
    with client.producer(AGAIN_TOPIC, options=options) as producer:
        for delivery in [producer.send(value, partition=0) for value in values]:
            delivery.result()


def _until_done(step: Callable[[], object], *, done: type[errors.WalrusError] | None = None) -> None:
    """Tries a step until it is taken; an error of the kind *done* says that it was taken before."""
    while True:
        try:
            step()
            return
        except (errors.RetryableError, errors.OutcomeUnknown):  # the client has tried for long, and tries again
            continue
        except errors.WalrusError as refusal:
            if done is None or not isinstance(refusal, done):
                raise
            return
