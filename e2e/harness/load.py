"""Producers that keep appending proven records while a test does harm, and remember what was acknowledged."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from walrus_client import Client
from walrus_client.sender import ProducerOptions

from harness.records import value_of
from harness.waiting import wait_until

DELIVERY_TIMEOUT_MS = 120_000  # longer than any fault that a test makes
PAUSE_S = 0.1  # between two windows: faults take their time, and whatever is produced meanwhile is read and compared


@dataclass
class Load:
    """What the producers have done so far. `acked[p]` counts the records of producer *p* that are acknowledged.

    `pauses_s` has for each window how long its last acknowledgement took: what a partition kept its writer waiting.
    """

    acked: dict[int, int] = field(default_factory=dict)
    pauses_s: list[float] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def total(self) -> int:
        return sum(self.acked.values())

    def wait_for_more(self, records: int, *, timeout_s: float = 90.0) -> None:
        """Waits until so many more records are acknowledged; that is how a test knows that writes go on."""
        target = self.total() + records
        wait_until(
            f"{records} more records", lambda: self.total() >= target or bool(self.failures), timeout_s=timeout_s
        )
        if self.failures:
            raise self.failures[0]


@contextmanager
def producing(bootstrap: str, topic: str, *, producers: int, partitions: int = 1, window: int = 256) -> Iterator[Load]:
    """Runs *producers* threads, numbered from 0, that append to *topic* until the block ends, each to one partition.

    Each holds at most *window* records in flight. When the block ends, all that was sent is acknowledged, or the
    failure is raised.
    """
    load = Load(dict.fromkeys(range(producers), 0))
    stop = threading.Event()
    threads = [
        threading.Thread(target=_produce, args=(bootstrap, topic, number, number % partitions, window, load, stop))
        for number in range(producers)
    ]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if load.failures:
        raise load.failures[0]


def _produce(
    bootstrap: str, topic: str, number: int, partition: int, window: int, load: Load, stop: threading.Event
) -> None:
    options = ProducerOptions(linger_ms=1, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
    try:
        with Client(bootstrap) as client, client.producer(topic, options=options) as producer:
            while not stop.is_set():
                first = load.acked[number]
                values = [value_of(number, sequence) for sequence in range(first, first + window)]
                began = time.monotonic()
                for delivery in [producer.send(value, partition=partition) for value in values]:
                    delivery.result()
                load.pauses_s.append(time.monotonic() - began)
                load.acked[number] = first + window
                stop.wait(PAUSE_S)
    except Exception as failure:
        load.failures.append(failure)
