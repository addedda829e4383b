"""Readers of topics from which records go: by compaction, and by age."""

from typing import Any

from walrus_compat import verdict
from walrus_compat.clients import Client
from walrus_compat.driver import Driver, read
from walrus_compat.feature import SOON_S, await_so, check, check_told, sending
from walrus_compat.stage import Config, Stage

KEYS = 10
COMPACTED: Config = {
    "cleanup.policy": "compact",
    "segment.ms": 1_000,
    "max.compaction.lag.ms": 1_000,
    "min.cleanable.dirty.ratio": "0.01",
}
AGED: Config = {"segment.ms": 1_000, "retention.ms": 5_000}
PACE_MS = 20
RECENT = 20  # lines in which the last record is looked for: others may be behind it


def compaction(stage: Stage, client: Client) -> None:
    """Records go for which a later one stands: readers pass over them, and get the last one of each key."""
    topic = stage.topic("compacted", COMPACTED)
    with (
        stage.drive(client, "produce", topic, **sending(client, pace_ms=PACE_MS, keys=KEYS)) as writer,
        stage.drive(client, "consume", topic, from_="earliest") as early,
    ):
        await_so("records are gone", lambda: has_gaps([record.offset for record in stage.log(topic)]))
        with (
            stage.drive(client, "consume", topic, from_="earliest") as late,
            stage.drive(client, "consume", topic, from_="offset:1") as inside,
        ):
            late.wait("a first record", lambda events: bool(read(events)), SOON_S)
            writer.stop()
            writer.finish()
            newest = {number % KEYS: number for number in (verdict.number_of(r.value) for r in stage.log(topic))}
            for who, reader in (("early", early), ("late", late), ("inner", inside)):
                events = read_to_the_end(stage, topic, reader)
                offsets = [event["read"] for event in events]
                check(offsets == sorted(set(offsets)), f"the {who} reader read {offsets}")
                last = {int(event["key"].split(" ")[1]): verdict.number_of(event["value"]) for event in events}
                check(last == newest, f"the {who} reader has {last}, and the newest are {newest}")


def has_gaps(offsets: list[int]) -> bool:
    """Whether half of the records are gone."""
    return bool(offsets) and len(offsets) < (offsets[-1] + 1) / 2


def retention(stage: Stage, client: Client) -> None:
    """Old records go: a reader at the end reads on, and one that wants what is gone begins at what is there."""
    topic = stage.topic("aged", AGED)
    with (
        stage.drive(client, "produce", topic, **sending(client, pace_ms=PACE_MS)) as writer,
        stage.drive(client, "consume", topic, from_="earliest") as early,
    ):
        await_so("old records are gone", lambda: stage.starts_at(topic) > 0)
        start = stage.starts_at(topic)
        with stage.drive(client, "consume", topic, from_="offset:0") as late:
            late.wait("a first record", lambda events: bool(read(events)) or has_problem(events), SOON_S)
            writer.stop()
            writer.finish()
            for who, reader, least in (("early", early, 0), ("late", late, start)):
                offsets = [event["read"] for event in read_to_the_end(stage, topic, reader)]
                check(offsets[0] >= least, f"the {who} reader read {offsets[0]}, which was gone")
                wrong = verdict.of_reader(offsets, offsets[0] if least else 0, offsets[-1] + 1)
                check(not wrong, f"{who}: {'; '.join(wrong)}")


def has_problem(events: list[dict[str, Any]]) -> bool:
    """Whether an error was told."""
    return any("error" in event for event in events)


def read_to_the_end(stage: Stage, topic: str, reader: Driver) -> list[dict[str, Any]]:
    """Let a reader come to the end of the log, and return what it read."""
    end = stage.log(topic)[-1].offset
    reader.wait(
        "the end of the log",
        lambda events: has_problem(events) or any(event.get("read", -1) >= end for event in events[-RECENT:]),
        SOON_S,
    )
    reader.stop()
    events = reader.finish()
    check_told("reader", events)
    return read(events)
