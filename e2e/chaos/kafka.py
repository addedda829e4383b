"""Clients of Kafka in a run, unmodified (librdkafka): idempotent producers, on topics of both kinds of leaders."""

import logging
import random
import threading
import time
from typing import TYPE_CHECKING, Final

from confluent_kafka import Producer
from harness.records import value_of

from chaos.gate import Gate
from chaos.group_verdict import Place

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

KAFKA_PORT: Final = 9092
TOPICS: Final = {"chaos-sticky": {"walrus.leaders": "sticky"}, "chaos-rotating": {"walrus.leaders": "rotate"}}
WINDOW: Final = 64  # records in flight, for each producer
DELIVERY_TIMEOUT_S: Final = 300.0  # longer than any fault with its recovery, also on a busy machine
POLL_S: Final = 0.5
LOGGER: Final = logging.getLogger("chaos.kafka")


def settings(bootstrap: str) -> dict[str, str | int | bool]:
    """What all clients are told. One that asks a node that is paused tries another one after a while."""
    return {"bootstrap.servers": bootstrap, "socket.timeout.ms": 10_000, "reconnect.backoff.max.ms": 1_000}


def produce(
    acked: dict[int, int], number: int, place: Place, bootstrap: str, gate: Gate, written: threading.Event
) -> None:
    """Writes to a partition, window after window, until *written*; notes in *acked* what is acknowledged."""
    chance = random.Random()  # what is in the values need not come again
    with gate.entered():
        sender = _Sender(bootstrap, place)
        while not written.is_set():
            gate.passed(written)
            first = acked[number]
            window = range(first, first + WINDOW)
            sender.send([value_of(number, sequence, random=chance.getrandbits(64)) for sequence in window])
            acked[number] = first + WINDOW


class _Sender:
    def __init__(self, bootstrap: str, place: Place) -> None:
        more = {"enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000)}
        self._producer = Producer(settings(bootstrap) | more, logger=LOGGER)
        self._topic, self._partition = place
        self._on_way = 0
        self._failure: KafkaError | None = None

    def send(self, values: list[bytes]) -> None:
        """Returns when all are acknowledged. Raises what the client gives up for."""
        for value in values:
            self._producer.produce(self._topic, value, partition=self._partition, on_delivery=self._on_delivery)
        self._on_way = len(values)
        deadline = time.monotonic() + 2 * DELIVERY_TIMEOUT_S
        while self._on_way > 0 and time.monotonic() < deadline:
            self._producer.poll(POLL_S)
        if self._failure is not None or self._on_way > 0:
            raise RuntimeError(f"{self._topic}/{self._partition}: a record was not taken: {self._failure}")

    def _on_delivery(self, error: "KafkaError | None", _message: "Message") -> None:
        self._on_way -= 1
        self._failure = self._failure or error
