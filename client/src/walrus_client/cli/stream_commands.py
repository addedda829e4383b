"""`walrus produce consume`: lines into a topic, and the records of all its partitions out of it."""

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from walrus_client.cli.exit_codes import Failed
from walrus_client.cli.log_commands import CountOption, FollowOption, TopicArgument
from walrus_client.cli.output import (
    Output,
    OutputOption,
    print_json,
    print_json_line,
    print_line,
    print_note,
    size_text,
)
from walrus_client.cli.partitions import Span, read_together
from walrus_client.cli.points import Point, parse_point
from walrus_client.cli.records import lines_of, record_as_json, text_of, time_text
from walrus_client.cli.starts import offsets_of, starts_of
from walrus_client.cli.target import BootstrapOption, log_client, output_of
from walrus_client.client import Client
from walrus_client.model import OffsetPlace, Record

_PROGRESS_S = 0.5
_CLEAR_LINE = "\r\x1b[K"


def consume(
    context: typer.Context,
    topic: TopicArgument,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="earliest|latest|TIME|OFFSET",
            help="Where to begin. TIME is ISO 8601, or how long ago (2h, 1d12h); a negative OFFSET counts back.",
        ),
    ] = "earliest",
    partition: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", min=0, help="Only this one; repeat it for more. [default: all]", show_default=False
        ),
    ] = None,
    count: CountOption = None,
    follow: FollowOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Print the records of all partitions, up to what is there when it begins; no cursor moves.

    A line has partition, offset, timestamp, key, value and headers, with tabs between; as JSON, each record is a line.

    Examples:
        walrus consume orders

        walrus consume orders --from 2h --follow

        walrus consume orders --from 2026-11-27T09:30 --partition 2 -n 10 --output json | jq .value
    """
    as_json = output_of(context, output) is Output.JSON
    try:
        point = parse_point(start, datetime.now().astimezone())
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--from") from None
    with log_client(context, bootstrap) as client:
        spans = _spans(client, topic, point, partition, follow=follow)
        found = read_together(client, topic, spans)
        try:
            with contextlib.closing(found):
                for number, record in itertools.islice(found, count):
                    _print_record(number, record, as_json=as_json)
        except KeyboardInterrupt:
            print_note("stopped")
        except BrokenPipeError:
            # Whoever read has seen enough. What is left in the buffer goes nowhere, or the exit would fail on it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def produce(
    context: typer.Context,
    topic: TopicArgument,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="File with the lines. [default: standard input]", show_default=False),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            metavar="TEXT",
            help="What stands between key and value; else a line is a value. \\\\t is a tab.",
            show_default=False,
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="Partition. [default: by key, else in turn]", show_default=False),
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Append lines as records, each stored once; they are durable when the command ends.

    Examples:
        walrus produce orders < orders.txt

        walrus produce orders --file orders.csv --key-separator ,
    """
    separator = None if key_separator is None else os.fsencode(key_separator.replace("\\t", "\t"))
    if separator == b"":
        raise typer.BadParameter("a separator has at least one character", param_hint="--key-separator")
    with contextlib.ExitStack() as stack:
        source = sys.stdin.buffer if file is None else stack.enter_context(file.open("rb"))
        client = stack.enter_context(log_client(context, bootstrap))
        began = time.monotonic()
        progress = _Progress(began)
        stopped = False
        with client.producer(topic) as producer:
            try:
                for key, value in _keyed_lines(source, separator):
                    producer.send(value, key=key, partition=partition)
                    progress.add(len(key or b"") + len(value))
            except KeyboardInterrupt:
                stopped = True  # what was read is still delivered
            finally:
                progress.clear()
        count = producer.stats().delivered_records
    seconds = time.monotonic() - began
    if output_of(context, output) is Output.JSON:
        print_json({"records": count, "bytes": progress.bytes, "seconds": round(seconds, 3), "stopped": stopped})
        return
    if stopped:
        print_note("stopped")
    records = f"{count} record{'s' if count != 1 else ''}"
    print_line(f"{records}, {size_text(progress.bytes)} in {seconds:.1f} s appended to {topic}")


def _spans(client: Client, topic: str, point: Point, wanted: list[int] | None, *, follow: bool) -> list[Span]:
    count = client.describe_topic(topic).topic.partitions
    partitions = sorted(set(wanted)) if wanted else list(range(count))
    if partitions[-1] >= count:
        raise Failed(f"topic {topic} has {count} partition{'s' if count != 1 else ''}, there is no {partitions[-1]}")
    # The ends come first: what is appended meanwhile is behind them, and not passed over.
    ends = offsets_of(client, topic, partitions, OffsetPlace.LATEST)
    starts = starts_of(client, topic, partitions, point, ends)
    return [Span(number, starts[number], None if follow else ends[number]) for number in partitions]


def _print_record(partition: int, record: Record, *, as_json: bool) -> None:
    if as_json:
        print_json_line({"partition": partition, **record_as_json(record)})
        return
    key = "" if record.key is None else text_of(record.key)
    headers = ",".join(f"{header.key}={text_of(header.value)}" for header in record.headers)
    columns = [str(partition), str(record.offset), time_text(record.timestamp_ms), key, text_of(record.value)]
    print_line("\t".join([*columns, headers] if headers else columns))


def _keyed_lines(source: BinaryIO, separator: bytes | None) -> Iterator[tuple[bytes | None, bytes]]:
    for number, line in enumerate(lines_of(source), start=1):
        if separator is None:
            yield None, line
            continue
        key, found, value = line.partition(separator)
        if not found:
            shown = separator.decode(errors="backslashreplace")
            raise Failed(f"line {number} has no key: there is no {shown!r} in it; the lines before are appended")
        yield key, value


class _Progress:
    """What was handed over so far, shown on standard error where that is a terminal."""

    def __init__(self, began: float) -> None:
        self.bytes = 0
        self._records = 0
        self._shown_at = began
        self._shows = sys.stderr.isatty()

    def add(self, size: int) -> None:
        self.bytes += size
        self._records += 1
        if self._shows and (now := time.monotonic()) >= self._shown_at + _PROGRESS_S:
            self._shown_at = now
            sys.stderr.write(f"{_CLEAR_LINE}{self._records} records, {size_text(self.bytes)}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shows:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
