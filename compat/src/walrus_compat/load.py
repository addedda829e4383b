"""Clients at work while something happens to the cluster: each has producers and readers, in topics of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import walrus_client

from walrus_compat import connections, verdict
from walrus_compat.clients import Client
from walrus_compat.driver import Driver, DriverError, acked, problems, read
from walrus_compat.feature import SOON_S, Broken, Pair, Together, Wrong, await_so, leads, sending
from walrus_compat.stage import Config, Stage

ROUNDS = 7  # resets of each node
CALM = 200  # records behind the last one, so that nobody stops in the middle of it


@contextmanager
def pairs(stage: Stage, clients: Sequence[Client], config: Config) -> Iterator[list[Pair]]:
    """Producers and readers of all clients in all their modes, at work."""
    with ExitStack() as stack:
        found = []
        for client in clients:
            for mode in client.modes:
                topic = stage.topic("together", config)
                spec = sending(client, idempotent=int(mode.idempotent), pace_ms=4)
                writer = stack.enter_context(stage.drive(client, "produce", topic, **spec))
                reader = stack.enter_context(stage.drive(client, "consume", topic, from_="earliest"))
                found.append(Pair(client, mode, topic, writer, reader))
        for pair in found:
            pair.reader.wait("its first records", lambda events: len(read(events)) >= 10, SOON_S)
        yield found


def tried(
    stage: Stage, clients: Sequence[Client], feature: Together
) -> tuple[dict[str, list[Wrong]], dict[str, float]]:
    """Have something happen while these clients are at work: what was wrong with each, and its longest pause."""
    found: dict[str, list[Wrong]] = {client.name: [] for client in clients}
    with pairs(stage, clients, feature.config) as at_work:
        try:
            feature.happens(stage, at_work)
        except (Broken, DriverError) as error:
            for wrong in found.values():
                wrong.append(Wrong(f"while they were at work: {error}"))
        for pair in at_work:
            pair.writer.stop()
        for pair in at_work:
            try:
                found[pair.client.name] += found_wrong(stage, pair, feature)
            except (DriverError, walrus_client.WalrusError) as error:
                found[pair.client.name].append(Wrong(f"{pair.mode.name}: {error}"))
        return found, {pair.client.name: longest_pause_s(pair.writer.events) for pair in at_work}


def found_wrong(stage: Stage, pair: Pair, feature: Together) -> list[Wrong]:
    """End the work of a pair, and tell what was wrong with it."""
    pair.writer.stop()
    events = pair.writer.finish()
    log = stage.log(pair.topic)
    stored = [verdict.number_of(record.value) for record in log]
    wrong = verdict.of_producer(stored, acked(events), is_idempotent=pair.mode.idempotent)
    end = log[-1].offset + 1 if log else 0
    led = leads(stage, pair.topic)
    count = 1 + sum(before != after for before, after in pairwise(led))
    if stage.is_walrus and count < feature.leads_min:
        wrong.append(f"nothing was tried: {len(led)} segments, and {count} leads")

    def is_through(events: list[dict[str, Any]]) -> bool:
        return any(event.get("read") == end - 1 for event in reversed(events))

    gave_up = bool(problems(pair.reader.events)) and any("done" in event for event in pair.reader.events)
    try:
        pair.reader.wait("the end of the log", lambda events: gave_up or is_through(events), SOON_S)
    except DriverError as error:
        wrong.append(str(error))
    pair.reader.stop()
    seen = [event["read"] for event in read(pair.reader.events)]
    end = seen[-1] + 1 if gave_up and seen else end
    wrong += verdict.of_reader(seen, 0, end, rereads=pair.client.rereads)
    told = [("producer", each) for each in problems(events)] + [
        ("reader", each) for each in problems(pair.reader.events)
    ]
    return [Wrong(f"{pair.mode.name}: {what}") for what in wrong] + [
        Wrong(f"{pair.mode.name}: the {who} was told: {each}", each) for who, each in told
    ]


def await_all(stage: Stage, at_work: Sequence[Pair], what: str, is_so: Callable[[list[int]], bool]) -> None:
    """Wait until the leaders of each topic's segments are so."""
    await_so(what, lambda: all(is_so(stage.leads(pair.topic)) for pair in at_work))


def rolls(stage: Stage, at_work: Sequence[Pair]) -> None:
    """Let segments end every second until there are ten of each topic."""
    await_all(stage, at_work, "ten segments", lambda led: len(led) >= 10)


def rolling_restart(stage: Stage, _at_work: Sequence[Pair]) -> None:
    """Stop each node in turn, which hands over first, and start it again."""
    for node in stage.nodes:
        stage.restart(node)


def kills(stage: Stage, at_work: Sequence[Pair]) -> None:
    """Kill each node in turn, and start it again when others lead what it led."""
    for node in stage.nodes:
        stage.kill(node)
        try:
            await_all(stage, at_work, f"others lead what node {node} led", lambda led, killed=node: led[-1] != killed)  # type: ignore[misc]
        finally:
            stage.start(node)


def resets(stage: Stage, at_work: Sequence[Pair]) -> None:
    """Reset all connections of all clients to one node after the other, each time when all clients are at work."""
    ports = [int(address.rpartition(":")[2]) for address in stage.bootstrap.split(",")]
    for port in ports * ROUNDS:
        drivers = [driver for pair in at_work if not has_given_up(pair) for driver in (pair.writer, pair.reader)]
        seen = {driver: len(driver.events) for driver in drivers}
        for driver in drivers:
            connections.reset(driver.pids, port)
        await_work(at_work, seen, 1)
    await_work(at_work, {driver: len(driver.events) for pair in at_work for driver in (pair.writer, pair.reader)}, CALM)


def await_work(at_work: Sequence[Pair], seen: Mapping[Driver, int], count: int) -> None:
    """Wait until each client has had so many more records acknowledged, or read, or its pair has given up."""
    for pair in at_work:
        for driver in (pair.writer, pair.reader):
            begun = seen.get(driver, 0)
            driver.wait("work", partial(has_gone_on, pair, begun, count), SOON_S)


def has_gone_on(pair: Pair, begun: int, count: int, events: Sequence[dict[str, Any]]) -> bool:
    """Whether so many records were acknowledged or read since then, or the pair of clients has given up."""
    return has_given_up(pair) or sum("acked" in event or "read" in event for event in events[begun:]) >= count


def has_given_up(pair: Pair) -> bool:
    """Whether a client has ended by itself, for which it must have told a reason."""
    return any("done" in event for driver in (pair.writer, pair.reader) for event in driver.events)


def longest_pause_s(events: Sequence[dict[str, Any]]) -> float:
    """The longest time between two acknowledgements."""
    times = [event["at"] for event in events if "acked" in event]
    return max((after - before for before, after in pairwise(times)), default=0.0)
