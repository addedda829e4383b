"""`walrus register put get state metrics`: one command of the text protocol each."""

import json
import sys
from typing import Annotated, Any

import typer

from walrus_client.cli.exit_codes import Failed, NothingThere
from walrus_client.cli.output import Output, OutputOption, print_json, print_line
from walrus_client.cli.target import AddrOption, output_of, text_addresses
from walrus_client.text import TextClient

Topic = Annotated[
    str, typer.Argument(help="1 to 249 characters of letters, digits, '.', '_' and '-'.", show_default=False)
]


def register(context: typer.Context, topic: Topic, addr: AddrOption = None, output: OutputOption = None) -> None:
    """Create a topic with one partition. One that is there is fine.

    Example: walrus register greetings
    """
    _print_done(context, output, _ask(context, addr, f"REGISTER {topic}"))


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
    """Append one entry. It is durable when the command ends with OK.

    Examples:
        walrus put greetings hello

        walrus put greetings -- "--not an option"

        echo -n hello | walrus put greetings
    """
    if payload is None:
        payload = sys.stdin.read()
    _print_done(context, output, _ask(context, addr, f"PUT {topic} {payload}"))


def get(context: typer.Context, topic: Topic, addr: AddrOption = None, output: OutputOption = None) -> None:
    """Take the next entry of the topic's shared cursor and print it.

    Every entry goes to one reader only. Exit code 4: there is no new entry.

    Example: walrus get greetings
    """
    answer = _ask(context, addr, f"GET {topic}")
    as_json = output_of(context, output) is Output.JSON
    if answer == "EMPTY":
        if as_json:
            print_json({"empty": True})
        raise NothingThere("EMPTY")
    payload = answer.removeprefix("OK").removeprefix(" ")
    if as_json:
        print_json({"empty": False, "payload": payload})
    else:
        print_line(payload)


def state(context: typer.Context, topic: Topic, addr: AddrOption = None) -> None:
    """Print the segments of a topic and who leads them, as JSON.

    Example: walrus state greetings
    """
    print_json(_parse(_ask(context, addr, f"STATE {topic}")))


def metrics(context: typer.Context, addr: AddrOption = None) -> None:
    """Print what the node knows of the cluster's metadata (Raft), as JSON.

    Example: walrus metrics --addr 127.0.0.1:8080
    """
    print_json(_parse(_ask(context, addr, "METRICS")))


def _ask(context: typer.Context, addr: str | None, command: str) -> str:
    with TextClient(text_addresses(context, addr)) as client:
        answer = client.request(command)
    if answer.startswith("ERR"):
        raise Failed(answer.removeprefix("ERR").strip())
    return answer


def _parse(answer: str) -> Any:
    try:
        return json.loads(answer)
    except ValueError:
        raise Failed(f"the node answered what is not JSON: {answer[:200]!r}") from None


def _print_done(context: typer.Context, output: Output | None, answer: str) -> None:
    if output_of(context, output) is Output.JSON:
        print_json({"ok": True})
    else:
        print_line(answer)
