"""`walrus register put get state metrics`: one command of the text protocol each."""

import os
import sys
from typing import Annotated

import typer

from walrus_client.cli.exit_codes import NothingThere
from walrus_client.cli.output import Output, OutputOption, bytes_as_json, print_bytes, print_json, print_line
from walrus_client.cli.target import AddrOption, output_of, text_addresses
from walrus_client.text import TextClient

Topic = Annotated[
    str, typer.Argument(help="1 to 249 characters of letters, digits, '.', '_' and '-'.", show_default=False)
]


def register(context: typer.Context, topic: Topic, addr: AddrOption = None, output: OutputOption = None) -> None:
    """Create a topic with one partition. One that is there is fine.

    Example: walrus register greetings
    """
    with _client(context, addr) as client:
        client.register(topic)
    _print_done(context, output)


def put(
    context: typer.Context,
    topic: Topic,
    payload: Annotated[
        str | None,
        typer.Argument(help="The entry; without it, all of standard input is one.", show_default=False),
    ] = None,
    addr: AddrOption = None,
    output: OutputOption = None,
) -> None:
    """Append one entry of text. It is durable when the command ends with OK. For any bytes: walrus append.

    Examples:
        walrus put greetings hello

        walrus put greetings -- "--not an option"

        echo -n hello | walrus put greetings
    """
    entry = sys.stdin.buffer.read() if payload is None else os.fsencode(payload)
    with _client(context, addr) as client:
        client.put(topic, entry)
    _print_done(context, output)


def get(context: typer.Context, topic: Topic, addr: AddrOption = None, output: OutputOption = None) -> None:
    """Take the next entry of the topic's shared cursor and print it, byte for byte.

    Every entry goes to one reader only. Exit code 4: there is no new entry. As JSON, an entry that is not UTF-8 is
    base64 (`payload_base64`).

    Example: walrus get greetings
    """
    as_json = output_of(context, output) is Output.JSON
    with _client(context, addr) as client:
        entry = client.get(topic)
        # The entry counts as delivered when the connection is closed, so it is printed before that.
        if entry is not None and as_json:
            print_json({"empty": False, **bytes_as_json("payload", entry)})
        elif entry is not None:
            print_bytes(entry)
    if entry is None:
        if as_json:
            print_json({"empty": True})
        raise NothingThere("EMPTY")


def state(context: typer.Context, topic: Topic, addr: AddrOption = None) -> None:
    """Print the segments of a topic and who leads them, as JSON.

    Example: walrus state greetings
    """
    with _client(context, addr) as client:
        print_json(client.state(topic))


def metrics(context: typer.Context, addr: AddrOption = None) -> None:
    """Print what the node knows of the cluster's metadata (Raft), as JSON.

    Example: walrus metrics --addr 127.0.0.1:8080
    """
    with _client(context, addr) as client:
        print_json(client.metrics())


def _client(context: typer.Context, addr: str | None) -> TextClient:
    return TextClient(text_addresses(context, addr))


def _print_done(context: typer.Context, output: Output | None) -> None:
    if output_of(context, output) is Output.JSON:
        print_json({"ok": True})
    else:
        print_line("OK")
