"""The records that tests append, and how long their segments get."""

from walrus_client import OutRecord

SEGMENT_ENTRIES_MAX = 500


def record_of(offset: int) -> OutRecord:
    """The record that tests append at an offset: every kind of content and of its absence."""
    return OutRecord(
        None if offset % 11 == 0 else f"value {offset}".encode(),
        key=None if offset % 7 == 0 else f"key {offset % 5}".encode(),
        timestamp_ms=1_700_000_000_000 + offset,
        headers=[("number", str(offset).encode()), ("nothing", None)] if offset % 3 == 0 else [],
    )
