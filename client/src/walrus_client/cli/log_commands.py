"""`walrus topics segments append read`: the Log service over gRPC."""

import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from walrus_client.cli.exit_codes import Failed
from walrus_client.cli.output import (
    Output,
    OutputOption,
    as_dict,
    bytes_as_json,
    print_json,
    print_json_line,
    print_line,
    print_note,
    print_table,
    size_text,
)
from walrus_client.cli.target import BootstrapOption, grpc_addresses, output_of
from walrus_client.client import Client
from walrus_client.model import Record

RETRY_TIMEOUT_MS = 5_000  # a person waits; enough for a leader to move
_FOLLOW_WAIT_MS = 60_000

topics_app = typer.Typer()

Topic = Annotated[str, typer.Argument(help="Name of the topic.", show_default=False)]


@topics_app.callback(invoke_without_command=True)
def topics(
    context: typer.Context,
    internal: Annotated[bool, typer.Option("--internal", help="Also those that Walrus keeps for itself.")] = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """List the topics of the cluster, or create one.

    Examples:
        walrus topics

        walrus topics create orders --partitions 3
    """
    if context.invoked_subcommand is not None:
        return
    with _client(context, bootstrap) as client:
        listed = client.topics(internal=internal)
    if output_of(context, output) is Output.JSON:
        print_json(as_dict(listed))
    else:
        print_table(("topic", "partitions", "uuid"), ((t.name, t.partitions, t.uuid) for t in listed))


@topics_app.command("create")
def create_topic(
    context: typer.Context,
    topic: Topic,
    partitions: Annotated[int, typer.Option(min=1, help="Number of partitions.")] = 1,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Create a topic. One that is there with as many partitions is fine."""
    with _client(context, bootstrap) as client:
        created = client.create_topic(topic, partitions=partitions)
    if output_of(context, output) is Output.JSON:
        print_json(as_dict(created))
    else:
        print_line(f"{created.name}: {created.partitions} partition{'s' if created.partitions != 1 else ''}")


def segments(
    context: typer.Context, topic: Topic, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """List the segments of a topic: offsets, state, leader and size.

    Example: walrus segments greetings
    """
    with _client(context, bootstrap) as client:
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
    topic: Topic,
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
    with _client(context, bootstrap) as client:
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
    topic: Topic,
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
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
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
    with _client(context, bootstrap) as client:
        start = _first_offset(client, topic, partition, offset)
        try:
            for record in _records(client, topic, partition, start, count, follow=follow):
                if as_json:
                    print_json_line(_record_as_json(record))
                else:
                    key = "" if record.key is None else f"{_text(record.key)}\t"
                    print_line(f"{record.offset}\t{key}{_text(record.value)}")
        except KeyboardInterrupt:
            print_note("stopped")


def _client(context: typer.Context, bootstrap: str | None) -> Client:
    return Client(grpc_addresses(context, bootstrap), retry_timeout_ms=RETRY_TIMEOUT_MS)


def _values(values: list[str] | None) -> Iterator[bytes]:
    if values:
        yield from map(os.fsencode, values)  # the bytes of the command line, whatever they are
    else:
        yield from (line.removesuffix(b"\n") for line in sys.stdin.buffer)


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


def _record_as_json(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **bytes_as_json("key", record.key),
        **bytes_as_json("value", record.value),
        "headers": [{"key": header.key, **bytes_as_json("value", header.value)} for header in record.headers],
    }


def _text(content: bytes | None) -> str:
    return "(none)" if content is None else content.decode(errors="backslashreplace")
