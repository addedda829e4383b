"""The clients of the compacted topic: one that writes, one that follows, one that reads it from the beginning, again
and again. The settings have brokers compact it all the time.
"""

import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle

from harness.waiting import wait_until
from walrus_client import Client, errors
from walrus_client.sender import ProducerOptions

from chaos.compacted import TOMBSTONE_KEPT_S, Compacted
from chaos.gate import Gate

TOPIC = "chaos-compacted"
SETTINGS: dict[str, str | int] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0,
    "delete.retention.ms": int(TOMBSTONE_KEPT_S * 1_000),
    "max.compaction.lag.ms": 3_000,  # an open segment ends by then, so nothing is left out in the end
    "walrus.segment.entries": 200,
}
KEYS = 48
TOMBSTONE_PERCENT = 10
WINDOW = 16
PAUSE_S = 0.04
WAIT_MS = 300
SWEEP_PAUSE_S = 0.2
DELIVERY_TIMEOUT_MS = 300_000
REST_TIMEOUT_S = 120.0
REST_LOOK_S = 0.5


def produce(state: Compacted, bootstrap: str, gate: Gate, over: threading.Event) -> None:
    """Writes until *over*, in the order of the records' numbers."""
    chance = random.Random()  # which keys are written need not come again
    options = ProducerOptions(linger_ms=1, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
    with gate.entered(), Client(bootstrap) as client, client.producer(TOPIC, options=options) as producer:
        while not over.wait(PAUSE_S):
            gate.passed(over)
            made_s, made_ms = (
                time.monotonic(),
                time.time_ns() // 1_000_000,
            )  # a stamp of a wrong clock holds up compaction
            deliveries = []
            for _ in range(WINDOW):
                is_tombstone = chance.randrange(100) < TOMBSTONE_PERCENT
                number = state.send(b"key-%d" % chance.randrange(KEYS), is_tombstone=is_tombstone, now_s=made_s)
                key, value, headers = state.content(number)
                deliveries.append(producer.send(value, key=key, partition=0, timestamp_ms=made_ms, headers=headers))
            for delivery in deliveries:
                delivery.result()
            state.acked += WINDOW


def follow(state: Compacted, bootstrap: str, ended: threading.Event) -> None:
    """Reads on from where it is until it has read to the end once after *ended*."""
    last = -1
    with Client(bootstrap) as client:
        while True:
            is_last_round = ended.is_set()
            try:
                for record in client.read(TOPIC, offset=last + 1, wait_ms=WAIT_MS):
                    state.check_passed_over("the follower", last + 1, record.offset, time.monotonic())
                    state.check_record("the follower", last, record)
                    last = max(last, record.offset)
            except (errors.RetryableError, errors.OutcomeUnknown):  # the client has tried for long, and tries again
                continue
            if is_last_round:
                return


def sweep(state: Compacted, bootstraps: Sequence[str], over: threading.Event) -> None:
    """Reads from the beginning to the end until *over*, beginning at another node each time."""
    for bootstrap in cycle(bootstraps):
        if over.wait(SWEEP_PAUSE_S):
            return
        known = state.acked
        try:
            offsets = _offsets(state, bootstrap)
        except (errors.RetryableError, errors.OutcomeUnknown):
            continue
        state.check_sweep(f"a reader by {_first(bootstrap)}", known, offsets, time.monotonic())
        state.note_gone(known, offsets)


def wait_until_at_rest(state: Compacted, bootstrap: str) -> None:
    """Returns when nothing is left but the last value of each key, which is noted then, or after a while."""
    state.is_rest_judged = True

    def is_at_rest() -> bool:
        known = state.acked
        try:
            offsets = _offsets(state, bootstrap)
        except (errors.RetryableError, errors.OutcomeUnknown):
            return False
        state.check_sweep("in the end", known, offsets, time.monotonic())
        state.is_at_rest = offsets == state.rest()
        return state.is_at_rest

    with suppress(TimeoutError):
        wait_until(f"{TOPIC} to be compacted", is_at_rest, timeout_s=REST_TIMEOUT_S, every_s=REST_LOOK_S)


def check_last(state: Compacted, bootstraps: Sequence[str]) -> None:
    """Reads the whole topic through each node, once it is at rest."""
    for bootstrap in bootstraps:
        with Client(bootstrap) as client:
            records = list(client.read(TOPIC))
        where, last = _first(bootstrap), -1
        for record in records:
            state.check_record(where, last, record)
            last = record.offset
        state.check_last(where, records)


def _offsets(state: Compacted, bootstrap: str) -> list[int]:
    where, last, offsets = f"a reader by {_first(bootstrap)}", -1, list[int]()
    with Client(bootstrap) as client:
        for record in client.read(TOPIC):
            state.check_record(where, last, record)
            last = record.offset
            offsets.append(last)
    return offsets


def _first(bootstrap: str) -> str:
    return bootstrap.partition(",")[0]
