"""Streams the events to the brokers, and kills the broker that leads while they are on their way."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from walrus_client import Client, Segment
from walrus_client.dev import DevCluster

from flights.sender import Sender
from flights.table import Flights

TOPIC: Final = "flights"
LOAD_MAX_S: Final = 30.0
FILL_MAX: Final = 0.7  # largest fill of the segment whose leader is killed


@dataclass(frozen=True)
class Crash:
    """A broker that was killed, as it was at that moment."""

    node: str
    segment: Segment  # the open one that it led
    undelivered_bytes: int
    leaderless_s: float


def stream(
    sender: Sender, flights: Flights, *, start: int, end: int, on_sent: Callable[[int], None] | None = None
) -> int:
    """Sends the events `[start, end)` and waits until they are durable; returns their bytes, keys and values.

    *on_sent* is called with the number of each event that was handed over.
    """
    size = 0
    for number, event in enumerate(flights.events(start, end), start):
        sender.send(event.value, key=event.key, timestamp_ms=event.timestamp_ms)
        size += len(event.key) + len(event.value)
        if on_sent is not None:
            on_sent(number)
    sender.flush()
    return size


def kill_leader(client: Client, brokers: DevCluster, sender: Sender, *, segment_entries_max: int) -> Crash:
    """Kills the leader of the open segment with SIGKILL while appends are in flight; it stays down.

    Something else has to keep sending meanwhile. Returns once another broker leads.
    """
    segment, undelivered_bytes = _segment_under_load(client, sender, segment_entries_max)
    assert segment.leader is not None, "an open segment has a leader"
    name = name_of(brokers, segment.leader.id)
    began = time.monotonic()
    brokers.kill(name)
    while client.segments(TOPIC)[0].segments[-1].leader == segment.leader:
        if time.monotonic() - began > LOAD_MAX_S:
            raise TimeoutError(f"{LOAD_MAX_S:g} s after {name} was killed nobody else leads")
        time.sleep(0.05)
    return Crash(name, segment, undelivered_bytes, time.monotonic() - began)


def _segment_under_load(client: Client, sender: Sender, segment_entries_max: int) -> tuple[Segment, int]:
    """The open segment, so far from full that it stays open for a while, and the bytes on their way to it."""
    deadline = time.monotonic() + LOAD_MAX_S
    while time.monotonic() < deadline:
        segment = client.segments(TOPIC)[0].segments[-1]
        undelivered_bytes = sender.undelivered_bytes()
        if undelivered_bytes and segment.end_offset - segment.base_offset < FILL_MAX * segment_entries_max:
            return segment, undelivered_bytes
    raise TimeoutError(f"for {LOAD_MAX_S:g} s no append was in flight to a segment with room")


def name_of(brokers: DevCluster, node_id: int) -> str:
    """The name of a broker, by the id that metadata knows it by."""
    return next(node.name for node in brokers.nodes if node.node_id == node_id)
