"""Reads partitions of a topic together, each in its order."""

import contextlib
import queue
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from walrus_client.client import Client
from walrus_client.model import Record

_READERS_MAX = 32
_QUEUED_MAX = 1_000
_WAIT_ALONE_MS = 60_000
# A reader of several partitions takes turns: so long it waits for a record of one, and so long it stays with one at
# most.
_WAIT_IN_TURN_MS = 100
_TURN_S = 1.0
_STOP_LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets of a partition that are wanted; without an end all that ever come."""

    partition: int
    start: int
    end: int | None


def read_together(client: Client, topic: str, spans: Sequence[Span]) -> Generator[tuple[int, Record]]:
    """Yield partition and record of all spans as they come; those of one partition are in order.

    A few threads read ahead, a bounded number of records. They end when the iterator is closed and the client is, too.
    Raises the first error of a partition.
    """
    items: queue.Queue[tuple[int, Record] | Exception | None] = queue.Queue(_QUEUED_MAX)
    stop = threading.Event()

    def hand_over(item: tuple[int, Record] | Exception | None) -> None:
        while not stop.is_set():
            with contextlib.suppress(queue.Full):
                items.put(item, timeout=_STOP_LOOK_S)
                return

    def run(group: Sequence[Span]) -> None:
        try:
            for item in _read_in_turn(client, topic, group):
                hand_over(item)
                if stop.is_set():
                    return
        except Exception as failure:
            hand_over(failure)
        else:
            hand_over(None)

    groups = [spans[first::_READERS_MAX] for first in range(min(len(spans), _READERS_MAX))]
    for group in groups:
        threading.Thread(target=run, args=(group,), name="walrus-partitions", daemon=True).start()
    left = len(groups)
    try:
        while left:
            item = items.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        stop.set()


def _read_in_turn(client: Client, topic: str, spans: Sequence[Span]) -> Iterator[tuple[int, Record]]:
    offsets = {span.partition: span.start for span in spans}
    left = [span for span in spans if span.end is None or span.start < span.end]
    wait_ms = _WAIT_ALONE_MS if len(left) == 1 else _WAIT_IN_TURN_MS
    while left:
        for span in left:
            turn_ends = time.monotonic() + _TURN_S
            waits = 0 if span.end is not None else wait_ms
            offset = offsets[span.partition]
            for record in client.read(topic, span.partition, offset, end_offset=span.end, wait_ms=waits):
                offsets[span.partition] = record.offset + 1
                yield span.partition, record
                if span.end is None and len(left) > 1 and time.monotonic() >= turn_ends:
                    break
        left = [span for span in left if span.end is None]
