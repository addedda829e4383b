"""What commands print: tables for people, JSON for programs. Results go to stdout, everything else to stderr."""

import base64
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[
    Output | None,
    typer.Option("--output", "-o", help="How results are printed. [default: table]", show_default=False),
]


# All control characters but tab and line feed, and the marks that turn the direction of text around: what strangers
# stored or sent must not move a terminal's cursor, nor look like a line of ours.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return *text* with control characters as escapes that a person can read."""
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def print_line(text: str) -> None:
    """Print a result as it is, without reading it as markup; on a terminal with control characters as escapes."""
    sys.stdout.write((printable(text) if sys.stdout.isatty() else text) + "\n")
    sys.stdout.flush()


def print_bytes(content: bytes) -> None:
    """Print bytes and a line end: into a pipe or file as they are, on a terminal as text that is safe to show."""
    if sys.stdout.isatty():
        print_line(content.decode(errors="backslashreplace"))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(content + b"\n")
    sys.stdout.buffer.flush()


def bytes_as_json(name: str, content: bytes | None) -> dict[str, str | None]:
    """Return the entry of a JSON object for bytes: text under *name*, or base64 under *name*_base64."""
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def print_json(value: Any) -> None:
    """Print a value as JSON that a person can read, too."""
    print_line(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    """Print one value of many on a line of its own."""
    print_line(json.dumps(value, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their column names; numbers stand to the right."""
    rows = [list(row) for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[index], int | float | None) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*["-" if cell is None else printable(str(cell)) for cell in row])
    # A pipe has no width that matters; rich would cut the lines at 80.
    console = Console(file=sys.stdout, highlight=False, markup=False, width=None if sys.stdout.isatty() else 240)
    console.print(table)


def print_note(text: str) -> None:
    """Tell the person in front of the terminal something that is no result."""
    sys.stderr.write(printable(text) + "\n")
    sys.stderr.flush()


def size_text(count: int | None) -> str | None:
    """Return bytes as a person reads them."""
    if count is None:
        return None
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("the last unit takes everything")


def as_dict(value: Mapping[str, Any] | Any) -> Any:
    """Return dataclasses, tuples and bytes below *value* as what JSON has."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: as_dict(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {key: as_dict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_dict(item) for item in value]
    return value
