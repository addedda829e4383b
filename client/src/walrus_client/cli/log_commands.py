"""`walrus topics segments append read`: the Log service over gRPC."""

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from walrus_client.cli.exit_codes import Failed
from walrus_client.cli.output import (
    Output,
    OutputOption,
    as_dict,
    print_json,
    print_json_line,
    print_line,
    print_note,
    print_table,
    size_text,
)
from walrus_client.cli.records import LAST_SECOND, lines_of, record_as_json, text_of
from walrus_client.cli.settings import parse_settings
from walrus_client.cli.target import BootstrapOption, log_client, output_of
from walrus_client.client import Client
from walrus_client.model import KeptPartition, Record, SettingEffect, SettingSource, Topic, TopicDescription

_FOLLOW_WAIT_MS = 60_000

topics_app = typer.Typer()

CountOption = Annotated[
    int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.", show_default=False)
]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")]
TopicArgument = Annotated[str, typer.Argument(help="Name of the topic.", show_default=False)]


@topics_app.callback(invoke_without_command=True)
def topics(
    context: typer.Context,
    internal: Annotated[bool, typer.Option("--internal", help="Also those that Walrus keeps for itself.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """List the topics of the cluster; make, describe, change and delete them.

    Examples:
        walrus topics

        walrus topics create orders --partitions 3

        walrus topics describe orders
    """
    if context.invoked_subcommand is not None:
        return
    with log_client(context, bootstrap) as client:
        listed = client.topics(internal=internal)
    if output_of(context, output) is Output.JSON:
        print_json(as_dict(listed))
    else:
        print_table(("topic", "partitions", "uuid"), ((t.name, t.partitions, t.uuid) for t in listed))


@topics_app.command("create")
def create_topic(
    context: typer.Context,
    topic: TopicArgument,
    partitions: Annotated[int, typer.Option(min=1, help="Number of partitions.")] = 1,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of its own; repeat it for more.", show_default=False),
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Create a topic. One that is there with as many partitions and these settings is fine.

    Examples:
        walrus topics create orders --partitions 3

        walrus topics create orders --config segment.ms=600000 --config min.insync.replicas=3
    """
    settings, unset = parse_settings(config or [])
    if unset:
        raise typer.BadParameter(f"{unset[0]}= has no value", param_hint="--config")
    with log_client(context, bootstrap) as client:
        created = client.create_topic(topic, partitions=partitions, config=settings)
    _print_topic(created, output_of(context, output))


@topics_app.command("describe")
def describe_topic(
    context: typer.Context,
    topic: TopicArgument,
    everything: Annotated[bool, typer.Option("--all", help="Also settings that have no effect here.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Show a topic's settings as they are in force, where each comes from, and from when a change of it acts.

    Example: walrus topics describe orders
    """
    with log_client(context, bootstrap) as client:
        described = client.describe_topic(topic)
    _print_description(described, output_of(context, output), everything=everything)


@topics_app.command("alter")
def alter_topic(
    context: typer.Context,
    topic: TopicArgument,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="KEY= goes back to the default.", show_default=False),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="How many it is to have: as many as now, or more.", show_default=False),
    ] = None,
    expect_version: Annotated[
        int | None,
        typer.Option("--expect-version", min=0, help="Only if the settings have this version.", show_default=False),
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Change settings of a topic while records flow, all or none, or give it more partitions.

    Examples:
        walrus topics alter orders max.message.bytes=1048588 segment.ms=600000

        walrus topics alter orders segment.ms=

        walrus topics alter orders --partitions 6
    """
    if bool(settings) == (partitions is not None):
        raise typer.BadParameter("give settings or --partitions, one of the two", param_hint="KEY=VALUE")
    if partitions is not None:
        if expect_version is not None:
            raise typer.BadParameter("only settings have a version", param_hint="--expect-version")
        with log_client(context, bootstrap) as client:
            _print_topic(client.add_partitions(topic, partitions), output_of(context, output))
        return
    config, unset = parse_settings(settings or [])
    with log_client(context, bootstrap) as client:
        described = client.alter_topic(topic, config, unset=unset, expect_version=expect_version)
    _print_description(described, output_of(context, output), everything=False)


@topics_app.command("delete-records")
def delete_records(
    context: typer.Context,
    topic: TopicArgument,
    before: Annotated[
        list[str],
        typer.Argument(
            metavar="PARTITION=OFFSET...", help="PARTITION= deletes all that is acknowledged.", show_default=False
        ),
    ],
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Delete the records of partitions below an offset, in all of them or in none.

    Examples:
        walrus topics delete-records orders 0=1500 1=

        walrus topics delete-records orders 0=
    """
    offsets, whole = parse_settings(before)
    starts: dict[int, int | None] = {}
    for partition, offset in [*offsets.items(), *((partition, None) for partition in whole)]:
        starts[_whole_number(partition)] = None if offset is None else _whole_number(offset)
    with log_client(context, bootstrap) as client:
        kept = client.delete_records(topic, starts)
    if output_of(context, output) is Output.JSON:
        print_json({"starts": kept})
    else:
        print_table(("partition", "first offset"), sorted(kept.items()))


@topics_app.command("delete")
def delete_topic(
    context: typer.Context,
    topic: TopicArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Delete a topic with all its records.

    Example: walrus topics delete orders --yes
    """
    if not yes:
        typer.confirm(f"Delete topic {topic} with all its records?", abort=True, err=True)
    with log_client(context, bootstrap) as client:
        client.delete_topic(topic)
    if output_of(context, output) is Output.JSON:
        print_json({"deleted": topic})
    else:
        print_line(f"topic {topic} is deleted")


def segments(
    context: typer.Context, topic: TopicArgument, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """List the segments of a topic: offsets, state, leader and size.

    Example: walrus segments greetings
    """
    with log_client(context, bootstrap) as client:
        partitions = client.segments(topic)
    if output_of(context, output) is Output.JSON:
        print_json(as_dict(partitions))
        return
    print_table(
        ("partition", "segment", "state", "epoch", "offsets", "leader", "replicas", "size"),
        (
            (
                partition.partition,
                segment.number,
                segment.state,
                segment.epoch,
                f"[{segment.base_offset}, {segment.end_offset})",
                segment.leader.id if segment.leader else None,
                " ".join(f"{node.id}{'' if node.alive else ' (down)'}" for node in segment.replicas),
                size_text(segment.bytes),
            )
            for partition in partitions
            for segment in partition.segments
        ),
    )


def append(
    context: typer.Context,
    topic: TopicArgument,
    values: Annotated[
        list[str] | None,
        typer.Argument(help="The records; without any, each line of standard input is one.", show_default=False),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Key of all of them.", show_default=False)] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="Partition. [default: by key, else in turn]", show_default=False)
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Append records, each stored once; they are durable when the command ends.

    Examples:
        walrus append greetings hello "good morning"

        walrus append events --key sensor-7 < events.jsonl
    """
    with log_client(context, bootstrap) as client:
        with client.producer(topic) as producer:
            for value in _values(values):
                producer.send(value, key=None if key is None else os.fsencode(key), partition=partition)
        count = producer.stats().delivered_records
    if output_of(context, output) is Output.JSON:
        print_json({"appended": count})
    else:
        print_line(f"{count} record{'s' if count != 1 else ''} appended to {topic}")


def read(
    context: typer.Context,
    topic: TopicArgument,
    partition: Annotated[int, typer.Option("--partition", "-p", min=0, help="Partition to read.")] = 0,
    offset: Annotated[
        int | None,
        typer.Option(
            "--offset",
            "-s",
            help="First offset; negative counts back from the end. [default: the first one kept]",
            show_default=False,
        ),
    ] = None,
    count: CountOption = None,
    follow: FollowOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Print records by offset; no cursor moves. As JSON, each record is a line.

    Values that are not UTF-8 are base64 in JSON (`value_base64`), and shown with escapes otherwise.

    Examples:
        walrus read greetings

        walrus read greetings --offset -10 --follow

        walrus read greetings --output json | jq .value
    """
    as_json = output_of(context, output) is Output.JSON
    with log_client(context, bootstrap) as client:
        start = _first_offset(client, topic, partition, offset)
        try:
            for record in _records(client, topic, partition, start, count, follow=follow):
                if as_json:
                    print_json_line(record_as_json(record))
                else:
                    key = "" if record.key is None else f"{text_of(record.key)}\t"
                    print_line(f"{record.offset}\t{key}{text_of(record.value)}")
        except KeyboardInterrupt:
            print_note("stopped")


def _print_topic(topic: Topic, output: Output) -> None:
    if output is Output.JSON:
        print_json(as_dict(topic))
    else:
        print_line(f"{topic.name}: {topic.partitions} partition{'s' if topic.partitions != 1 else ''}")


def _print_description(described: TopicDescription, output: Output, *, everything: bool) -> None:
    if output is Output.JSON:
        print_json(as_dict(described))
        return
    shown = [
        setting
        for setting in described.settings
        if everything or setting.effect is not SettingEffect.NEVER or setting.source is SettingSource.TOPIC
    ]
    is_compacted = any(kept.compacted_to is not None for kept in described.partitions)
    print_table(
        (
            *("partition", "first offset", "sealed segments", "size", "why the oldest stays"),
            *(["compacted to"] if is_compacted else []),
        ),
        (
            (
                *(kept.partition, kept.log_start, kept.sealed_segments, size_text(kept.sealed_bytes), _reason(kept)),
                *([kept.compacted_to] if is_compacted else []),
            )
            for kept in described.partitions
        ),
    )
    print_line("")
    print_table(
        ("setting", f"value (version {described.version})", "source", "acts from"),
        ((setting.name, setting.value, setting.source, setting.effect) for setting in shown),
    )


def _reason(kept: KeptPartition) -> str:
    if kept.reader is not None:
        return f"{kept.reason}, by {kept.reader}"
    if kept.until_ms is None:
        return str(kept.reason)
    until = datetime.fromtimestamp(min(kept.until_ms / 1000, LAST_SECOND), tz=UTC)
    return f"{kept.reason}, until {until:%Y-%m-%d %H:%M:%S} UTC"


def _whole_number(text: str) -> int:
    if not text.isdecimal():
        raise typer.BadParameter(f"{text!r} is no whole number", param_hint="PARTITION=OFFSET")
    return int(text)


def _values(values: list[str] | None) -> Iterator[bytes]:
    if values:
        yield from map(os.fsencode, values)  # the bytes of the command line, whatever they are
    else:
        yield from lines_of(sys.stdin.buffer)


def _first_offset(client: Client, topic: str, partition: int, offset: int | None) -> int:
    if offset is not None and offset >= 0:
        return offset
    for known in client.segments(topic):
        if known.partition == partition:
            return known.log_start if offset is None else max(known.log_start, known.high_watermark + offset)
    raise Failed(f"topic {topic} has no partition {partition}")


def _records(
    client: Client, topic: str, partition: int, offset: int, count: int | None, *, follow: bool
) -> Iterator[Record]:
    end_offset = None if count is None else offset + count
    while True:
        wait_ms = _FOLLOW_WAIT_MS if follow else 0
        for record in client.read(topic, partition, offset, end_offset=end_offset, wait_ms=wait_ms):
            yield record
            offset = record.offset + 1
        if not follow or offset == end_offset:
            return
