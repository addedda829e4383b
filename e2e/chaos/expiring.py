"""A topic that keeps its records for seconds: what goes is old enough, and in the end all of it goes.

One producer writes to it, so the offset of a record is its number. A reader follows; what it finds gone must have been
older than the topic keeps it. Where the log begins is asked for all the time, through each node in turn: it never moves
back.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle

from harness.records import identity_of, value_of
from harness.waiting import wait_until
from walrus_client import Client, OffsetPlace, errors
from walrus_client.sender import ProducerOptions

from chaos.ages import Clocks
from chaos.gate import Gate

TOPIC = "chaos-short"
PRODUCER = 1_000_000
KEPT_S = 3.0
SETTINGS = {"retention.ms": int(KEPT_S * 1_000), "walrus.segment.entries": 500}
WINDOW = 32
PAUSE_S = 0.02
WAIT_MS = 300
LOOK_S = 0.2
LOOK_TIMEOUT_MS = 5_000
DELIVERY_TIMEOUT_MS = 300_000
EMPTIED_TIMEOUT_S = 120.0
SHOWN = 5


@dataclass
class Expiring:
    """What became of the topic. `sent_s[n]` is when record *n* was made, `start` where the log was said to begin."""

    clocks: Clocks
    sent_s: list[float] = field(default_factory=list)
    acked: int = 0
    read: int = 0
    gone: int = 0  # records that went before the reader came to them
    start: int = 0
    expired: int = 0  # records that went while faults were done
    false: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether every promise held, and there was something to see."""
        return not self.false and self.read > 0

    def __str__(self) -> str:
        wrong = f"; {len(self.false)} false: {self.false[:SHOWN]}" if self.false else "; nothing wrong"
        went = f"{self.expired} of {self.acked} went while faults were done"
        return f"{self.read} records read before they went, {self.gone} not; {went}{wrong}"

    def check_record(self, expected: int, offset: int, value: bytes | None) -> None:
        """A reader that had read up to *expected* was given this."""
        self.read += 1
        if offset != expected or value != value_of(PRODUCER, expected):
            self.false.append(f"record {expected} came as {identity_of(value)} at offset {offset}")

    def check_gone(self, wanted: int, start: int, now_s: float) -> None:
        """A node said before *now_s* that record *wanted* is gone, and all up to *start*."""
        self.gone += max(0, start - wanted)
        if start <= wanted:
            self.false.append(f"record {wanted} was refused, and the first is {start} of {len(self.sent_s)}")
        self.check_start("the reader", start, 0, now_s)

    def check_start(self, where: str, start: int, known: int, now_s: float) -> None:
        """Somebody said before *now_s* that the log begins there; that it had come to *known* was said before."""
        if start < known:
            self.false.append(f"{where}: the log begins at {start}, after it began at {known}")
        if start > len(self.sent_s):
            self.false.append(f"{where}: the log begins at {start}, and {len(self.sent_s)} records were sent")
        elif start > self.start and not self.clocks.may_have_passed(KEPT_S, self.sent_s[start - 1], now_s):
            age_s = now_s - self.sent_s[start - 1]
            self.false.append(f"{where}: record {start - 1} was gone {age_s:.2f} s after it was made")
        self.start = max(self.start, start)


def produce(state: Expiring, bootstrap: str, gate: Gate, over: threading.Event) -> None:
    """Writes until *over*, in the order of the records' numbers."""
    options = ProducerOptions(linger_ms=1, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
    with gate.entered(), Client(bootstrap) as client, client.producer(TOPIC, options=options) as producer:
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


def follow(state: Expiring, bootstrap: str, ended: threading.Event) -> None:
    """Reads on until it has read to the end, or what was there has gone, once after *ended*."""
    offset = 0
    with Client(bootstrap) as client:
        while not (ended.is_set() and offset >= state.acked):
            try:
                for record in client.read(TOPIC, offset=offset, wait_ms=WAIT_MS):
                    state.check_record(offset, record.offset, record.value)
                    offset += 1
            except errors.OffsetOutOfRange as refusal:
                start = refusal.start if refusal.start is not None else offset
                state.check_gone(offset, start, time.monotonic())
                offset = max(offset + 1, start)
            except (errors.RetryableError, errors.OutcomeUnknown):  # the client has tried for long, and tries again
                continue


def look(state: Expiring, bootstraps: Sequence[str], over: threading.Event) -> None:
    """Asks where the log begins until *over*, through another node each time."""
    for bootstrap in cycle(bootstraps):
        if over.wait(LOOK_S):
            return
        _look_once(state, bootstrap)
        state.expired = state.start


def check_empty(state: Expiring, bootstraps: Sequence[str]) -> None:
    """Returns when all that was acknowledged has gone, and was asked for through each node."""
    _wait_until_empty(bootstraps[0], state.acked)
    for bootstrap in bootstraps:
        asked = partial(_look_once, state, bootstrap)
        wait_until(f"{bootstrap} to say where {TOPIC} begins", asked, timeout_s=EMPTIED_TIMEOUT_S)


def _look_once(state: Expiring, bootstrap: str) -> bool:
    """Whether the first node of *bootstrap* told: one that is not there, or is not sure, claims nothing."""
    known, node = state.start, bootstrap.partition(",")[0]
    try:
        with Client(node, retry_timeout_ms=0, request_timeout_ms=LOOK_TIMEOUT_MS) as client:
            start = client.list_offsets(TOPIC, {0: OffsetPlace.EARLIEST})[0].offset
    except (errors.RetryableError, errors.OutcomeUnknown):
        return False
    if start is None:
        raise AssertionError(f"{node}: {TOPIC} begins nowhere")
    state.check_start(node, start, known, time.monotonic())
    return True


def _wait_until_empty(bootstrap: str, acked: int) -> None:
    kept: object = None

    def is_empty() -> bool:
        nonlocal kept
        try:
            kept = (partition := client.describe_topic(TOPIC).partitions[0])
        except errors.RetryableError as refusal:
            kept = refusal
            return False
        return partition.log_start == acked

    with Client(bootstrap) as client:
        try:
            wait_until(f"{TOPIC} to be empty", is_empty, timeout_s=EMPTIED_TIMEOUT_S)
        except TimeoutError as late:
            raise TimeoutError(f"{late}: {acked} were acknowledged, {kept}") from None
