"""Appends records to a topic: which partition each goes to, and what the caller sees of its delivery."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from walrus_client.model import Appended
from walrus_client.outbox import Batch, OutRecord, Target
from walrus_client.sender import ProducerOptions, ProducerStats, Sender
from walrus_client.transport import Transport

OnDelivery = Callable[["Future[Appended]"], object]


class Producer:
    """Appends to one topic in batches, many at a time, and stores each record once: a batch whose answer is lost with
    its connection or its node is sent again under its old sequence, to whichever node serves.

    Within a partition records are stored in the order of the `send` calls. Safe to use from many threads. Leaving the
    context, or `close`, delivers what was sent. Made by `Client.producer`.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        topic: str,
        partition_count: int,
        options: ProducerOptions,
        on_delivery: OnDelivery | None,
    ) -> None:
        self._topic = topic
        self._partition_count = partition_count
        self._on_delivery = on_delivery
        self._sender = Sender(transport, options)
        self._last_batch: Batch | None = None

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int = 0,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> "Future[Appended]":
        """Hands one record over; the future is that of its whole batch, done when the batch is durable.

        Records of one key go to one partition; those without a key fill the batches of the partitions in turn.
        `timestamp_ms` 0 is the time at which the broker takes it. Blocks while `buffer_bytes_max` are on their way;
        raises TooLarge for more than 16 MiB.
        The future's error is a RejectedError (not stored), a RetryableError (not stored, `delivery_timeout_ms` is
        over) or OutcomeUnknown.
        """
        if partition is None:
            partition = self._partition_for(key)
        batch, is_first = self._sender.add(Target(self._topic, partition), OutRecord(value, key, timestamp_ms, headers))
        self._last_batch = batch
        if is_first and self._on_delivery is not None:
            batch.delivery.add_done_callback(self._on_delivery)
        return batch.delivery

    def send_batch(self, records: Iterable[OutRecord | bytes], *, partition: int = 0) -> "Future[Appended]":
        """Hands over records that are stored in one piece: all or none. Otherwise like `send`."""
        rows = as_records(records)
        batch = self._sender.add_batch(Target(self._topic, partition), rows)
        if self._on_delivery is not None:
            batch.delivery.add_done_callback(self._on_delivery)
        return batch.delivery

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Waits until all that was sent before is decided; raises the first failure since the last `flush`.

        Raises TimeoutError after *timeout_s*; what is not delivered by then is still tried.
        """
        self._sender.flush(timeout_s=timeout_s)

    def stats(self) -> ProducerStats:
        """What was delivered, sent again and failed so far."""
        return self._sender.stats()

    def close(self) -> None:
        """Delivers what was sent, and ends the connection; raises like `flush`. Nothing can be sent any more."""
        failure = self._sender.close()
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._sender.origin.is_here():
            return  # a child leaves the block of its parent, which delivers what was sent
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and not everything that was sent is delivered: {failure}")

    def _partition_for(self, key: bytes | None) -> int:
        if self._partition_count == 1:
            return 0
        if key is not None:
            return zlib.crc32(key) % self._partition_count  # as librdkafka does by default
        last = self._last_batch
        if last is None:
            return 0
        if last.is_closed():
            return (last.target.partition + 1) % self._partition_count
        return last.target.partition


def as_records(records: Iterable[OutRecord | bytes]) -> list[OutRecord]:
    """Records as given, with bare values made records; raises ValueError if there are none."""
    rows = [OutRecord(record) if isinstance(record, bytes) else record for record in records]
    if not rows:
        raise ValueError("a batch has at least one record")
    return rows
