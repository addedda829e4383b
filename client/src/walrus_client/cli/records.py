"""Records as commands print them, and the lines that they take for records."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO

from walrus_client.cli.output import bytes_as_json
from walrus_client.model import Record

LAST_SECOND = 253_402_300_799  # the end of the year 9999, behind which a date cannot be written


def record_as_json(record: Record) -> dict[str, Any]:
    """Return a record as an object; bytes that are not UTF-8 are base64, under a name that says so."""
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **bytes_as_json("key", record.key),
        **bytes_as_json("value", record.value),
        "headers": [{"key": header.key, **bytes_as_json("value", header.value)} for header in record.headers],
    }


def text_of(content: bytes | None) -> str:
    """Return bytes as text, with escapes for what is not UTF-8."""
    return "(none)" if content is None else content.decode(errors="backslashreplace")


def time_text(timestamp_ms: int) -> str:
    """Return a record's timestamp in UTC; a number where it is no time that can be written, "-" where there is none."""
    if timestamp_ms == -1:
        return "-"
    if not 0 <= timestamp_ms <= LAST_SECOND * 1000:
        return str(timestamp_ms)
    return datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def lines_of(source: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file without their ends."""
    return (line.removesuffix(b"\n") for line in source)
