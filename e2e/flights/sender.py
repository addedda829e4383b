"""How events are sent: by Walrus's own client, or by a client of Kafka, unmodified."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from walrus_client import Appended, Client, Producer, ProducerOptions
from walrus_client.dev import DevCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import KafkaError, Message

# Small enough that the producer notices a dead broker at once and never runs far ahead of it.
BUFFER_BYTES_MAX: Final = 4 << 20
BATCH_RECORDS_MAX: Final = 1_000
FLUSH_S: Final = 120.0

Delivered = Callable[[int], None]


class SenderKind(StrEnum):
    """Who sends."""

    WALRUS = "walrus"
    KAFKA = "kafka"  # confluent-kafka, which is librdkafka


class Sender(Protocol):
    """Sends events of one topic, each stored once."""

    def send(self, value: bytes, *, key: bytes, timestamp_ms: int) -> None:
        """Hands an event over; waits while too many are on their way."""

    def flush(self) -> None:
        """Waits until all that was handed over is durable; raises what went wrong."""

    def undelivered_bytes(self) -> int:
        """About how many bytes are on their way."""


@contextmanager
def sender_of(
    kind: SenderKind, client: Client, brokers: DevCluster, topic: str, delivered: Delivered
) -> "Iterator[Sender]":
    """A sender; *delivered* is told the first offset behind what is durable."""
    if kind is SenderKind.KAFKA:
        sender = _KafkaSender(brokers, topic, delivered)
        yield sender
        sender.flush()
        return

    def on_delivery(delivery: "Future[Appended]") -> None:
        if delivery.exception() is None:
            delivered(delivery.result().end_offset)

    options = ProducerOptions(batch_records_max=BATCH_RECORDS_MAX, buffer_bytes_max=BUFFER_BYTES_MAX)
    with client.producer(topic, options=options, on_delivery=on_delivery) as producer:
        yield _WalrusSender(producer)


class _WalrusSender:
    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(self, value: bytes, *, key: bytes, timestamp_ms: int) -> None:
        self._producer.send(value, key=key, timestamp_ms=timestamp_ms)

    def flush(self) -> None:
        self._producer.flush()

    def undelivered_bytes(self) -> int:
        return self._producer.stats().undelivered_bytes


class _KafkaSender:
    def __init__(self, brokers: DevCluster, topic: str, delivered: Delivered) -> None:
        from confluent_kafka import Producer as KafkaProducer

        options = {
            "bootstrap.servers": brokers.kafka_bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": BUFFER_BYTES_MAX >> 10,
            "batch.num.messages": BATCH_RECORDS_MAX,
        }
        self._producer = KafkaProducer(options)
        self._topic, self._delivered = topic, delivered
        self._sent_bytes = self._done_bytes = 0
        self._failure: KafkaError | None = None

    def send(self, value: bytes, *, key: bytes, timestamp_ms: int) -> None:
        self._raise_failure()
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=value,
                    key=key,
                    partition=0,
                    timestamp=timestamp_ms,
                    on_delivery=self._on_delivery,
                )
                break
            except BufferError:  # as much is on its way as may be
                self._producer.poll(0.1)
        self._sent_bytes += len(value) + len(key)
        self._producer.poll(0)

    def flush(self) -> None:
        left = self._producer.flush(FLUSH_S)
        self._raise_failure()
        if left:
            raise TimeoutError(f"{left} events are still on their way after {FLUSH_S:g} s")

    def undelivered_bytes(self) -> int:
        return self._sent_bytes - self._done_bytes

    def _on_delivery(self, error: "KafkaError | None", message: "Message") -> None:
        if error is not None:
            self._failure = error
            return
        self._done_bytes += len(message.value() or b"") + len(message.key() or b"")
        self._delivered((message.offset() or 0) + 1)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise OSError(f"an event was not taken: {self._failure}")
