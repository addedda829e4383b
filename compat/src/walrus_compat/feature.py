"""What a feature is, a row of the table: a function that raises `Broken` with what is not as it should be."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import walrus_client
from confluent_kafka import KafkaException

from walrus_compat.clients import Client, Mode
from walrus_compat.driver import Driver, acked, problems, read
from walrus_compat.stage import Config, Stage

SOON_S, LONG_S = 60.0, 120.0
LOOK_S = 0.5  # between two looks at what the cluster does


@dataclass(frozen=True, slots=True)
class Wrong:
    """Something that is not as it should be. `told` is what the application was told, if that is all that it is."""

    what: str
    told: str | None = None


class Broken(Exception):  # noqa: N818 - a finding, not a failure of the program
    """A feature does not work as it should; `told` as of `Wrong`, for each."""

    def __init__(self, what: str, told: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.wrong = tuple(Wrong(f"{what}: {each}", each) for each in told) or (Wrong(what),)


@dataclass(frozen=True, slots=True)
class Each:
    """A feature that is tried with one client. One that does something to the cluster is tried alone."""

    name: str
    what: str
    run: Callable[[Stage, Client], None]
    is_quick: bool = False
    is_alone: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """A producer and a reader of one client at work on a topic of their own."""

    client: Client
    mode: Mode
    topic: str
    writer: Driver
    reader: Driver


@dataclass(frozen=True, slots=True)
class Together:
    """Something that happens while a few clients produce and read; `config` are the settings of their topics.

    It is worth something only if the leader of each topic has changed so often that there were `leads_min` of them.
    """

    name: str
    what: str
    happens: Callable[[Stage, Sequence[Pair]], None]
    leads_min: int
    config: Config = field(default_factory=dict)
    is_quick: bool = False


Feature = Each | Together


def check(is_so: bool, what: str) -> None:
    """Raise `Broken` where something does not hold."""
    if not is_so:
        raise Broken(what)


def check_told(who: str, events: list[dict[str, Any]]) -> None:
    """Raise `Broken` where an application was told of errors."""
    if told := problems(events):
        raise Broken(f"the {who} was told", told)


def sending(client: Client, **spec: Any) -> dict[str, Any]:
    """The spec of a producer, with what is usual where it does not say otherwise."""
    return {"producer": "p", "acks": -1, "idempotent": int(client.modes[0].idempotent), "codec": "none", **spec}


def produced(stage: Stage, client: Client, topic: str, **spec: Any) -> dict[int, int]:
    """Have a client produce so many records, all of which must be acknowledged; return their offsets."""
    given = sending(client, **spec)
    with stage.drive(client, "produce", topic, **given) as driver:
        events = driver.finish()
    found = acked(events)
    check_told("producer", events)
    check(len(found) == given["count"], f"{len(found)} of {given['count']} were acknowledged")
    return found


def consumed(stage: Stage, client: Client, topic: str, begin: str, count: int) -> list[dict[str, Any]]:
    """Have a client read so many records from a place on."""
    with stage.drive(client, "consume", topic, from_=begin, count=count) as driver:
        events = driver.finish()
    check_told("reader", events)
    return read(events)


def await_so(what: str, is_so: Callable[[], bool], timeout_s: float = LONG_S) -> None:
    """Wait until something holds of the cluster; while leaders move it may not be known for a moment."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if is_so():
                return
        except (walrus_client.WalrusError, KafkaException):
            if time.monotonic() > deadline:
                raise
        check(time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s")
        time.sleep(LOOK_S)


def leads(stage: Stage, topic: str) -> list[int]:
    """Who led the segments of a topic; while one ends, that is not known for a moment."""
    found: list[int] = []

    def look() -> bool:
        found[:] = stage.leads(topic)
        return True

    await_so(f"the leaders of {topic}", look, SOON_S)
    return found


Found = Mapping[str, Sequence[Wrong]]  # what is wrong with each client
