"""The prompt of `walrus` without a command: lines of the text protocol, answers as they come."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from walrus_client import errors
from walrus_client.cli.output import print_line, print_note
from walrus_client.text import TextClient

_HELP = """\
REGISTER topic          create a topic
PUT topic payload       append an entry
GET topic               take the next entry
STATE topic             segments and leaders, as JSON
METRICS                 metadata of the cluster, as JSON
help, exit              (also quit, q, Ctrl-D)"""


def run(addresses: str) -> None:
    """Ask and answer until `exit` or the end of input; one connection is kept, and made again when it broke."""
    client = TextClient(addresses)
    try:
        with _history():
            _greet(client)
            for line in _lines():
                command, _, rest = line.partition(" ")
                if command.lower() in ("exit", "quit", "q") and not rest:
                    return
                if command.lower() in ("help", "?"):
                    print_line(_HELP)
                    continue
                try:
                    # Commands are upper case on the wire; people do not want to be.
                    print_line(client.request(f"{command.upper()} {rest}" if rest else command.upper()))
                except errors.Unavailable as failure:
                    print_note(f"{failure}; connecting again")
                    client.close()
                    client = TextClient(addresses)
    finally:
        client.close()


def _greet(client: TextClient) -> None:
    if sys.stdin.isatty():
        print_note(f"connected to {client.address}; help shows the commands")


def _lines() -> Iterator[str]:
    while True:
        try:
            line = input("walrus> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            if sys.stdin.isatty():
                print_line("")
            return
        if line.strip():
            yield line.lstrip()


@contextlib.contextmanager
def _history() -> Iterator[None]:
    if not sys.stdin.isatty():
        yield
        return
    import readline

    history = Path("~/.walrus_history").expanduser()
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.set_history_length(1000)
            readline.write_history_file(history)
